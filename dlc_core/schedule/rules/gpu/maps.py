"""Elementwise and injective kernels: one thread per vector of neighbouring results.

for group, thread:                 all dims of the output fused; several tiles if there are very many
  vector of the innermost dim      if all accesses are contiguous along it, or constant
"""

from __future__ import annotations

from typing import ClassVar

from dlc_core.ir.expr import const_value
from dlc_core.schedule.handles import BlockRV
from dlc_core.schedule.rules.analysis import (
    accesses_of,
    coefficients,
    count_of,
    inline_pointwise,
    is_plain,
    is_pointwise,
    mergeable_tail,
)
from dlc_core.schedule.rules.base import Machine, ScheduleRule
from dlc_core.schedule.rules.gpu.choices import GRID_DECISIONS, choose_lanes, powers_of_two
from dlc_core.schedule.rules.gpu.grid import Grid, bind_points, bind_single_thread
from dlc_core.schedule.schedule import Schedule
from dlc_core.support.record import record
from dlc_core.tir.functor import block_list
from dlc_core.tir.stmt import Block, PrimFunc, Store


@record(frozen=True)
class MapRule(ScheduleRule):
    """The rule for elementwise and injective kernels.

    It applies if all blocks are pointwise: one store, no reduction.
    """

    name: ClassVar[str] = "gpu.map"
    priority: ClassVar[int] = 10
    decisions: ClassVar[tuple[str, ...]] = GRID_DECISIONS

    def matches(self, func: PrimFunc, machine: Machine) -> bool:
        blocks = block_list(func.body)
        return bool(blocks) and all(map(is_pointwise, blocks))

    def apply(self, schedule: Schedule, machine: Machine) -> None:
        grid = Grid.of(machine)
        inline_pointwise(schedule)
        for handle in schedule.get_blocks():
            map_points(schedule, grid, handle, machine)


def map_points(s: Schedule, grid: Grid, handle: BlockRV, machine: Machine) -> None:
    """Bind all loops of a pointwise block, the innermost as vectors if possible."""
    loops = s.get_loops(handle)
    if not loops:
        bind_single_thread(s, grid, handle)
        return
    block = s.get(handle)
    merged = mergeable_tail(block, loops) if is_plain(block, loops) else 1
    if merged > 1:
        loops = [*loops[:-merged], s.fuse(*loops[-merged:])]
    points = count_of(s, loops)
    lanes = vector_lanes(s.get(handle), machine)
    inner = const_value(s.extent(loops[-1]))
    if len(loops) > 1:
        # Rows must be whole vectors, so that each row's vectors are aligned.
        while lanes > 1 and (not isinstance(inner, int) or inner % lanes):
            lanes //= 2
    many = points is None or points >= lanes * max(1, grid.subgroup)
    lanes = choose_lanes(lanes if many else 1, powers_of_two(1, lanes), where=handle.name)
    if lanes > 1:
        loops[-1], lane = s.split(loops[-1], [None, lanes])
        s.vectorize(lane)
    bind_points(s, grid, loops)


def vector_lanes(block: Block, machine: Machine) -> int:
    """Return the elements of a thread's vectors along the innermost axis; 1 if vectors bring no gain."""
    body, axes = block.body, block.axes
    if not axes or not isinstance(body, Store):
        return 1
    inner = axes[-1].var
    widest = 1
    for number, (buffer, indices) in enumerate(accesses_of(block)):
        factors = coefficients(buffer, indices, [inner])
        factor = None if factors is None else const_value(factors[inner])
        if factor not in (0, 1) or (number == 0 and factor != 1):
            return 1
        if factor == 1:
            widest = max(widest, buffer.dtype.itemsize)
    return max(1, machine.description.load_bytes // widest)


__all__ = ["MapRule", "map_points", "vector_lanes"]
