"""Records that were found for a compile: the differences of their machines, and their origins in words."""

from __future__ import annotations

import time
from collections.abc import Sequence

from dlc_core.support.record import record
from dlc_core.target import Target
from dlc_core.version import __version__
from dlc_tune.records.record import Record, machine_of


@record(frozen=True)
class Found:
    """A chosen record and the name of its source."""

    record: Record
    source: str

    @property
    def origin(self) -> str:
        """Where its schedule comes from, in one line."""
        found = self.record
        parts = [cost_text(found.seconds, found.unit)] if found.seconds is not None else []
        if found.default_seconds is not None:
            parts.append(f"default {cost_text(found.default_seconds, found.unit)}")
        if found.space:
            parts.append(f"space {found.space}")
        if found.time:
            parts.append(time.strftime("%Y-%m-%d", time.gmtime(found.time)))
        return f"{self.source}: {', '.join(parts)}"


def difference(found: Record, target: Target) -> str:
    """The difference between the measurement of a record and a compile; empty if there is none."""
    description = target.describe()
    if found.processor != target.identity:
        return "measured on another processor, or by another code generator"
    if found.machine and found.machine != machine_of(description):
        return f"measured on another machine: {found.machine}"
    if found.threads != description.cores:
        return f"measured on {found.threads} threads"
    if found.compiler and found.compiler != __version__:
        return f"measured by dlc {found.compiler}"
    return ""


def sizes_text(extents: Sequence[int]) -> str:
    """The sizes of a kernel, at most eight, such as `32×48×40`."""
    return "×".join(map(str, extents[:8])) + ("…" if len(extents) > 8 else "")


def cost_text(cost: float, unit: str) -> str:
    """A cost with its unit, such as `12.3 µs`."""
    if unit != "seconds":
        return f"{cost:.6g} {unit}"
    for scale, name in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if cost >= scale:
            return f"{cost / scale:.3g} {name}"
    return f"{cost * 1e9:.3g} ns"


__all__ = ["Found", "cost_text", "difference", "sizes_text"]
