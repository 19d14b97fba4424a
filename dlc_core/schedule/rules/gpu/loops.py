"""The fallback rules: outermost independent loops are bound to threads, the others are serial.

Each nest is a launch of its own; launches run in order.
"""

from __future__ import annotations

from typing import ClassVar

from dlc_core.diag import ScheduleError
from dlc_core.schedule.dependence import outer_blocks
from dlc_core.schedule.handles import BlockRV, LoopRV
from dlc_core.schedule.rules.base import Machine, ScheduleRule
from dlc_core.schedule.rules.gpu.choices import GRID_DECISIONS
from dlc_core.schedule.rules.gpu.grid import Grid, bind_points, bind_single_thread
from dlc_core.schedule.schedule import Schedule
from dlc_core.support.record import record
from dlc_core.tir.functor import block_list
from dlc_core.tir.stmt import For, PrimFunc
from dlc_core.tir.threads import is_axis


@record(frozen=True)
class LoopsRule(ScheduleRule):
    """The rule for scans, scatters, reductions of several values and all else that has blocks.

    It is refused if dependences between iterations are unknown.
    """

    name: ClassVar[str] = "gpu.loops"
    priority: ClassVar[int] = 0
    decisions: ClassVar[tuple[str, ...]] = GRID_DECISIONS

    def matches(self, func: PrimFunc, machine: Machine) -> bool:
        return bool(block_list(func.body))

    def apply(self, schedule: Schedule, machine: Machine) -> None:
        grid = Grid.of(machine)
        schedule.compact_buffers()
        for block in outer_blocks(schedule.func.body):
            bind_nest(schedule, grid, BlockRV(block.name))


@record(frozen=True)
class SingleThreadRule(ScheduleRule):
    """The rule for kernels with unknown dependences: each nest runs in a single thread."""

    name: ClassVar[str] = "gpu.single_thread"
    priority: ClassVar[int] = -10

    def matches(self, func: PrimFunc, machine: Machine) -> bool:
        return bool(block_list(func.body))

    def apply(self, schedule: Schedule, machine: Machine) -> None:
        grid = Grid.of(machine)
        schedule.compact_buffers()
        for block in outer_blocks(schedule.func.body):
            loops = schedule.get_loops(BlockRV(block.name))
            if not any(is_axis(schedule.get_for(loop)) for loop in loops):
                bind_single_thread(schedule, grid, loops[0] if loops else BlockRV(block.name))


def bind_nest(s: Schedule, grid: Grid, handle: BlockRV) -> None:
    """Launch the nest of a block, unless it is launched already."""
    loops = s.get_loops(handle)
    if any(is_axis(s.get_for(loop)) for loop in loops):
        return
    free = _independent(s, loops)
    if free:
        bind_points(s, grid, free)
    else:
        bind_single_thread(s, grid, loops[0] if loops else handle)


def _independent(s: Schedule, loops: list[LoopRV]) -> list[LoopRV]:
    """Return the outermost perfectly nested loops whose iterations are independent."""
    found: list[LoopRV] = []
    trial = s.copy()
    for loop in loops:
        try:
            trial.parallel(loop)
        except ScheduleError:
            break
        found.append(loop)
        if not isinstance(s.get_for(loop).body, For):
            break
    return found


__all__ = ["LoopsRule", "SingleThreadRule", "bind_nest"]
