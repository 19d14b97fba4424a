"""The needs of the schedule rules: units, memories of known size, and constant sizes."""

from __future__ import annotations

from collections.abc import Sequence

from dlc_core.diag import ScheduleError
from dlc_core.ir.expr import const_value
from dlc_core.target.description import Description
from dlc_core.target.units import MemoryScope
from dlc_core.tir.functor import block_list
from dlc_core.tir.stmt import PrimFunc


def scope_of(machine: Description, name: str) -> MemoryScope:
    """A memory of known size. Raises ScheduleError if the machine has none of this name."""
    scope = machine.scope(name)
    if scope is None or not scope.bytes:
        known = ", ".join(machine.capacities) or "none"
        raise ScheduleError(f"the machine has no memory {name!r} of known size", hint=f"with a size: {known}")
    return scope


def check_units(machine: Description, works: Sequence[str]) -> None:
    """Raise ScheduleError if no unit of the machine does one of these kinds of work."""
    known = [work for unit in machine.units for work in unit.works]
    missing = [work for work in works if work not in known]
    if missing:
        raise ScheduleError(
            f"the machine has no unit for {', '.join(missing)}",
            hint=f"its units do {', '.join(dict.fromkeys(known)) or 'nothing'}",
        )


def check_sizes(func: PrimFunc) -> None:
    """Raise ScheduleError for a kernel with symbolic sizes."""
    for block in block_list(func.body):
        for axis in block.axes:
            if const_value(axis.dom.extent) is None:
                raise ScheduleError(
                    f"axis {axis.var.name} of block {block.name!r} has the extent {axis.dom.extent}",
                    why="a stream of instructions has constant sizes",
                    hint="give the sizes of the model by shapes=",
                )


__all__ = ["check_sizes", "check_units", "scope_of"]
