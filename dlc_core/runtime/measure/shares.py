"""The share of each target in the work of a model.

exe.explain().share("npu")               the fraction of multiply-adds that the target computes
exe.explain().shares()["npu -cores=2"]   its multiply-adds, bytes, cycles and times
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from dlc_core.diag import UsageError
from dlc_core.runtime.measure.kernels import Kernel
from dlc_core.target.cost import known_sum

SHARED = ("multiply_adds", "flops", "bytes", "estimate", "seconds")
"""The figures that have shares."""


@dataclass(frozen=True)
class Share:
    """The work of one target. Figures are None if a term is unknown, such as one that depends on dims."""

    target: str
    device: str
    kernels: int
    """Kernels, regions of vendors' compilers and ops on the host."""
    multiply_adds: int | None
    flops: int | None
    bytes: int | None
    cycles: float | None
    """The expected cycles at the frequency of the target's description."""
    estimate: float | None
    """The expected seconds, one kernel after the other."""
    seconds: float | None
    """The measured seconds, one kernel after the other."""
    shares: Mapping[str, float | None]
    """The fraction of each figure in SHARED, 0 to 1. None if the sum over all targets is 0 or unknown."""

    def __str__(self) -> str:
        counts = (("multiply_adds", "multiply-adds"), ("bytes", "bytes"), ("estimate", "the expected time"))
        texts = [f"{share:.1%} of {text}" for key, text in counts if (share := self.shares[key]) is not None]
        cycles = [] if self.cycles is None else [f"{self.cycles:.0f} cycles expected"]
        return f"{self.target}: {', '.join([*texts, *cycles]) or 'unknown, because it depends on dims'}"


def shares_of(kernels: Sequence[Kernel]) -> dict[str, Share]:
    """The share of each target, by its text, in the order of first use."""
    by_target: dict[str, list[Kernel]] = {}
    for kernel in kernels:
        by_target.setdefault(kernel.target, []).append(kernel)
    sums = {target: sums_of(own) for target, own in by_target.items()}
    totals = sums_of(kernels)
    return {
        target: Share(
            target=target,
            device=own[0].device,
            kernels=len(own),
            cycles=known_sum(k.cycles for k in own),
            shares={key: _ratio(sums[target][key], totals[key]) for key in SHARED},
            **{key: sums[target][key] for key in SHARED},  # type: ignore[arg-type]
        )
        for target, own in by_target.items()
    }


def sums_of(kernels: Iterable[Kernel]) -> dict[str, float | None]:
    """Sums over kernels; None if a term is unknown."""
    listed = list(kernels)
    estimates = [k.estimate for k in listed]
    return {
        "multiply_adds": known_sum(k.multiply_adds for k in listed),
        "flops": known_sum(k.flops for k in listed),
        "bytes": known_sum(k.bytes for k in listed),
        "limit": known_sum(None if e is None else e.limit for e in estimates),
        "estimate": known_sum(None if e is None else e.seconds for e in estimates),
        "seconds": known_sum(k.seconds for k in listed),
    }


def share_of(kernels: Sequence[Kernel], target: str, of: str) -> float | None:
    """The share of a target, or of all targets of a kind; see `Explanation.share`."""
    if of not in SHARED:
        raise UsageError(f"there is no share of {of!r}", hint=f"one of {', '.join(SHARED)}")
    total = sums_of(kernels)[of]
    own = [k for k in kernels if target in (k.target, k.target.split()[0])]
    return _ratio(sums_of(own)[of], total)


def shares_record(shares: Mapping[str, Share]) -> list[dict[str, Any]]:
    """The shares as JSON data."""
    return [asdict(one) for one in shares.values()]


def _ratio(part: float | None, total: float | None) -> float | None:
    return None if part is None or not total else part / total


__all__ = ["SHARED", "Share", "share_of", "shares_of", "shares_record", "sums_of"]
