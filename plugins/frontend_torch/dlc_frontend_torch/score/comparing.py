"""Whether results are those of eager torch: `Tolerance`, `difference`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch.testing._comparison import default_tolerances

from dlc_core.support.record import record


@record(frozen=True)
class Tolerance:
    """Relative and absolute, of one dtype."""

    relative: float
    absolute: float

    @staticmethod
    def of(info: Any, dtype: torch.dtype) -> Tolerance:
        """torch's own tolerance: that of `torch.testing.assert_close`, or a larger one that the OpInfo gives
        to the tests of this operator on the CPU.
        """
        relative, absolute = default_tolerances(dtype)
        for decoration in info.decorators:
            device = getattr(decoration, "device_type", None)
            for each in getattr(decoration, "decorators", ()):
                given = getattr(each, "d", {}).get(dtype)
                if given is None or device not in (None, "cpu"):
                    continue
                # A precisionOverride has absolute tolerances alone.
                relative = max(relative, getattr(given, "rtol", 0.0))
                absolute = max(absolute, getattr(given, "atol", given))
        return Tolerance(relative, absolute)


CONTRACTIONS = (
    "convolution.", "mm.", "bmm.", "addmm.", "baddbmm.", "addbmm.", "mv.", "addmv.", "dot.", "vdot.",
    "_scaled_dot_product", "_trilinear.",
)  # fmt: skip
"""Operators that sum products. Roundings of their results are in proportion to the products, which may be
much larger than the sum.
"""
SHARE = 3
"""The largest error of a contraction may be so many times eager's largest one."""


def is_contraction(names: Iterable[str]) -> bool:
    """Whether one of the operators is a contraction."""
    return any(name.removeprefix("aten.").startswith(CONTRACTIONS) for name in names)


def difference(
    found: Any,
    expected: Any,
    info: Any,
    exact: Sequence[Any] | None = None,
    place: int = 0,
    *,
    by_norm: bool = False,
    rounded: Sequence[Sequence[Any]] = (),
) -> str | None:
    """How a result differs from eager's, or None if it is right.

    `exact` are the results for float64 copies of the inputs. A result that is no farther from `exact[place]`
    than eager's own, element by element and within tolerance, is right too. `rounded` are results of eager
    with other roundings: an element may be as far from the exact one as the farthest of these is. With
    `by_norm`, its error may be `SHARE` times the largest error of eager's elements.
    """
    if not isinstance(expected, torch.Tensor):
        if isinstance(found, torch.Tensor) and not found.shape:
            found = found.item()  # a number that depends on data is computed as a tensor
        return None if found == expected or found != found else f"{found!r} instead of {expected!r}"
    if not isinstance(found, torch.Tensor):
        return f"{found!r} instead of a tensor"
    if found.dtype != expected.dtype or found.shape != expected.shape:
        return f"{_type(found)} instead of {_type(expected)}"
    allowed = Tolerance.of(info, expected.dtype)
    message = _close(found, expected, allowed)
    if message is None or exact is None or not (expected.is_floating_point() or expected.is_complex()):
        return message
    true = exact[place]
    others = [expected, *(each[place] for each in rounded)]
    if not isinstance(true, torch.Tensor) or true.shape != expected.shape:
        return message
    if expected.is_complex():
        found = torch.view_as_real(found)
        others = [torch.view_as_real(each.resolve_conj()) for each in others]
        true = torch.view_as_real(true.to(torch.complex128).resolve_conj())
    return None if _as_exact(found, others, true.double(), allowed, by_norm) else message


def _close(found: torch.Tensor, expected: torch.Tensor, allowed: Tolerance) -> str | None:
    try:
        torch.testing.assert_close(
            found, expected, rtol=allowed.relative, atol=allowed.absolute, equal_nan=True
        )
    except AssertionError as error:
        return " ".join(str(error).split())
    return None


def _as_exact(
    found: torch.Tensor, others: Sequence[torch.Tensor], true: torch.Tensor, allowed: Tolerance, by_norm: bool
) -> bool:
    """Whether elements are as near to the true ones as those of eager, which are the first of the others."""
    own, expected = found.double(), others[0].double()
    # What the dtype cannot represent is infinite in both.
    true = true.to(found.dtype).double()
    distance = (own - true).abs()
    errors = torch.stack([(each.double() - true).abs() for each in others]).amax(0)
    if by_norm and errors.numel() and errors.isfinite().all():
        errors = SHARE * errors.max()
    limit = errors + allowed.absolute + allowed.relative * true.abs()
    same = (own == true) | (own.isnan() & true.isnan()) | (own == expected) | (own.isnan() & expected.isnan())
    return bool((same | (distance <= limit)).all())


def _type(tensor: torch.Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"


__all__ = ["Tolerance", "difference", "is_contraction"]
