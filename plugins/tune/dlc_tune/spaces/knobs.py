"""The entities of templates: what a knob stands for, and how it is applied to loops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dlc_core.schedule import LoopRV, Schedule
from dlc_core.support.record import record


@record(frozen=True)
class Split:
    """The chosen factors of a split: those of the inner loops, outer to inner."""

    factors: tuple[int, ...]
    tail: str

    def __str__(self) -> str:
        return "x".join(map(str, self.factors))

    def apply(self, schedule: Schedule, loop: LoopRV) -> list[LoopRV]:
        """Split a loop; returns the loops, outer to inner."""
        return list(schedule.split(loop, [None, *self.factors], tail=self.tail))


@record(frozen=True)
class Order:
    """The chosen order of loops, as positions of the loops that it was defined with."""

    positions: tuple[int, ...]

    def __str__(self) -> str:
        return " ".join(map(str, self.positions))

    def apply(self, schedule: Schedule, loops: Sequence[LoopRV]) -> list[LoopRV]:
        """Reorder loops; returns them in the new order, outer to inner."""
        ordered = [loops[position] for position in self.positions]
        schedule.reorder(*ordered)
        return ordered


@record(frozen=True)
class Annotation:
    """The chosen kinds of loops, one for each."""

    kinds: tuple[str, ...]

    def __str__(self) -> str:
        return " ".join(self.kinds)

    def apply(self, schedule: Schedule, loops: Sequence[LoopRV]) -> None:
        """Unroll, vectorise or parallelise the loops."""
        for loop, kind in zip(loops, self.kinds, strict=True):
            if kind != "none":
                getattr(schedule, kind)(loop)


@record(frozen=True)
class Knob:
    """The chosen value of a knob."""

    value: Any

    def __str__(self) -> str:
        return str(self.value)

    @property
    def val(self) -> Any:
        """The value, by AutoTVM's name."""
        return self.value


__all__ = ["Annotation", "Knob", "Order", "Split"]
