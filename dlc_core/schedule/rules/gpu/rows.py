"""Reductions on machines with thread axes: sums, softmax, normalisations.

    for row (group, or one of several in a group):      for point (thread):          neighbouring columns
      for thread: a part of each stage of the row         for part (second axis of threads): a part of each
                                                          stage

A row is a point of the result axes that no reduction covers. If rows are contiguous in the input, as in sums
over outer axes, neighbouring threads take neighbouring rows. Otherwise threads go along the row, each taking
every T-th vector, and partial results are combined by subgroup exchanges and shared memory
(`lower_cross_thread_reduction`). Values of a row that several stages need stay in registers. Few long rows
are reduced in two launches: parts of rows first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from dlc_core.arith import Analyzer
from dlc_core.diag import ScheduleError
from dlc_core.ir.expr import Call, Expr, Load, Var, const_value, free_vars, post_order
from dlc_core.schedule.handles import BlockRV, LoopRV
from dlc_core.schedule.rules.analysis import (
    contiguous_over,
    count_of,
    is_pointwise,
    loads_of,
    points_of,
    reduced,
    reductions,
)
from dlc_core.schedule.rules.base import Machine, ScheduleRule
from dlc_core.schedule.rules.gpu.choices import (
    GRID_DECISIONS,
    ROW_STAGES,
    ROWS,
    ROWS_PER_GROUP,
)
from dlc_core.schedule.rules.gpu.grid import Grid, bind_points
from dlc_core.schedule.rules.gpu.heuristics import ROW
from dlc_core.schedule.rules.gpu.long_rows import launch_stages_separately, reduce_parts
from dlc_core.schedule.rules.gpu.maps import vector_lanes
from dlc_core.schedule.rules.gpu.row_threads import Distribution, DistributionChoice, reduced_lanes
from dlc_core.schedule.rules.stages import has_row_stages, is_costly, output_axes, row_axes
from dlc_core.schedule.schedule import Schedule
from dlc_core.support.record import record
from dlc_core.tir.stmt import Block, IterVar, PrimFunc, Store


@record(frozen=True)
class RowsRule(ScheduleRule):
    """The rule for softmax, normalisations and sums.

    It applies if every block is a reduction of one value or pointwise.
    """

    name: ClassVar[str] = "gpu.rows"
    priority: ClassVar[int] = 40
    decisions: ClassVar[tuple[str, ...]] = (ROWS.name, ROWS_PER_GROUP.name, ROW_STAGES.name, *GRID_DECISIONS)

    def matches(self, func: PrimFunc, machine: Machine) -> bool:
        return has_row_stages(func)

    def apply(self, schedule: Schedule, machine: Machine) -> None:
        s, grid = schedule, Grid.of(machine)
        if launch_stages_separately(s, grid, machine):
            return
        out = s.get_output_blocks()[0]
        if s.get(out).init is not None:
            out = s.cache_write(out, 0, "local")
        _Rows(s, machine, grid, out).run()


class _Rows:
    def __init__(self, s: Schedule, machine: Machine, grid: Grid, out: BlockRV) -> None:
        self.s = s
        self.machine = machine
        self.grid = grid
        self.out = out

    def run(self) -> None:
        s, out = self.s, self.out
        axes, around = s.get(out).axes, s.get_loops(out)
        if len(axes) != len(around):
            raise ScheduleError(f"the loops around block {out.name!r} are not its axes one to one")
        loops = dict(zip((a.var for a in axes), around, strict=True))
        found = reductions(s.func)
        if len(found) == 1 and reduce_parts(s, self.grid, BlockRV(found[0].name)) is not None:
            found = reductions(s.func)
        length = _length_of(found)
        rows = row_axes(s, out, output_axes(s, out))
        lead = [loops[v] for v in rows]
        inner = [loop for v, loop in loops.items() if v not in rows]
        count = count_of(s, lead)
        choice = DistributionChoice(
            self.machine, self.grid, count, length, self._widest(), self._are_rows_contiguous(rows)
        )
        dist = choice.choose()
        self._inline(set(rows), dist.threads)
        stages = [handle for handle in s.get_blocks() if handle != out]
        if lead and inner:
            s.reorder(*lead, *inner)
        at = self._bind_rows(lead, inner, dist, choice)
        for handle in reversed([h for h in stages if not self._is_bound(h)]):
            s.compute_at(handle, at)
            s.set_scope(handle, 0, "local")
        for handle in [h for h in stages if not self._is_bound(h, at)]:
            block = s.get(handle)
            own = s.get_loops(handle)[-len(block.axes) :] if block.axes else []
            if block.init is None:
                self._distribute_points(handle, own, dist)
            else:
                self._distribute_steps(handle, own, dist)
        self._distribute_points(out, inner, dist)

    # Distribution of rows over groups and threads

    def _are_rows_contiguous(self, rows: Sequence[Var]) -> bool:
        """Whether neighbouring results reduce neighbouring inputs, so that neighbouring threads take them."""
        s, axes = self.s, self.s.get(self.out).axes
        if not rows or rows[-1] is not axes[-1].var:
            return False
        extent = const_value(axes[-1].dom.extent)
        if isinstance(extent, int) and extent < ROW.contiguous_results:
            return False
        along = output_axes(s, self.out)
        for handle, owners in along.items():
            block = s.get(handle)
            if block.init is None:
                continue
            own = next(a for a, v in owners.items() if v is rows[-1])
            if not contiguous_over(block, own):
                return False
        return True

    def _widest(self) -> int:
        """The widest contiguous load of a thread along a row."""
        return min((reduced_lanes(b, self.machine) for b in reductions(self.s.func)), default=1)

    def _bind_rows(
        self, lead: list[LoopRV], inner: list[LoopRV], dist: Distribution, choice: DistributionChoice
    ) -> LoopRV:
        """Bind the loops outside and inside of a row; return the loop in which stages are computed."""
        s, grid, count = self.s, self.grid, choice.count
        if not lead:
            lead = [s.add_unit_loop(inner[0] if inner else self.out)]
        if dist.axis != grid.threads:
            return bind_points(s, grid, lead, min(ROW.columns, grid.max_threads) if dist.threads > 1 else 0)
        row = s.fuse(*lead) if len(lead) > 1 else lead[0]
        rows_per_group = choice.choose_rows_per_group(dist.threads)
        tiles: LoopRV | None = None
        if rows_per_group > 1:
            row, one = s.split(row, [None, rows_per_group])
            count = None if count is None else count // rows_per_group
        # With several tiles per group the last is guarded, and guarded rows are not copied to registers.
        groups = grid.choose_groups(
            count, dist.threads * rows_per_group, strides=dist.lanes == 1, where="rows"
        )
        if groups is not None:
            tiles, row = s.split(row, [None, groups])
            s.reorder(row, tiles)
        s.bind(row, grid.groups)
        if rows_per_group > 1:
            s.bind(one, grid.rows)
            return one
        return row if tiles is None else tiles

    def _is_bound(self, handle: BlockRV, at: LoopRV | None = None) -> bool:
        """Whether a block has a launch of its own."""
        loops = self.s.get_loops(handle)
        return any(self.s.get_for(loop).kind == "thread" for loop in loops) and at not in loops

    # Stored values of a row

    def _inline(self, rows: set[Var], threads: int) -> None:
        """Inline pointwise stages that have one reader, are cheap, or need too many registers."""
        s, out = self.s, self.out
        along = output_axes(s, out)
        for handle in s.get_blocks():
            block = s.get(handle)
            if handle == out or not is_pointwise(block) or not isinstance(block.body, Store):
                continue
            consumers = s.get_consumers(handle)
            costly = is_costly(block.body.value)
            loads = sum(isinstance(e, Load) for e in post_order(block.body.value))
            across = [a for a in block.axes if along[handle].get(a.var) not in rows]
            if costly and all(const_value(a.dom.extent) == 1 for a in across):
                continue
            if len(consumers) <= 1 or not _fits(across, threads) or not (costly or loads > 2):
                s.compute_inline(handle)

    # Loops of a stage

    def _distribute_points(self, handle: BlockRV, own: Sequence[LoopRV], dist: Distribution) -> None:
        """Distribute the points of a stage over the threads of a row."""
        s = self.s
        loops = [loop for loop in own if const_value(s.extent(loop)) != 1]
        if not loops:
            return
        extent = const_value(s.extent(loops[-1]))
        divides = extent is not None and extent % dist.lanes == 0
        vectorized = divides and vector_lanes(s.get(handle), self.machine) >= dist.lanes
        thread, lane = self._split(loops, dist)
        if lane is not None:
            (s.vectorize if vectorized else s.unroll)(lane)
        if thread is not None:
            s.bind(thread, dist.axis)

    def _distribute_steps(self, handle: BlockRV, own: Sequence[LoopRV], dist: Distribution) -> None:
        """Distribute the steps of a reduction over the threads of a row."""
        s = self.s
        block = s.get(handle)
        kinds = [a.kind for a in block.axes]
        if any(k == "spatial" and const_value(s.extent(x)) != 1 for x, k in zip(own, kinds, strict=True)):
            raise ScheduleError(f"block {handle.name!r} has several results for a row")
        steps = [loop for loop, kind in zip(own, kinds, strict=True) if kind == "reduce"]
        if len(steps) > 1 or len(own) > len(steps):
            s.reorder(*(loop for loop in own if loop not in steps), *steps)
        if dist.lanes > 1:
            self._through_registers(handle, dist)
        thread, lane = self._split(steps, dist)
        if lane is not None:
            s.unroll(lane)
        if thread is not None:
            s.bind(thread, dist.axis)

    def _through_registers(self, handle: BlockRV, dist: Distribution) -> None:
        """Load a row as vectors to registers before a reduction that reads it in order."""
        s = self.s
        block = s.get(handle)
        for name, loads in _loads_by_buffer(block).items():
            if not all(_in_order(load, block) for load in loads):
                continue
            copy = s.cache_read(handle, name, "local")
            axes = s.get(copy).axes
            self._distribute_points(copy, s.get_loops(copy)[-len(axes) :], dist)

    def _split(self, loops: Sequence[LoopRV], dist: Distribution) -> tuple[LoopRV | None, LoopRV | None]:
        """Split a loop into threads and the iterations of each: every T-th vector."""
        s = self.s
        flat = s.fuse(*loops) if len(loops) > 1 else loops[0]
        if dist.threads == 1:
            return None, None
        if dist.lanes == 1:
            steps, thread = s.split(flat, [None, dist.threads])
            s.reorder(thread, steps)
            self._unroll(steps)
            return thread, None
        steps, thread, lane = s.split(flat, [None, dist.threads, dist.lanes])
        s.reorder(thread, steps)
        self._unroll(steps)
        return thread, lane

    def _unroll(self, steps: LoopRV) -> None:
        extent = const_value(self.s.extent(steps))
        if isinstance(extent, int) and extent <= ROW.row_registers:
            self.s.unroll(steps)


def _length_of(blocks: Sequence[Block]) -> int | None:
    """Steps of the longest reduction; None if symbolic."""
    lengths = [points_of(reduced(block)) for block in blocks]
    known = [length for length in lengths if length is not None]
    return max(known, default=0) if len(known) == len(lengths) else None


def _fits(across: Sequence[IterVar], threads: int) -> bool:
    """Whether the registers of a row's threads can hold the values of a stage."""
    total = points_of(across)
    return total is not None and total <= ROW.row_registers * threads


def _loads_by_buffer(block: Block) -> dict[str, list[Load]]:
    """The loads of a block from buffers in memory."""
    found: dict[str, list[Load]] = {}
    for load in loads_of(block):
        if load.buffer.scope == "global":
            found.setdefault(load.buffer.name, []).append(load)
    return found


def _is_guard(e: Expr) -> bool:
    return isinstance(e, Call) and e.name == "if_then_else"


def _in_order(load: Load, block: Block) -> bool:
    """Whether each step of a reduction reads one element, in memory order.

    Then a thread that copies its part of the row has what its steps need.
    """
    body = block.body
    if isinstance(body, Store) and any(_is_guard(e) for e in post_order(body.value)):
        return False  # steps with a false condition read no element
    analyzer, last = Analyzer(), -1
    for axis in reduced(block):
        if const_value(axis.dom.extent) == 1:
            continue
        dims = [d for d, index in enumerate(load.indices) if axis.var in free_vars(index)]
        if len(dims) != 1 or dims[0] <= last:
            return False
        (last,) = dims
        factor = analyzer.coefficient_of(load.indices[last], axis.var)
        if factor is None or const_value(factor) != 1:
            return False
    return True


__all__ = ["RowsRule"]
