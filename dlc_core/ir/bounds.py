"""Declared ranges of symbolic dims. A dim without one is only known to be non-negative."""

from __future__ import annotations

from dlc_core.diag import UsageError
from dlc_core.support.record import record

LARGEST = (1 << 63) - 1


@record(frozen=True)
class Bounds:
    """`low <= dim <= high`; None leaves the upper end open.

    The code that assigns the dim checks the bounds. All analysis of the dim relies on them.
    """

    low: int = 0
    high: int | None = None

    def __post_init__(self) -> None:
        ends = (self.low, LARGEST if self.high is None else self.high)
        if not all(type(end) is int for end in ends) or not 0 <= ends[0] <= ends[1] <= LARGEST:
            raise UsageError(
                f"{self.low!r} and {self.high!r} are no bounds of a dim",
                hint="bounds are integers from 0, the lower one first",
            )

    def admits(self, value: int) -> bool:
        """Whether a value is within the bounds."""
        return value >= self.low and (self.high is None or value <= self.high)

    def violation(self, name: str, size: int, why: str = "") -> UsageError:
        """The error for a dim `name` whose value is out of bounds."""
        wider = min(size, self.low), None if self.high is None else max(size, self.high)
        return UsageError(
            f"{name} is {size}, and the model is compiled for {name} in {self}",
            why=why,
            hint=f"compile it with wider bounds: shapes={{{name!r}: {wider}}}",
        )

    def intersect(self, other: Bounds) -> Bounds:
        """The intersection of two bounds; UsageError if it is empty."""
        highs = [high for high in (self.high, other.high) if high is not None]
        return Bounds(max(self.low, other.low), min(highs, default=None))

    def __str__(self) -> str:
        return f"{self.low}..{'' if self.high is None else self.high}"


__all__ = ["Bounds"]
