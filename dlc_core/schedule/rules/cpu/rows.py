"""Kernels that reduce rows: softmax, normalisations, sums over inner axes.

    for row (parallel):
      each stage over that row, vectorised; partial results of a reduction in the lanes of one vector

All stages of a row run while the row is in the nearest cache; scalars of a row stay in registers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dlc_core.ir.expr import Binary, Call, Load, const_value, post_order
from dlc_core.schedule.handles import BlockRV, Copy, LoopRV
from dlc_core.schedule.rules.analysis import is_pointwise, reduced, reductions, same, spatial
from dlc_core.schedule.rules.base import Machine, ScheduleRule
from dlc_core.schedule.rules.cpu.vector import vectorize_long
from dlc_core.schedule.schedule import Schedule
from dlc_core.tir.functor import block_list
from dlc_core.tir.stmt import Block, PrimFunc, Store

SPLITTABLE = ("add", "mul", "min", "max")
"""Reductions whose partial results may be combined in any order."""
PARALLEL_ELEMENTS = 1 << 13
ROW_BYTES = 1 << 16
"""Values of a row up to this size are kept; longer rows are computed again where they are needed."""


@dataclass(frozen=True)
class RowsRule(ScheduleRule):
    """Any kernel with reductions of one value, where the other rules do not fit."""

    name: ClassVar[str] = "cpu.rows"
    priority: ClassVar[int] = 40

    def matches(self, func: PrimFunc, machine: Machine) -> bool:
        found = reductions(func)
        others = [b for b in block_list(func.body) if b not in found]
        return (
            bool(found) and all(isinstance(b.body, Store) for b in found) and all(map(is_pointwise, others))
        )

    def apply(self, schedule: Schedule, machine: Machine) -> None:
        s = schedule
        outputs = s.get_output_blocks()
        out = outputs[0]
        if s.get(out).init is not None:
            out = s.cache_write(out, 0, "local")
        _inline(s, out)
        stages = [handle for handle in s.get_blocks() if handle != out]
        depth = min(
            _shared_rows(s.get(handle), s.get(out)) for handle in stages if s.get(handle).init is not None
        )
        loops = s.get_loops(out)
        row = (
            s.fuse(*loops[:depth])
            if depth > 1
            else loops[0]
            if depth
            else s.add_unit_loop(loops[0] if loops else out)
        )
        for handle in reversed(stages):
            s.compute_at(handle, row)
            s.set_scope(handle, 0, "local")
        if machine.description.parallel and depth and _elements(s.get(out)) >= PARALLEL_ELEMENTS:
            s.parallel(row)
        lanes = machine.lanes(32)
        for handle in stages:
            if s.get(handle).init is not None:
                _reduction(s, handle, lanes)
            else:
                _pointwise(s, handle, s.get_loops(handle)[-len(s.get(handle).axes) :], lanes)
        _pointwise(s, out, s.get_loops(out)[s.get_loops(out).index(row) + 1 :], lanes)


def _shared_rows(block: Block, out: Block) -> int:
    """How many leading axes of a reduction's result are axes of the output."""
    count = 0
    for a, b in zip(spatial(block), out.axes, strict=False):
        if not same(a.dom.extent, b.dom.extent):
            break
        count += 1
    return count


def _elements(block: Block) -> int:
    total = 1
    for axis in block.axes:
        total *= const_value(axis.dom.extent) or PARALLEL_ELEMENTS
    return total


def _row_is_small(block: Block) -> bool:
    size = const_value(spatial(block)[-1].dom.extent) if spatial(block) else 1
    return size is not None and size * 8 <= ROW_BYTES


def _inline(s: Schedule, out: BlockRV) -> None:
    """Inline pointwise stages that are used once, that cost little, or whose rows are too long to keep."""
    for handle in s.get_blocks():
        block = s.get(handle)
        if handle == out or not is_pointwise(block) or not isinstance(block.body, Store):
            continue
        costly = any(
            isinstance(e, Call) or (isinstance(e, Binary) and e.op == "div")
            for e in post_order(block.body.value)
        )
        loads = sum(isinstance(e, Load) for e in post_order(block.body.value))
        once = len(s.get_consumers(handle)) <= 1
        scalar = all(const_value(a.dom.extent) == 1 for a in block.axes[-1:])
        if scalar and costly:
            continue
        if once or not _row_is_small(block) or not (costly or loads > 2):
            s.compute_inline(handle)


def _pointwise(s: Schedule, handle: BlockRV, loops: list[LoopRV], lanes: int) -> None:
    own = [loop for loop in loops if const_value(s.extent(loop)) != 1]
    if own and s.get_for(own[-1]).kind == "serial":
        vectorize_long(s, own[-1], lanes)
    del handle


def _reduction(s: Schedule, handle: BlockRV, lanes: int) -> None:
    """Lanes over a spatial axis where there is one, else partial results side by side."""
    block = s.get(handle)
    own = s.get_loops(handle)[-len(block.axes) :]
    places = list(zip(own, block.axes, strict=True))
    wide = [loop for loop, a in places if a.kind == "spatial" and (const_value(s.extent(loop)) or 2) > 1]
    inner = [loop for loop, a in places if a.kind == "reduce"]
    if wide:
        s.reorder(*(loop for loop in own if loop != wide[-1]), wide[-1])
        s.decompose_reduction(handle, next(loop for loop in s.get_loops(handle) if loop in inner))
        vectorize_long(s, wide[-1], lanes)
        return
    extent = const_value(s.extent(inner[-1]))
    body = block.body
    assert isinstance(body, Store)
    splittable = isinstance(body.value, Binary) and body.value.op in SPLITTABLE and reduced(block)
    if not splittable or (extent is not None and extent < lanes):
        return
    length = s.extent(inner[-1])
    steps, lane = s.split(inner[-1], [None, lanes], tail="predicate")
    partial = s.rfactor(lane, 0)
    s.set_scope(partial, 0, "local")
    outermost = next(loop for loop in s.get_loops(partial) if loop in (*inner, steps))
    init = s.decompose_reduction(partial, outermost)
    s.vectorize(s.get_loops(init)[-1])
    whole = length // lanes
    exact = extent is not None and extent % lanes == 0
    for copy in [Copy(steps)] if exact else s.partition(steps, [whole]):
        s.vectorize(copy[lane])
    s.unroll(s.get_loops(handle)[-1])
