"""Attention by tiles (see `tiled.py`): all stages of a tile of queries, while its scores are in the cache.

    for batch and head (parallel):
      keys                                   transposed, panel by panel
      for tile of queries (parallel instead, if there are too few heads for the threads):
        for panel of keys: scores            rows × one vector of accumulators in registers
        for query: max, weights, sum         vectors of scores
        for panel of features: results       rows × vectors in registers, divided by the sums, one store

For a single query the keys are not transposed: each score is a reduction over lanes.

With dot products (see `tiled_dots.py`), a tile also packs its queries, and a head its values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from dlc_core.algorithms.attention.choice import PARALLEL
from dlc_core.algorithms.attention.online import filled
from dlc_core.algorithms.attention.plan import Tiled, TiledDots
from dlc_core.algorithms.attention.stages import STAGE
from dlc_core.diag import ScheduleError
from dlc_core.ir.expr import const_value
from dlc_core.ir.plan import PLAN
from dlc_core.schedule.handles import BlockRV, LoopRV
from dlc_core.schedule.rules.analysis import pad_rows, work_of
from dlc_core.schedule.rules.base import Machine, ScheduleRule
from dlc_core.schedule.rules.cpu.dots import dot_columns
from dlc_core.schedule.rules.cpu.heuristics import LOOPS
from dlc_core.schedule.rules.cpu.register_tile import fits
from dlc_core.schedule.rules.cpu.rows import CHAINS, reduce_in_lanes
from dlc_core.schedule.rules.cpu.threads import THREADS, worth_threads
from dlc_core.schedule.rules.cpu.vector import vectorize_columns, vectorize_long, vectors_of
from dlc_core.schedule.rules.stages import loops_that_read, marked_stages
from dlc_core.schedule.schedule import Schedule
from dlc_core.support.record import record
from dlc_core.tir.functor import block_list
from dlc_core.tir.stmt import PrimFunc

READERS: Mapping[str, tuple[str, ...]] = {
    "weighted": (),
    "denominator": (),
    "weights": ("weighted", "denominator"),
    "row_max": ("weights",),
    "scores": ("row_max", "weights"),
    "products": ("scores",),
    "queries": ("products",),
}
"""The stages that are computed per tile of queries, each with the stages that read it; the output is not
listed.  Only plans with dot products pack the queries.
"""


@record(frozen=True)
class TiledAttentionRule(ScheduleRule):
    """The rule for attention by tiles on cores.

    A panel is one vector of keys, or a single key for one query.
    """

    name: ClassVar[str] = "cpu.attention"
    priority: ClassVar[int] = 120
    decisions: ClassVar[tuple[str, ...]] = (THREADS.name, PARALLEL.name, CHAINS.name)

    def matches(self, func: PrimFunc, machine: Machine) -> bool:
        plan = func.attrs.get(PLAN)
        if not isinstance(plan, Tiled) or machine.description.thread_axes:
            return False
        if isinstance(plan, TiledDots):
            types = (plan.operands, plan.operands, "float32")
            dot = machine.description.dot(*types)
            lanes = machine.lanes(32)
            return dot is not None and (dot.group, dot.lanes, lanes) == (plan.group, plan.lanes, plan.lanes)
        if plan.panel != 1:
            return plan.panel == machine.lanes(32)
        scores = next(b for b in block_list(func.body) if b.annotations.get(STAGE) == "scores")
        *_, row, _, _ = scores.axes
        return const_value(row.dom.extent) == 1

    def apply(self, schedule: Schedule, machine: Machine) -> None:
        _Attend(schedule, machine).run()


@record(frozen=True)
class _Part:
    """Tiles of `rows` queries: the loops of the output block, and the stages that belong to these tiles."""

    rows: int
    row: LoopRV
    feature: LoopRV
    out: BlockRV
    stage: Mapping[str, BlockRV]


def panel_width(rows: int, features: int, lanes: int, registers: int) -> int:
    """Return the features that a tile of `rows` queries computes at a time.

    Their accumulators fit in the registers.  The tail of a head size that is no multiple of the lanes has
    several narrower vectors.
    """
    for panels in range(1, -(-features // lanes)):
        width = -(-features // (panels * lanes)) * lanes
        most = max(vectors_of(size, lanes) for size in (min(width, features), features % width))
        if fits(rows, most, registers):
            return min(width, features)
    return min(lanes, features)


class _Attend:
    def __init__(self, schedule: Schedule, machine: Machine) -> None:
        self.s = s = schedule
        self.machine = machine
        self.lanes = machine.lanes(32)
        self.stage = marked_stages(s, STAGE)
        self.plan: Tiled = s.func.attrs[PLAN]
        self.work = work_of(s.func)
        self.parallel_tiles = False
        operands = self.plan.operands if isinstance(self.plan, TiledDots) else ""
        self.dot = machine.description.dot(operands, operands, "float32")
        self.dot_loops: list[LoopRV] = []
        """Loops over columns that dot products will compute."""

    def run(self) -> None:
        s = self.s
        (out,) = s.get_output_blocks()
        kept = {out, *self.stage.values()} - {self.stage["result"]}
        for handle in s.get_blocks():
            if handle == out:
                continue
            if handle not in kept or (handle == self.stage["keys"] and self.plan.panel == 1):
                s.compute_inline(handle)
        *heads, row, feature = loops_that_read(s, out, self.stage["weighted"])
        s.reorder(*heads, row, feature)
        head = s.fuse(*heads) if len(heads) > 1 else heads[0]
        self._parallelize(head, row)
        if self.plan.panel == 1:
            self._one_query(row, feature)
            return
        for part in self._parts(_Part(self.plan.rows, row, feature, out, self.stage)):
            self._tile(part)
        for name in ("keys",) if self.dot is None else ("keys", "values"):
            s.compute_at(self.stage[name], head)
            vectorize_long(s, s.get_loops(self.stage[name])[-1], self.lanes)
        if self.dot is not None:
            s.compact_buffers()
            for column in self.dot_loops:
                dot_columns(s, column, self.dot)

    def _parallelize(self, head: LoopRV, row: LoopRV) -> None:
        """Run the loop over heads on all threads, or let `_tile` do so with the loops over tiles."""
        if not worth_threads(self.machine, self.work, "multiply-adds"):
            return
        heads, rows = (const_value(self.s.extent(loop)) for loop in (head, row))

        def cycles(alternative: str) -> float | None:
            if heads is None or rows is None or self.work is None:
                return None
            tiles = -(-rows // self.plan.rows)
            each = self.work / LOOPS.work_per_cycle["multiply-adds"] / (heads * tiles)
            if alternative == "heads":
                return -(-heads // self.machine.threads) * tiles * each + self.machine.description.fork_cycles
            return heads * (-(-tiles // self.machine.threads) * each + self.machine.description.fork_cycles)

        over_heads, over_tiles = map(cycles, PARALLEL.alternatives)
        if over_heads is None or over_tiles is None:
            few = heads is not None and heads < self.machine.threads
        else:
            few = over_tiles < over_heads
        tiled = self.plan.panel != 1
        preferred = "tiles" if few and tiled else "heads"
        candidates = PARALLEL.alternatives if tiled else ("heads",)
        self.parallel_tiles = PARALLEL.choose(preferred, candidates, cost=cycles) == "tiles"
        if not self.parallel_tiles:
            self.s.parallel(head)

    # Tiles of queries

    def _parts(self, all_queries: _Part) -> list[_Part]:
        """The full tiles and the tail; a symbolic tail has shorter tiles and single queries."""
        s, rows = self.s, self.plan.rows
        count = const_value(s.extent(all_queries.row))
        if count is None:
            latency = int(self.machine.description.fma_latency)
            sizes = [rows, *(size for size in (latency, 1) if size < rows)]
        else:
            sizes = [min(rows, count), count % rows if count > rows else 0]
        parts = [replace(all_queries, rows=sizes[0])]
        for size in filter(None, sizes[1:]):
            last = parts[-1]
            loop = s.get_for(last.row)
            _, rest = s.partition(last.row, [loop.begin + loop.extent // last.rows * last.rows])
            out, stage = rest[last.out], dict(last.stage)
            for name, users in READERS.items():
                if name in stage:
                    stage[name] = s.duplicate(last.stage[name], [stage[user] for user in users] or [out])
            parts.append(_Part(size, rest.loop, rest[last.feature], out, stage))
        return parts

    def _tile(self, part: _Part) -> None:
        """Schedule all stages of a tile of queries."""
        s = self.s
        tiles, row = s.split(part.row, [None, part.rows], tail="exact")
        extent = const_value(s.extent(part.feature))
        if extent is None:
            raise ScheduleError("the number of features is symbolic")
        width = panel_width(part.rows, extent, self.lanes, self.machine.registers)
        panels, feature = s.split(part.feature, [None, width], tail="shrink")
        s.reorder(tiles, panels, row, feature)
        stage = dict(part.stage)
        s.compute_at(stage["weighted"], panels)
        s.set_scope(stage["weighted"], 0, "local")
        for loop in self._loops_of(stage["weighted"], "reduce"):
            s.trim(loop)
        shared = ("scores",) if self.dot is None else ("scores", "weights")  # with operands of dot products
        for name in ("denominator", "weights", "row_max", "scores"):
            s.compute_at(stage[name], tiles)
            if name not in shared:
                s.set_scope(stage[name], 0, "local")
            if name in ("row_max", "denominator"):
                self._over_keys(stage[name])
            else:
                # The products with values read one key of all rows at a time. Rows a power of two apart would
                # be in one set of L1, which has fewer ways than a tile has rows.
                axis = s.get(stage[name]).writes[0].buffer.ndim - 3
                pad_rows(s, stage[name], axis, self.machine.description.cache_line)
        self._scores(stage)
        if self.dot is not None:
            s.compute_at(stage["queries"], tiles)
            vectorize_long(s, s.get_loops(stage["queries"])[-1], self.lanes)
        vectorize_columns(s, s.get_loops(stage["weights"])[-1], self.lanes)
        copies = [None] if extent % width == 0 else s.partition(panels, [extent // width])
        for copy in copies:
            if copy is None:
                self._results(stage["weighted"], row, feature)
            else:
                self._results(copy[stage["weighted"]], copy[row], copy[feature])
        if self.parallel_tiles:
            s.parallel(tiles)

    def _scores(self, stage: Mapping[str, BlockRV]) -> None:
        """Compute the scores of a tile for one panel of keys in registers; the tail after the last key is
        separate.
        """
        s = self.s
        row, panel, lane = s.get_loops(stage["scores"])[-3:]
        s.reorder(panel, row, lane)
        s.compute_at(stage["products"], panel)
        s.set_scope(stage["products"], 0, "local")
        *_, own_row, _, own_lane = self._loops_of(stage["products"], "spatial")
        self._accumulate(stage["products"], (own_row, own_lane), (row, lane))

    def _over_keys(self, handle: BlockRV) -> None:
        """Reduce each row of scores, with partial results in the lanes of a vector."""
        s = self.s
        lane = s.get_loops(handle)[-1]
        if const_value(s.extent(lane)) != self.lanes:
            _, lane = s.split(lane, [None, self.lanes], tail="exact")
        partial = s.rfactor(lane, 0)
        s.set_scope(partial, 0, "local")
        row, last = s.get_loops(handle)[-2:]
        s.compute_at(partial, row)
        panel, *vectors = self._loops_of(partial, "reduce")
        lane = next(
            loop for loop in self._loops_of(partial, "spatial") if const_value(s.extent(loop)) == self.lanes
        )
        s.trim(panel)
        s.reorder(panel, *vectors, lane)
        init = s.decompose_reduction(partial, panel)
        s.vectorize(lane)
        s.vectorize(s.get_loops(init)[-1])
        s.unroll(last)

    def _results(self, weighted: BlockRV, row: LoopRV, feature: LoopRV) -> None:
        *_, own_row, own_feature = self._loops_of(weighted, "spatial")
        self._accumulate(weighted, (own_row, own_feature), (row, feature))

    def _loops_of(self, handle: BlockRV, kind: str) -> list[LoopRV]:
        """Return the loops over axes of a kind of a block that has one loop per axis."""
        axes = self.s.get(handle).axes
        own = self.s.get_loops(handle)[-len(axes) :]
        return [loop for loop, axis in zip(own, axes, strict=True) if axis.kind == kind]

    def _accumulate(self, handle: BlockRV, own: tuple[LoopRV, LoopRV], user: tuple[LoopRV, LoopRV]) -> None:
        """Keep the sums of a tile in registers. `own` are the loops over rows and columns of the sums, `user`
        are those of the block that reads them.
        """
        s, (rows, columns) = self.s, own
        reduction = self._loops_of(handle, "reduce")
        group = [] if self.dot is None else [reduction.pop()]
        width = const_value(s.extent(columns)) or 0
        if group and width % self.lanes:
            s.widen(columns, filled(width, self.lanes))
        s.reorder(*reduction, rows, columns, *group)
        init = s.decompose_reduction(handle, reduction[0])
        for down, across in (own, tuple(s.get_loops(init)[-2:]), user):
            s.unroll(down)
            if group and across == columns:
                self.dot_loops.append(columns)
            else:
                vectorize_columns(s, across, self.lanes)

    # A single query

    def _one_query(self, row: LoopRV, feature: LoopRV) -> None:
        s, stage = self.s, self.stage
        for name in ("weighted", "denominator", "weights", "row_max", "scores"):
            s.compute_at(stage[name], row)
            s.set_scope(stage[name], 0, "local")
        panel = s.get_loops(stage["scores"])[-2]
        s.compute_at(stage["products"], panel)
        s.set_scope(stage["products"], 0, "local")
        for name in ("products", "row_max", "denominator", "weighted"):
            reduce_in_lanes(s, stage[name], self.lanes)
        vectorize_long(s, s.get_loops(stage["weights"])[-2], self.lanes)
        vectorize_long(s, feature, self.lanes)


__all__ = ["TiledAttentionRule", "panel_width"]
