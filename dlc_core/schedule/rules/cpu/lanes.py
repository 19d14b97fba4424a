"""Reductions whose output has a contiguous axis that is not reduced: pooling, depthwise convolution, sums over outer axes.

The contiguous axis is vectorised; a tile of outputs is accumulated in registers over the whole reduction.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dlc_core.ir.expr import const_value
from dlc_core.schedule.handles import BlockRV
from dlc_core.schedule.rules.analysis import extent_of, inline_pointwise, is_pointwise, reductions, spatial
from dlc_core.schedule.rules.base import Machine, ScheduleRule
from dlc_core.schedule.rules.cpu.maps import schedule_map
from dlc_core.schedule.schedule import Schedule
from dlc_core.tir.functor import block_list
from dlc_core.tir.stmt import PrimFunc

VECTORS = 4
"""Vectors of accumulators: enough chains to hide the latency of an addition."""


@dataclass(frozen=True)
class LanesRule(ScheduleRule):
    """One reduction into an output whose innermost axis is spatial and long enough for a vector."""

    name: ClassVar[str] = "cpu.lanes"
    priority: ClassVar[int] = 50

    def matches(self, func: PrimFunc, machine: Machine) -> bool:
        found = reductions(func)
        others = [b for b in block_list(func.body) if b not in found]
        if len(found) != 1 or len(found[0].writes) != 1 or not all(is_pointwise(b) for b in others):
            return False
        axes = spatial(found[0])
        return bool(axes) and extent_of(axes[-1]) is not None and (extent_of(axes[-1]) or 0) > 1

    def apply(self, schedule: Schedule, machine: Machine) -> None:
        s = schedule
        block = BlockRV(reductions(s.func)[0].name)
        for handle in s.get_producers(block):
            schedule_map(s, handle, machine)
        out = s.cache_write(block, 0, "local") if s.get_output_blocks() == [block] else inline_pointwise(s)
        *outer, column = s.get_loops(out)
        lanes = machine.lanes(32)
        extent = const_value(s.extent(column)) or 1
        width = min(extent, lanes * VECTORS)
        if extent % width:
            width = lanes if extent >= lanes else extent
        split = s.split(column, [None, width], tail="shrink")
        s.compute_at(block, split[0])
        s.set_scope(block, 0, "local")
        if machine.description.parallel and outer:
            s.parallel(outer[0])
        tiles = [split[0]] if const_value(s.extent(split[1])) is not None else None
        names = [(block, out, split[1])]
        if tiles is None:
            copies = s.partition(split[0], [extent // width])
            names = [(c[block], c[out], c[split[1]]) for c in copies]
        for inner_block, inner_out, inner_column in names:
            _tile(s, inner_block, inner_out, inner_column, lanes)


def _tile(s: Schedule, block: BlockRV, out: BlockRV, column: object, lanes: int) -> None:
    raise NotImplementedError
