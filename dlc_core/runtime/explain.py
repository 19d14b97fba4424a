"""What an executable consists of: its kernels, the model nodes and the schedule of each, and its memory.

print(exe.explain())
exe.explain().kernels[0].rule           which schedule rule it got
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dlc_core.runtime.executable import Executable

_SHOWN_NODES = 3


@dataclass(frozen=True)
class Kernel:
    """One kernel call of the model, in the order of execution."""

    name: str
    nodes: tuple[str, ...]
    rule: str
    """The schedule rule that was applied; "none" where no rule fitted, empty where it is not known."""
    refused: tuple[str, ...]
    """Rules that fitted and were refused, with their reasons."""
    flops: int | None
    bytes: int | None
    trace: str | None = None
    """The steps of its schedule as Python, where it was compiled with `config={"traces": True}`."""


@dataclass(frozen=True)
class Explanation:
    """`str` gives text, `to_json` everything as JSON."""

    target: str
    signature: str
    code: int
    """Bytes of code."""
    weights: int
    """Bytes of constants."""
    arena: str
    """Bytes of scratch memory of one call, an expression where they depend on dims."""
    kernels: tuple[Kernel, ...]

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1)

    def __str__(self) -> str:
        lines = [
            f"target   {self.target}",
            f"model    {self.signature}",
            f"memory   {self.weights} bytes of constants, {self.arena} bytes of scratch memory in each call",
            f"code     {self.code} bytes, {len(self.kernels)} kernel calls",
        ]
        width = max((len(k.name) for k in self.kernels), default=0)
        rules = max((len(k.rule) for k in self.kernels), default=0)
        for kernel in self.kernels:
            rest = len(kernel.nodes) - _SHOWN_NODES
            nodes = ", ".join(kernel.nodes[:_SHOWN_NODES]) + (f" and {rest} more" if rest > 0 else "")
            lines.append(f"  {kernel.name:<{width}}  {kernel.rule:<{rules}}  {nodes}".rstrip())
            lines += [f"  {'':<{width}}  refused: {reason.splitlines()[0]}" for reason in kernel.refused]
        return "\n".join(lines)


def explain(exe: Executable) -> Explanation:
    """What an executable consists of, as far as its compile recorded it."""
    kernels = tuple(
        Kernel(
            name=site["kernel"],
            nodes=tuple(site.get("nodes", ())),
            rule=site.get("rule", ""),
            refused=tuple(site.get("why_not", ())),
            flops=site.get("flops"),
            bytes=site.get("bytes"),
            trace=site.get("trace"),
        )
        for site in exe.about.get("sites", ())
    )
    signature = exe.signature
    sizes = len(exe.artifact.code), signature.weights_size, str(signature.arena_size)
    return Explanation(str(exe.target), str(signature), *sizes, kernels)


def regrouped(before: Explanation, after: Explanation) -> list[tuple[tuple[str, ...], list[tuple[str, ...]]]]:
    """The kernels of one compile that are other kernels in a second one of the same model.

    Each as its model nodes, with the nodes of the kernels of the second compile that do their work.
    """
    kept = {frozenset(kernel.nodes) for kernel in after.kernels}
    found = []
    for nodes in dict.fromkeys(kernel.nodes for kernel in before.kernels if kernel.nodes):
        if frozenset(nodes) in kept:
            continue
        now = [kernel.nodes for kernel in after.kernels if not set(nodes).isdisjoint(kernel.nodes)]
        found.append((nodes, list(dict.fromkeys(now))))
    return found


__all__ = ["Explanation", "Kernel", "explain", "regrouped"]
