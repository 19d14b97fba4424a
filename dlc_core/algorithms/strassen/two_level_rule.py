"""GEMM by two levels of Strassen's algorithm (see `two_level.py`).

    for range of panels (parallel):
      rows: sums of second-level submatrices of the left-hand side  vectors over K
      for panel of columns of all second-level submatrices:
        for each of the seven outer products:
          for each of its seven products:                          as a plain GEMM: register tiles
            first tile: factors = vector(rhs) - vector(rhs) - …; accumulators += broadcast(rows) * factors
            others: accumulators += broadcast(rows) * factors
          submatrices: sums of products
        results: sums of submatrices, with the epilogue            vectors over columns

The factors of one product stay in L1 or L2: the first tile computes them, the others read them. The other
tiles also prefetch the submatrices of the next outer product, which the first tile will read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from dlc_core.algorithms.strassen.choice import TILE
from dlc_core.algorithms.strassen.rule import Submatrices
from dlc_core.algorithms.strassen.submatrices import PRODUCTS, STAGE, Submatrix, minuend, subtrahend
from dlc_core.ir.expr import Expr, ExprLike, const_value, free_vars, minimum
from dlc_core.schedule.handles import BlockRV, LoopRV
from dlc_core.schedule.index_map import IndexMap
from dlc_core.schedule.rules.analysis import Contraction, inline_epilogue
from dlc_core.schedule.rules.base import Machine, ScheduleRule
from dlc_core.schedule.rules.cpu.core import FLOAT
from dlc_core.schedule.rules.cpu.gemm_decisions import PANEL_DECISIONS, PARTIAL_SUMS
from dlc_core.schedule.rules.cpu.threads import THREADS
from dlc_core.schedule.rules.cpu.vector import vectorize_columns
from dlc_core.schedule.rules.stages import stage_names
from dlc_core.schedule.schedule import Schedule
from dlc_core.support.record import record
from dlc_core.tir.stmt import PrimFunc

STAGES = frozenset(("sums", "rows", "weights", "products", "submatrices", "results"))


@record(frozen=True)
class TwoLevelStrassenRule(ScheduleRule):
    """The rule for kernels whose blocks are marked as the stages of Strassen's algorithm on two levels."""

    name: ClassVar[str] = "cpu.strassen_two_level"
    priority: ClassVar[int] = 111
    decisions: ClassVar[tuple[str, ...]] = (TILE.name, *PANEL_DECISIONS, PARTIAL_SUMS.name, THREADS.name)

    def matches(self, func: PrimFunc, machine: Machine) -> bool:
        return not machine.description.thread_axes and set(stage_names(func, STAGE)) == STAGES

    def apply(self, schedule: Schedule, machine: Machine) -> None:
        _TwoLevelParts(schedule, machine).run()


class _TwoLevelParts(Submatrices):
    levels = 2

    def run(self) -> None:
        s = self.s
        out = inline_epilogue(s, self.stage.values(), self.stage["results"])
        found = self.contraction("products")
        packed = self.pack()
        *rows, column = s.get_loops(out)
        row = s.fuse(*rows) if len(rows) > 1 else rows[0]
        column_half, own_column_half, panel, column = s.split(column, [2, 2, None, self.panel], tail="exact")
        row_half, own_row_half, row = s.split(row, [2, 2, self.half])
        s.reorder(panel, own_row_half, own_column_half, row_half, column_half, row, column)
        panel_range, panel = self.distribute_panels(panel)
        s.compute_at(self.stage["submatrices"], panel)
        product, submatrix, i, n = s.get_loops(self.stage["submatrices"])[-4:]
        s.reorder(product, i, n, submatrix)
        others = self._products(found, product)
        vectors, lane = s.split(n, [None, self.lanes], tail="exact")
        s.reorder(vectors, submatrix, lane)
        s.unroll(submatrix)
        s.vectorize(lane)
        self._sums(panel_range)
        s.unroll(row_half)
        s.unroll(column_half)
        vectorize_columns(s, column, self.lanes)
        if packed is not None:
            self._prefetch_next(
                packed, others, [loop for loop in (panel_range, panel) if loop is not None], product
            )
        self.parallelize()

    def _products(self, found: Contraction, at: LoopRV) -> list[BlockRV]:
        """Compute the products of an outer product; return the blocks of all tiles but the first."""
        s, weights = self.s, self.stage["weights"]
        users = self.products(self.stage["products"], found, at)
        first, others = users[0], users[1:]
        tiles = self._tiles(first)
        if const_value(s.extent(tiles)) != 1:
            first_tile, rest = s.partition(tiles, [s.get_for(tiles).begin + 1])
            first, others = first_tile[first], [rest[first], *others]
        s.compute_at(weights, self.reduction(first))
        vectorize_columns(s, s.get_loops(weights)[-1], self.lanes)
        return others

    def _tiles(self, user: BlockRV) -> LoopRV:
        """Return the loop over tiles of rows of a block."""
        row = self.s.get(user).values[-3]
        return next(loop for loop in self.s.get_loops(user) if loop.var in free_vars(row))

    def _prefetch_next(
        self, buffer: str, users: list[BlockRV], panels: list[LoopRV], product: LoopRV
    ) -> None:
        """Prefetch the submatrices of the next outer product, which may belong to the next panel.

        Tiles that do not read the right-hand side do this, one submatrix per inner product.
        """
        s, count = self.s, self.columns // 4 // self.panel
        line = self.machine.description.cache_line // FLOAT

        def index_map(submatrix_of: Callable[[Expr], Submatrix], lane: int) -> IndexMap:
            def index(*counts: Expr) -> tuple[ExprLike, ...]:
                *panel, f, g, k = counts
                number = panel[0] if len(panel) == 1 else panel[0] * self.panels_per_thread + panel[1]
                row, column = submatrix_of((f + 1) % PRODUCTS)
                own = minimum(g, 3)
                number = minimum(number + (f + 1) // PRODUCTS, count - 1)
                return (
                    (2 * column + own % 2) * count + number,
                    (2 * row + own // 2) * self.depth + k,
                    lane,
                )

            return IndexMap.of(index, len(panels) + 3)

        for user, submatrix_of in zip((users[:1] + users[-1:]), (minuend, subtrahend), strict=False):
            inner = self.reduction(user)
            own = s.get_loops(user)[len(panels) + 2]
            for lane in range(0, self.panel, line):
                s.prefetch_at(inner, buffer, [*panels, product, own, inner], index_map(submatrix_of, lane))

    def _sums(self, panel_range: LoopRV | None) -> None:
        """Compute the second-level sums of the left-hand side from first-level sums, row by row."""
        s = self.s
        rows, sums = self.stage["rows"], self.stage["sums"]
        if panel_range is not None:
            s.compute_at(rows, panel_range)
        self.pad_rows(rows)
        product, _, i, _ = s.get_loops(rows)[-4:]
        s.reorder(i, product)
        s.compute_at(sums, i)
        self.interleave_sums(rows, 1)
        self.interleave_sums(sums)


__all__ = ["TwoLevelStrassenRule"]
