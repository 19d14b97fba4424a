"""The fallback rule for kernels of any kind: vectorise contiguous innermost loops, parallelise independent
ones.

    for part of the columns (parallel):
      for step (in order):                     the sequential loop of a scan or scatter
        for vector of the part: …

Reductions of several values at once, such as argmax, scans and scatters have this schedule.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from dlc_core.diag import ScheduleError
from dlc_core.ir.expr import Expr, Load, Var, const_value, free_vars, post_order
from dlc_core.schedule.handles import BlockRV, LoopRV
from dlc_core.schedule.rules.analysis import coefficients, extent_of, is_pointwise, work_of
from dlc_core.schedule.rules.base import Machine, ScheduleRule
from dlc_core.schedule.rules.cpu.maps import MAP_DECISIONS, schedule_map
from dlc_core.schedule.rules.cpu.threads import worth_threads
from dlc_core.schedule.rules.cpu.vector import vectorize_long
from dlc_core.schedule.schedule import Schedule
from dlc_core.support.record import record
from dlc_core.tir.functor import block_list, exprs_of, stmts
from dlc_core.tir.stmt import Block, If, Let, PrimFunc, Store


@record(frozen=True)
class LoopsRule(ScheduleRule):
    """The rule for scans, scatters, reductions of several values and all else that has blocks.

    It has the lowest priority of the rules for processors.
    """

    name: ClassVar[str] = "cpu.loops"
    priority: ClassVar[int] = 0
    decisions: ClassVar[tuple[str, ...]] = MAP_DECISIONS

    def matches(self, func: PrimFunc, machine: Machine) -> bool:
        return bool(block_list(func.body))

    def apply(self, schedule: Schedule, machine: Machine) -> None:
        s, work = schedule, work_of(schedule.func)
        threads = machine.threads if worth_threads(machine, work, "iterations") else 1
        _inline_maps(s)
        for handle in s.get_blocks():
            block = s.get(handle)
            alone = all(s.get_child_blocks(loop) == [handle] for loop in s.get_loops(handle))
            if alone and is_pointwise(block) and not _recurs(block):
                schedule_map(s, handle, machine)
                continue
            loops = s.get_loops(handle)
            bound = {v: a for a, v in zip(block.axes, block.values, strict=True)}
            free = [loop for loop in loops if loop.var in bound and bound[loop.var].kind == "spatial"]
            if alone and block.init is None and free:
                free = _vectorized(s, handle, free, machine.lanes(32), threads)
            if threads > 1:
                _parallelize_any(s, handle, free, threads)


def _inline_maps(s: Schedule) -> None:
    """Inline pointwise blocks into pointwise readers."""
    outputs = s.get_output_blocks()
    for handle in s.get_blocks():
        if handle in outputs or not is_pointwise(s.get(handle)):
            continue
        readers = s.get_consumers(handle)
        if not readers or not all(is_pointwise(s.get(reader)) for reader in readers):
            continue
        try:
            s.compute_inline(handle)
        except ScheduleError:
            continue  # part of a scan's state, which other blocks write too


def _recurs(block: Block) -> bool:
    """Whether a block with one store reads what it writes at other points."""
    assert isinstance(block.body, Store)
    return any(isinstance(e, Load) and e.buffer is block.body.buffer for e in post_order(block.body.value))


def _vectorized(
    s: Schedule, handle: BlockRV, free: Sequence[LoopRV], lanes: int, threads: int
) -> list[LoopRV]:
    """Vectorise the innermost spatial loop of a block if every access is contiguous along it.

    Returns the other loops, which may be parallel. If there are none, parts of the vectorised loop are
    parallel.
    """
    block, (*others, column) = s.get(handle), free
    axis = next(a for a, v in zip(block.axes, block.values, strict=True) if v is column.var)
    extent = extent_of(axis)
    if lanes < 2 or (extent is not None and extent < 2) or not _is_contiguous_along(block, axis.var):
        return list(free)
    try:
        s.reorder(*(loop for loop in s.get_loops(handle) if loop != column), column)
    except ScheduleError:
        return list(free)
    others = [loop for loop in others if const_value(s.extent(loop)) != 1]
    if not others and extent is not None and extent % threads == 0 and extent >= threads * lanes > lanes:
        part, column = s.split(column, [threads, None], tail="exact")
        # Before the columns after the last whole vector become a block of their own, which hides that the
        # parts are independent.
        _parallelize_any(s, handle, [part], threads)
    vectorize_long(s, column, lanes)
    return others


def _parallelize_any(s: Schedule, handle: BlockRV, loops: Sequence[LoopRV], threads: int) -> None:
    """Parallelise the first loop with independent iterations; split it if sequential loops surround it."""
    for loop in loops:
        extent = const_value(s.extent(loop))
        if extent == 1:
            continue
        before = s.get_loops(handle)
        before = before[: before.index(loop)]
        try:
            if any(const_value(s.extent(each)) != 1 for each in before):
                if extent is not None and extent > threads:
                    loop, _ = s.split(loop, [threads, None], tail="balanced")
                s.reorder(loop, *before)
            s.parallel(loop)
        except ScheduleError:
            continue  # iterations are not independent
        return


def _is_contiguous_along(block: Block, axis: Var) -> bool:
    """Whether a block has only stores, under conditions that are constant along an axis, and accesses that
    are contiguous along it or do not depend on it.
    """
    found: list[tuple[Load | Store, Sequence[Expr]]] = []
    for stmt in stmts(block.body):
        match stmt:
            case Store():
                found.append((stmt, stmt.indices))
            case Let(value=value) | If(cond=value) if axis not in free_vars(value):
                pass
            case _:
                return False
        found += [(e, e.indices) for x in exprs_of(stmt) for e in post_order(x) if isinstance(e, Load)]
    for access, indices in found:
        steps = coefficients(access.buffer, indices, [axis])
        if steps is None or const_value(steps[axis]) not in ((1,) if isinstance(access, Store) else (0, 1)):
            return False
    return True
