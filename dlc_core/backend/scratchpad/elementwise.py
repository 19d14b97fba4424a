"""The schedule of elementwise kernels for a machine with scratchpads.

for tile:
    copies of what is read           in the scratchpad
    result = value(copies)           in the scratchpad
    store result
"""

from __future__ import annotations

from collections.abc import Sequence

from dlc_core.backend.scratchpad.requirements import check_sizes, check_units, scope_of
from dlc_core.backend.scratchpad.rule import cache_reads
from dlc_core.diag import ScheduleError
from dlc_core.ir.expr import const_value
from dlc_core.schedule.rules.analysis import inline_pointwise, is_pointwise, loads_of, reductions
from dlc_core.schedule.rules.base import Machine, ScheduleRule
from dlc_core.schedule.schedule import Schedule
from dlc_core.target.units import LOAD, STORE, VECTOR
from dlc_core.tir.stmt import PrimFunc, Store


class ElementwiseRule(ScheduleRule):
    """The rule for elementwise kernels: tiles of rows are copied to a scratchpad, computed, and stored."""

    priority = 400

    def __init__(self, name: str, *, scope: str, keys: Sequence[str] = ()) -> None:
        self.name = name  # type: ignore[misc]
        self.keys = tuple(keys)  # type: ignore[misc]
        self.scope = scope

    def matches(self, func: PrimFunc, machine: Machine) -> bool:
        return bool(machine.description.units) and not reductions(func)

    def apply(self, schedule: Schedule, machine: Machine) -> None:
        """Schedule the kernel. Raises ScheduleError for several results, for symbolic sizes, and for a
        machine without the units or the memory.
        """
        check_units(machine.description, (LOAD, VECTOR, STORE))
        check_sizes(schedule.func)
        scope = scope_of(machine.description, self.scope)
        if len(schedule.get_output_blocks()) != 1:
            raise ScheduleError("the kernel has several results")
        out = inline_pointwise(schedule)
        block = schedule.get(out)
        if not is_pointwise(block):
            raise ScheduleError(f"block {block.name!r} is not elementwise")
        extents = [int(const_value(a.dom.extent) or 0) for a in block.axes]
        if 0 in extents:
            raise ScheduleError(f"block {block.name!r} has no elements")
        sizes = [load.buffer.dtype.itemsize for load in dict.fromkeys(loads_of(block))]
        assert isinstance(block.body, Store)
        elements = scope.bytes // (2 * sum([*sizes, block.body.buffer.dtype.itemsize])) // 2
        copy = schedule.cache_write(out, 0, scope.name)
        reads = cache_reads(schedule, out, scope.name)
        tiles = []
        for extent in reversed(extents):
            tiles.append(max(1, min(extent, elements)))
            elements //= extent
        loops = schedule.get_loops(copy)
        if not loops:
            loops, tiles = [schedule.add_unit_loop(copy)], [1]
        pairs = [
            schedule.split(loop, [None, t], "shrink") for loop, t in zip(loops, reversed(tiles), strict=True)
        ]
        outers, inners = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        schedule.reorder(*outers, *inners)
        schedule.compute_at(out, outers[-1])
        for read in reads:
            schedule.compute_at(read, outers[-1])


__all__ = ["ElementwiseRule"]
