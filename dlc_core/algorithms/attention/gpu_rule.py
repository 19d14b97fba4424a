"""Attention in two passes over the keys in one launch (see `two_pass.py`); scores stay out of global memory.

    for batch, head, tile of queries (group):
      queries of the tile                      by all threads, to shared memory
      for panel of keys: keys                  by all threads, to shared memory
        products, scores: rows x columns       in registers, a part per thread
        max and sum of the part                in registers
      max and sum of each query                combined from the threads of a row
      for panel of keys: keys, values          by all threads, to shared memory
        products, scores, weights              weights to shared memory
        results: rows x features               in registers
      results divided by the sums, stored

Panels that a causal mask hides from all queries of a tile are skipped.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from dlc_core.algorithms.attention.choice import Sizes, two_pass_fits
from dlc_core.algorithms.attention.plan import TwoPass
from dlc_core.algorithms.attention.stages import STAGE
from dlc_core.diag import ScheduleError
from dlc_core.ir.expr import const_value
from dlc_core.ir.plan import PLAN
from dlc_core.schedule.handles import BlockRV, LoopRV
from dlc_core.schedule.rules.base import Machine, ScheduleRule
from dlc_core.schedule.rules.gpu.choices import SHARED_LAYOUT
from dlc_core.schedule.rules.gpu.grid import Grid
from dlc_core.schedule.rules.gpu.heuristics import TILES
from dlc_core.schedule.rules.stages import loops_that_read, marked_stages
from dlc_core.schedule.schedule import Schedule
from dlc_core.support.record import record
from dlc_core.target.description import Description
from dlc_core.tir.stmt import PrimFunc


@record(frozen=True)
class TwoPassAttentionRule(ScheduleRule):
    """The rule for attention in two passes on groups of threads."""

    name: ClassVar[str] = "gpu.attention"
    priority: ClassVar[int] = 120
    decisions: ClassVar[tuple[str, ...]] = (SHARED_LAYOUT.name,)

    def matches(self, func: PrimFunc, machine: Machine) -> bool:
        return isinstance(func.attrs.get(PLAN), TwoPass) and bool(machine.description.thread_axes)

    def apply(self, schedule: Schedule, machine: Machine) -> None:
        _Attend(schedule, machine).run()


class _Attend:
    def __init__(self, s: Schedule, machine: Machine) -> None:
        self.s = s
        self.grid = Grid.of(machine)
        self.banks = machine.description.shared_banks
        self.stage = marked_stages(s, STAGE)
        self.plan: TwoPass = s.func.attrs[PLAN]
        if not self._fits(machine.description):
            raise ScheduleError("the tile of the attention does not fit this machine")

    def _fits(self, facts: Description) -> bool:
        products, values = (self.s.get(self.stage[name]) for name in ("products", "values"))
        size, features = (const_value(b.axes[-1].dom.extent) for b in (products, values))
        if size is None or features is None:
            return False
        return two_pass_fits(self.plan, Sizes(None, None, size, features), facts)

    def run(self) -> None:
        s, stage, plan = self.s, self.stage, self.plan
        (out,) = s.get_output_blocks()
        kept = {out, *stage.values()} - {stage["result"]}
        for handle in s.get_blocks():
            if handle != out and handle not in kept:
                s.compute_inline(handle)
        *heads, row, feature = loops_that_read(s, out, stage["weighted"])
        tiles, ty, i = s.split(row, [None, plan.thread_rows, plan.rows // plan.thread_rows])
        tx, j = s.split(feature, [plan.thread_columns, None])
        s.reorder(*heads, tiles, ty, tx, i, j)
        thread = s.fuse(ty, tx)
        s.bind(thread, self.grid.threads)
        # The second loop computes the scores again and weights the values with them.
        first = self._duplicate_scores()
        self._mix(thread, i, j)
        self._running_maxima(tiles, first)
        self._queries(tiles)
        s.compact_buffers()
        s.bind(s.fuse(*heads, tiles) if heads else tiles, self.grid.groups)

    def _duplicate_scores(self) -> Mapping[str, BlockRV]:
        """Duplicate the stages that the maxima and sums read."""
        s, stage, made = self.s, self.stage, {"row_max": self.stage["row_max"]}
        for name, user in (("scores", "row_max"), ("products", "scores"), ("keys", "products")):
            made[name] = s.duplicate(stage[name], [made[user]])
        return made

    # Both loops over keys

    def _keys(self, handle: BlockRV, panel: LoopRV) -> None:
        """Load a panel of keys or values to shared memory by all threads."""
        self.s.set_scope(handle, 0, "shared")
        self._pad_rows(handle)
        self.s.compute_at(handle, panel)
        self._fill(handle)

    def _pad_rows(self, handle: BlockRV, axis: int = -2) -> None:
        """Pad rows to avoid bank conflicts."""
        buffer = self.s.get(handle).writes[0].buffer
        offset, width = TILES.padding // 4, const_value(buffer.shape[-1])
        if width is not None and width > offset and SHARED_LAYOUT.choose("padded") == "padded":
            self.s.storage_align(handle, 0, buffer.ndim + axis, min(self.banks, width), offset)

    def _fill(self, handle: BlockRV) -> None:
        """Distribute a copy over all threads, so that neighbouring threads copy neighbouring elements."""
        s = self.s
        loops = s.get_loops(handle)[-len(s.get(handle).axes) :]
        _, thread = s.split(s.fuse(*loops), [None, self.plan.threads])
        s.bind(thread, self.grid.threads)

    def _products(self, stage: Mapping[str, BlockRV], at: LoopRV, panel: LoopRV) -> None:
        """Compute the products and scores of a thread in registers."""
        s = self.s
        for name in ("scores", "products"):
            s.set_scope(stage[name], 0, "local")
            s.compute_at(stage[name], at)
        *_, i, _, j, x = s.get_loops(stage["products"])
        s.reorder(x, i, j)
        init = s.decompose_reduction(stage["products"], x)
        scored = s.get_loops(stage["scores"])
        for loop in (i, j, *s.get_loops(init)[-3:], *scored[-3:]):
            s.unroll(loop)
        self._keys(stage["keys"], panel)

    # Results

    def _mix(self, thread: LoopRV, i: LoopRV, j: LoopRV) -> None:
        s, stage, plan = self.s, self.stage, self.plan
        weighted = stage["weighted"]
        s.set_scope(weighted, 0, "local")
        s.compute_at(weighted, thread)
        *_, own_i, own_j, panel, key = s.get_loops(weighted)
        s.trim(panel)
        s.reorder(panel, key, own_i, own_j)
        init = s.decompose_reduction(weighted, panel)
        for loop in (own_i, own_j, *s.get_loops(init)[-2:], i, j):
            s.unroll(loop)
        weights = stage["weights"]
        s.set_scope(weights, 0, "shared")
        self._pad_rows(weights, -3)
        s.compute_at(weights, panel)
        *_, row, _, column = s.get_loops(weights)
        ty, wi = s.split(row, [plan.thread_rows, None])
        tx, wj = s.split(column, [plan.thread_columns, None])
        s.reorder(ty, tx, wi, wj)
        own = s.fuse(ty, tx)
        s.bind(own, self.grid.threads)
        s.unroll(wi)
        s.unroll(wj)
        self._products(stage, own, panel)
        self._keys(stage["values"], panel)

    # Maxima and sums

    def _running_maxima(self, group: LoopRV, stage: Mapping[str, BlockRV]) -> None:
        s, plan = self.s, self.plan
        row_max = stage["row_max"]
        *_, column = s.get_loops(row_max)
        part, _ = s.split(column, [plan.thread_columns, None])
        partial = s.rfactor(part, 0)
        for handle in (row_max, partial):
            for number in (0, 1):
                s.set_scope(handle, number, "shared")
        copies = [s.cache_write(partial, number, "local") for number in (0, 1)]
        s.compute_at(row_max, group)
        *_, query, _ = s.get_loops(row_max)
        for handle in (*copies, partial):
            s.compute_at(handle, group)
        block = s.get(partial)
        own = s.get_loops(partial)[-len(block.axes) :]
        panel, column = (loop for loop, axis in zip(own, block.axes, strict=True) if axis.kind == "reduce")
        *units, row, part = (loop for loop in own if loop not in (panel, column))
        ty, own_row = s.split(row, [plan.thread_rows, None])
        s.reorder(*units, ty, part, panel, own_row, column)
        thread = s.fuse(ty, part)
        s.bind(thread, self.grid.threads)
        for copy in copies:
            s.reverse_compute_at(copy, thread)
        s.trim(panel)
        init = s.decompose_reduction(partial, panel)
        self._products(stage, panel, panel)
        s.bind(query, self.grid.threads)
        for handle in (init, partial, *copies):
            own = s.get_loops(handle)
            for loop in own[own.index(thread) + 1 :]:
                if loop != panel:
                    s.unroll(loop)

    def _queries(self, group: LoopRV) -> None:
        """Load the queries of a tile to shared memory."""
        s, handle = self.s, self.stage["queries"]
        s.set_scope(handle, 0, "shared")
        self._pad_rows(handle)
        s.compute_at(handle, group)
        self._fill(handle)


__all__ = ["TwoPassAttentionRule"]
