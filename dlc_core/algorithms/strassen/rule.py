"""GEMM by one level of Strassen's algorithm (see `op.py`).

    for block of rows                                              if blocks are requested (parallel), or if
                                                                   the number of rows is symbolic; the tail
                                                                   is a plain GEMM
    for range of panels (parallel):
      rows: sums of submatrices of the left-hand side              vectors over K
      for panel of columns of both halves:
        for tile of rows of both halves:
          for each of the seven products:                          accumulators in registers
            …: accumulators += broadcast(rows) * (vector(rhs) + vector(rhs))
          results: sums of products, with the epilogue             vectors over columns

The products of a tile stay in L1. If L2 cannot hold what all tiles of a panel read repeatedly, each product
runs through all rows, tiled like a plain GEMM, before the next one, and the results are computed after the
last.

Each thread computes its own sums of rows, because data that another core has just written is slow to read.
Sums of submatrices of the constant right-hand side are never stored: each tile adds them while it reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import ClassVar

from dlc_core.algorithms.strassen.choice import TILE, Shape, choose_plan
from dlc_core.algorithms.strassen.plan import StrassenPlan
from dlc_core.algorithms.strassen.submatrices import STAGE
from dlc_core.diag import ScheduleError
from dlc_core.ir.expr import Expr, ExprLike, const_value, free_vars
from dlc_core.ir.plan import PLAN
from dlc_core.schedule.handles import BlockRV, LoopRV
from dlc_core.schedule.index_map import IndexMap
from dlc_core.schedule.rules.analysis import Contraction, contraction_of, inline_epilogue, loads_of, reduced
from dlc_core.schedule.rules.base import Machine, ScheduleRule
from dlc_core.schedule.rules.cpu.contraction import ContractionScheduler
from dlc_core.schedule.rules.cpu.core import Core
from dlc_core.schedule.rules.cpu.gemm_decisions import GEMM_DECISIONS
from dlc_core.schedule.rules.cpu.register_tile import Tile, fits
from dlc_core.schedule.rules.cpu.tails import TAILS
from dlc_core.schedule.rules.cpu.threads import THREADS
from dlc_core.schedule.rules.cpu.vector import vectorize_columns
from dlc_core.schedule.rules.stages import has_static_sizes, marked_stages, stage_names, static_extent
from dlc_core.schedule.schedule import Schedule
from dlc_core.support.record import record
from dlc_core.tir.stmt import PrimFunc

STAGES = frozenset(("rows", "weights", "pairs", "singles", "results"))
REST = "rest"
"""The stage of the tail rows, if the number of rows is symbolic."""
PRODUCTS = ("pairs", "singles", REST)
PREFETCH_DISTANCE = MappingProxyType({"pairs": 1, "singles": 2})
"""The prefetch distance, in half panels, of products that run one by one.

Products of two submatrices prefetch one half ahead; those of one submatrix run last and prefetch two halves
ahead.
"""


@record(frozen=True)
class StrassenRule(ScheduleRule):
    """The rule for kernels whose blocks are marked as the stages of Strassen's algorithm on one level."""

    name: ClassVar[str] = "cpu.strassen"
    priority: ClassVar[int] = 110
    decisions: ClassVar[tuple[str, ...]] = (TILE.name, *GEMM_DECISIONS, TAILS.name, THREADS.name)

    def matches(self, func: PrimFunc, machine: Machine) -> bool:
        return not machine.description.thread_axes and set(stage_names(func, STAGE)) - {REST} == STAGES

    def apply(self, schedule: Schedule, machine: Machine) -> None:
        Submatrices(schedule, machine).run()


@record(frozen=True)
class _Loops:
    """The loops around the results: panels, halves of rows and columns, and the loops in a panel."""

    panel: LoopRV
    row_half: LoopRV
    column_half: LoopRV
    row: LoopRV
    column: LoopRV


class Submatrices:
    """The steps of the rule; the rule for two levels uses them too."""

    levels: ClassVar[int] = 1

    def __init__(self, schedule: Schedule, machine: Machine) -> None:
        self.s = s = schedule
        self.machine = machine
        self.stage = marked_stages(s, STAGE)
        bits = s.get(self.stage["results"]).writes[0].buffer.dtype.bits
        self.lanes = machine.lanes(bits)
        self.half, self.depth = (self.extent("rows", axis) for axis in (-2, -1))
        self.columns = columns = self.extent("results", 1)
        self.panels_per_thread = 1
        self.parallel_loop: LoopRV | None = None
        """The loop that will be parallel."""
        parts = 2**self.levels
        self.blocks = self.levels == 1 and len(s.get(self.stage["rows"]).axes) > 3
        rows = parts * self.half if self.blocks else self.extent("results", 0)
        core = Core.of(machine.description, machine.workers, bits)
        self.static_blocks = self.blocks and has_static_sizes(s.func)
        if self.static_blocks:
            core = replace(core, threads=1)
        shape = Shape(rows, parts * self.depth, columns)
        attached = s.func.attrs.get(PLAN)
        preset = attached.chosen if isinstance(attached, StrassenPlan) else None
        found = choose_plan(shape, core, self.levels, preset)
        if found is None:
            raise ScheduleError(
                f"no tile divides {columns // parts} columns", why="they are not whole vectors"
            )
        self.plan = found
        s.plans.append(found)
        self.tile = self.plan.tile
        self.panel = self.tile.vectors * self.lanes

    def extent(self, stage: str, axis: int) -> int:
        return static_extent(self.s, self.stage[stage], axis)

    def run(self) -> None:
        s = self.s
        out = inline_epilogue(s, self.stage.values(), self.stage["results"])
        found = {name: self.contraction(name) for name in PRODUCTS if name in self.stage}
        packed = self.pack()
        *rows, column = s.get_loops(out)
        row = s.fuse(*rows) if len(rows) > 1 else rows[0]
        size = 2 * self.half
        if REST in found:
            whole, rest = s.partition(row, [s.extent(row) // size * size])
            s.decide(whole.loop)
            s.decide(rest.loop)
            self._tail(found[REST], rest.loop, rest[column], rest[out])
        block: LoopRV | None = None
        if self.blocks:
            block, row = s.split(row, [None, size], tail="exact")
        column_half, panel, column = s.split(column, [2, None, self.panel], tail="exact")
        row_half, row = s.split(row, [2, self.half])
        s.reorder(panel, row_half, column_half, row, column)
        panel_range: LoopRV | None = None
        if block is not None and self.static_blocks:
            # One thread computes a block if their number is known.  Usually it has also written the block's
            # part of the left-hand side, so no other thread sums that part.
            several = self.machine.workers > 1 and const_value(s.extent(block)) != 1
            self.parallel_loop = block if several else None
        else:
            panel_range, panel = self.distribute_panels(panel)
        if self.plan.by_tiles:
            self._schedule_by_tiles(out, found, _Loops(panel, row_half, column_half, row, column), packed)
        else:
            for name in PREFETCH_DISTANCE:
                self._schedule_by_panels(name, found[name], panel, packed)
            s.unroll(row_half)
            s.unroll(column_half)
            vectorize_columns(s, column, self.lanes)
        outer_loop = block if panel_range is None else panel_range
        if outer_loop is not None:
            s.compute_at(self.stage["rows"], outer_loop)
        self.pad_rows(self.stage["rows"])
        self.interleave_sums(self.stage["rows"])
        self.parallelize()

    def _schedule_by_tiles(
        self, out: BlockRV, found: Mapping[str, Contraction], loops: _Loops, packed: str | None
    ) -> None:
        """Compute all products of a tile of rows, and their results, before the next tile.

        Each tile prefetches its part of the next panel.
        """
        s, height = self.s, self.tile.rows
        tiles, row = s.split(loops.row, [None, height], tail="balanced")
        vectors, lane = s.split(loops.column, [None, self.lanes], tail="exact")
        s.reorder(tiles, row, vectors, loops.row_half, loops.column_half, lane)
        for loop in (vectors, loops.row_half, loops.column_half):
            s.unroll(loop)
        if self.lanes > 1:
            s.vectorize(lane)
        parts = [(tiles, out)]
        number = -(-self.half // height)
        distance = 2 * self.depth * self.panel
        taller = self.half % number
        if taller:
            _, rest = s.partition(tiles, [taller])
            parts.append((rest.loop, rest[out]))
        for name in PREFETCH_DISTANCE:
            blocks = [self.stage[name], *(s.duplicate(self.stage[name], [part]) for _, part in parts[1:])]
            for (tile, _), block in zip(parts, blocks, strict=True):
                for user in self.products(block, found[name], tile):
                    inner = self.reduction(user)
                    if name == "pairs":
                        self.add_in_tile(self.stage["weights"], user, inner)
                    if packed is not None:
                        s.prefetch(inner, packed, distance, [tile], [number])

    def _tail(self, found: Contraction, row: LoopRV, column: LoopRV, out: BlockRV) -> None:
        """Compute the tail rows by a plain GEMM."""
        # Loops start at 0, so that bounds proofs need only the extents.
        row, _ = self.s.split(row, [None, 1], tail="exact")
        registers = self.machine.registers
        height = max(n for n in range(1, registers) if fits(n, self.tile.vectors, registers))
        tile = Tile(height, self.tile.vectors)
        ContractionScheduler(self.s, self.machine, found).nest(out, row, column, tile)

    def distribute_panels(self, panel: LoopRV) -> tuple[LoopRV | None, LoopRV]:
        """Add a parallel loop around the panels, which gives each thread neighbouring panels, if there are
        several.
        """
        s, threads = self.s, self.machine.workers
        count = const_value(s.extent(panel))
        if threads < 2 or count is None or count < 2:
            return None, panel
        self.panels_per_thread = -(-count // threads)
        panel_range, panel = s.split(panel, [None, self.panels_per_thread], tail="shrink")
        self.parallel_loop = panel_range
        return panel_range, panel

    def parallelize(self) -> None:
        """Parallelise the chosen loop at the end, because legality is proved for the final nest."""
        if self.parallel_loop is not None:
            self.s.parallel(self.parallel_loop)

    def pack(self) -> str | None:
        """Pack the right-hand side into panels at compile time; return its name if that is possible."""
        s, panel = self.s, self.panel
        buffer = loads_of(s.get(self.stage["weights"]))[0].buffer
        if buffer not in s.func.params:
            return None
        if s.func.params.index(buffer) not in s.func.attrs.get("constants", ()):
            return None

        def packed(*indices: Expr) -> tuple[ExprLike, ...]:
            k, n = indices
            return (n // panel, k, n % panel)

        s.transform_layout(self.stage["weights"], buffer.name, IndexMap.of(packed, 2), pad_value=0)
        return buffer.name

    def contraction(self, name: str) -> Contraction:
        found = contraction_of(self.s.get(self.stage[name]))
        if found is None:
            raise ScheduleError(f"block {self.stage[name].name!r} is no product of two operands")
        return found

    def _schedule_by_panels(self, name: str, found: Contraction, panel: LoopRV, packed: str | None) -> None:
        """Compute some of the products for all rows and one panel of columns."""
        for user in self.products(self.stage[name], found, panel):
            inner = self.reduction(user)
            if name == "pairs":
                self.add_in_tile(self.stage["weights"], user, inner)
            if packed is not None:
                distance = PREFETCH_DISTANCE[name] * self.depth * self.panel
                tiles = self.tiles(user)
                trip_counts = [-(-self.half // self.tile.rows)] * len(tiles)
                self.s.prefetch(inner, packed, distance, tiles, trip_counts)

    def tiles(self, user: BlockRV) -> list[LoopRV]:
        """Return the loop over tiles of rows of a block, if it has one."""
        s, row = self.s, self.s.get(user).values[-3]
        used = free_vars(row)
        return [loop for loop in s.get_loops(user) if loop.var in used][:-1]

    def products(self, block: BlockRV, found: Contraction, at: LoopRV) -> list[BlockRV]:
        """Tile the products of a stage inside a loop; return the blocks that sum them."""
        s = self.s
        before = s.get_blocks()
        products = s.cache_write(block, 0, "local")
        s.compute_at(products, at)
        row, column = s.get_loops(products)[-2:]
        machine = self.machine
        if self.parallel_loop is not None:
            machine = replace(machine, description=replace(machine.description, parallel=False))
        ContractionScheduler(s, machine, found, block).nest(products, row, column, self.tile)
        made = [block, *(other for other in s.get_blocks() if other not in before)]
        return [user for user in made if reduced(s.get(user))]

    def add_in_tile(self, weights: BlockRV, user: BlockRV, inner: LoopRV) -> None:
        """Compute differences of submatrices of the right-hand side while a tile reads them."""
        s = self.s
        users = s.get_consumers(weights)
        copy = weights if users == [user] else s.duplicate(weights, [user])
        s.compute_at(copy, inner)
        s.set_scope(copy, 0, "local")
        vectorize_columns(s, s.get_loops(copy)[-1], self.lanes)

    def reduction(self, handle: BlockRV) -> LoopRV:
        """Return the reduction loop of a block."""
        block = self.s.get(handle)
        place = next(i for i, axis in enumerate(block.axes) if axis.kind == "reduce")
        return next(loop for loop in self.s.get_loops(handle) if loop.var is block.values[place])

    def pad_rows(self, rows: BlockRV) -> None:
        """Pad rows to an odd number of cache lines.

        A tile reads one element of each of its rows in every step; padding maps the rows to different cache
        sets.
        """
        s = self.s
        line = self.machine.description.cache_line // s.get(rows).writes[0].buffer.dtype.itemsize
        s.storage_align(rows, 0, len(s.get(rows).axes) - 2, 2 * line, line)

    def interleave_sums(self, handle: BlockRV, number: int = 0) -> None:
        """Compute all sums of a vector before the next vector, so that each submatrix is loaded once."""
        s = self.s
        own = s.get_loops(handle)[-len(s.get(handle).axes) :]
        sums, row, k = own[number], *own[-2:]
        lanes, depth = self.lanes, const_value(s.extent(k))
        assert isinstance(depth, int)
        while depth % lanes:
            lanes //= 2
        vectors, lane = s.split(k, [None, lanes], tail="exact")
        s.reorder(row, vectors, sums, lane)
        s.unroll(sums)
        if lanes > 1:
            s.vectorize(lane)


__all__ = ["StrassenRule", "Submatrices"]
