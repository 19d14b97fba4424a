"""Reductions whose output has a contiguous axis that is not reduced: pooling, depthwise convolution, sums
over outer axes.

The contiguous axis is vectorised; a strip of outputs is accumulated in registers over the whole reduction.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dlc_core.ir.expr import const_value
from dlc_core.schedule.handles import BlockRV, LoopRV
from dlc_core.schedule.rules.analysis import (
    contiguous_over,
    deal_out,
    extent_of,
    inline_pointwise,
    is_pointwise,
    reductions,
    spatial,
    work_of,
)
from dlc_core.schedule.rules.base import Machine, ScheduleRule
from dlc_core.schedule.rules.cpu.maps import schedule_map
from dlc_core.schedule.rules.cpu.vector import vectorize_columns
from dlc_core.schedule.schedule import Schedule
from dlc_core.tir.functor import block_list
from dlc_core.tir.stmt import PrimFunc, Store

VECTORS = 4
"""Vectors of accumulators: enough chains to hide the latency of an addition."""
PARALLEL_WORK = 1 << 14
"""Iterations below which a kernel is not worth waking other threads for."""


@dataclass(frozen=True)
class LanesRule(ScheduleRule):
    """One reduction into an output whose innermost axis is spatial and at least two wide."""

    name: ClassVar[str] = "cpu.lanes"
    priority: ClassVar[int] = 50

    def matches(self, func: PrimFunc, machine: Machine) -> bool:
        found = reductions(func)
        others = [b for b in block_list(func.body) if b not in found]
        if (
            len(found) != 1
            or not isinstance(found[0].body, Store)
            or not all(is_pointwise(b) for b in others)
        ):
            return False
        axes = spatial(found[0])
        return bool(axes) and (extent_of(axes[-1]) or 0) > 1 and contiguous_over(found[0], axes[-1].var)

    def apply(self, schedule: Schedule, machine: Machine) -> None:
        s = schedule
        work = work_of(s.func)
        block = BlockRV(reductions(s.func)[0].name)
        for handle in s.get_producers(block):
            schedule_map(s, handle, machine)
        out = s.cache_write(block, 0, "local") if s.get_output_blocks() == [block] else inline_pointwise(s)
        *outer, column = s.get_loops(out)
        lanes = machine.lanes(32)
        extent = const_value(s.extent(column))
        width = lanes * VECTORS if extent is None else min(extent, lanes * VECTORS)
        strips, strip = s.split(column, [None, width], tail="shrink")
        s.compute_at(block, strips)
        s.set_scope(block, 0, "local")
        if machine.description.parallel and (work is None or work >= PARALLEL_WORK):
            deal_out(s, [*outer, strips])
        if const_value(s.extent(strip)) is not None:
            _strip(s, block, strip, lanes)
            return
        for copy in s.partition(strips, [s.get(out).axes[-1].dom.extent // width]):
            _strip(s, copy[block], copy[strip], lanes)


def _strip(s: Schedule, block: BlockRV, column: LoopRV, lanes: int) -> None:
    """Accumulators of one strip in registers, the reduction around them."""
    axes = s.get(block).axes
    own = s.get_loops(block)[-len(axes) :]
    reduction = [loop for loop, axis in zip(own, axes, strict=True) if axis.kind == "reduce"]
    rest = [loop for loop in own if loop not in reduction]
    s.reorder(*reduction, *rest)
    init = s.decompose_reduction(block, reduction[0])
    for last in (rest[-1], s.get_loops(init)[-1], column):
        vectorize_columns(s, last, lanes)
