"""The loop nest of a GEMM or convolution: register tiles over the loops of the output, as a plan says.

A symbolic number of rows or columns is split into whole tiles and tails. Loops over tiles are peeled if their
last tile is partial. With K blocking, all tiles of a panel sum one block of K before the next block.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

from dlc_core.arith import Analyzer
from dlc_core.diag import ScheduleError
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.expr import Expr, as_expr, const_value
from dlc_core.schedule.handles import BlockRV, LoopRV
from dlc_core.schedule.rules.analysis import (
    Contraction,
    parallelize,
)
from dlc_core.schedule.rules.base import Machine
from dlc_core.schedule.rules.cpu.columns import store_transposed
from dlc_core.schedule.rules.cpu.gemm_decisions import PADDING
from dlc_core.schedule.rules.cpu.gemm_plan import (
    PANELS_FIRST,
    PANELS_IN_BATCH,
    TILES_FIRST,
    GemmPlan,
)
from dlc_core.schedule.rules.cpu.heuristics import GEMM
from dlc_core.schedule.rules.cpu.panels import NestHandles, prefetch_panel
from dlc_core.schedule.rules.cpu.tails import never_negative
from dlc_core.schedule.rules.cpu.vector import vectorize_columns
from dlc_core.schedule.schedule import Schedule
from dlc_core.support.record import record
from dlc_core.target.description import Dot
from dlc_core.tir.matrix import MatrixUnit
from dlc_core.tir.stmt import IterVar, Store

NUMBERS_OF_BYTE = 4
"""The largest number of low-bit weights in a byte."""


@record(frozen=True)
class _Part:
    """A part of the domain, with tiles of one size."""

    rows: LoopRV | None
    height: int
    column: LoopRV
    width: int
    out: BlockRV


class TileNest:
    """The loop nest of one contraction."""

    def __init__(
        self, schedule: Schedule, machine: Machine, found: Contraction, block: BlockRV | None = None
    ) -> None:
        """`block` is the block of the contraction, or a copy of it."""
        self.s = schedule
        self.machine = machine
        self.found = found
        self.block = block or BlockRV(found.block.name)
        out = found.block.body
        assert isinstance(out, Store)
        self.lanes = machine.lanes(out.buffer.dtype.bits)
        self.digits = False
        self.transposed = False
        """Whether tiles are stored transposed (`columns.py`)."""
        self.dot: Dot | None = None
        self.unit: MatrixUnit | None = None
        self.unit_nests: list[tuple[LoopRV, ...]] = []
        """Loops over rows, columns and K that a tile unit will compute."""
        self.dot_loops: list[LoopRV] = []
        """Loops over columns that dot products will compute."""
        self.packed: Buffer | None = None
        """The packed right-hand side, if it is packed."""
        self.rhs_copy: BlockRV | None = None
        """The block that copies a transposed right-hand side, which is not scheduled yet."""
        self.parts = 1
        """The parts of the columns that are packed separately."""

    def _position(self, axis: IterVar) -> int:
        return [a.var for a in self.found.block.axes].index(axis.var)

    def apply(self, plan: GemmPlan, out: BlockRV, rows: LoopRV | None, column: LoopRV) -> None:
        """Tile the output loops and compute the contraction in each tile."""
        self.plan = plan
        s = self.s
        s.plans.append(plan)
        parts = self._parts(out, rows, column, plan)
        blocks = [self.block, *(s.duplicate(self.block, [part.out]) for part in parts[1:])]
        for part, block in zip(parts, blocks, strict=True):
            names = NestHandles(part.rows, None, part.column, block, part.out)
            full = as_expr(1)
            if part.rows is not None and part.height > 1:
                full = s.extent(part.rows) // part.height
                known = const_value(s.extent(part.rows))
                even = bool(known) and self.unit is None  # a tile unit takes as long for fewer rows
                if known and even:
                    full = as_expr(known % -(-known // part.height))
                tiles, row = s.split(part.rows, [None, part.height], tail="balanced" if even else "shrink")
                names = NestHandles(tiles, row, part.column, block, part.out)
            self._tiled(names, part.width, part.height, full)

    def _parts(self, out: BlockRV, rows: LoopRV | None, column: LoopRV, plan: GemmPlan) -> list[_Part]:
        """Split the domain into parts with one tile size each.

        A symbolic domain has whole tiles and tails: shorter tiles of rows, single rows, single columns.
        """
        s = self.s
        tile = plan.tile
        width = tile.vectors * self.lanes
        parts: list[_Part] = []
        if rows is not None and const_value(s.extent(rows)) is None:
            for height in plan.tails:
                loop = s.get_for(rows)
                if const_value(Analyzer().simplify(loop.extent // height)) is not None:
                    continue  # a known number of rows, usually none
                end = loop.begin + loop.extent - loop.extent % height
                if parts and not never_negative(end):
                    continue  # the rows of the rest may not exist, so each would need a test
                main, rest = s.partition(rows, [end])
                parts.append(_Part(main.loop, height, column, width, out))
                rows, column, out = rest.loop, rest[column], rest[out]
            parts.append(_Part(rows, 1, column, width, out))
        else:
            parts.append(_Part(rows, tile.rows, column, width, out))
        columns = const_value(s.extent(column))
        whole = columns is not None and (columns % width == 0 or columns < width)
        if whole or width == 1 or (columns is not None and not self.digits):
            return parts
        # If columns are digits of an axis, regions are exact only if no panel crosses the end of that axis.
        last = 1 if columns is None else columns % width
        cut = []
        for part in parts:
            if part.rows is not None:
                s.reorder(part.column, part.rows)
            end = s.extent(part.column) // width * width
            main, rest = s.partition(part.column, [end])
            cut.append(part)
            cut.append(
                _Part(
                    None if part.rows is None else rest[part.rows],
                    part.height,
                    rest.loop,
                    last,
                    rest[part.out],
                )
            )
        return cut

    def _tiled(self, names: NestHandles, width: int, height: int, full_tiles: Expr) -> None:
        s = self.s
        own = (names.tiles, names.row, names.column)
        outer = [loop for loop in s.get_loops(names.out) if loop not in own]
        full_panels = s.extent(names.column) // width
        panels, column = s.split(names.column, [None, width], tail="shrink")
        names = replace(names, column=column)
        if names.tiles is not None:
            names = replace(names, number=const_value(s.extent(names.tiles)))
        inner = [column] if names.row is None else [names.row, column]
        tiles = [] if names.tiles is None else [names.tiles]
        nest = {
            PANELS_FIRST: [panels, *outer, *tiles],
            PANELS_IN_BATCH: [*outer, panels, *tiles],
            TILES_FIRST: [*outer, *tiles, panels],
        }[self.plan.loop_order]
        # Loops that contain other tilings too keep their position.
        shared = [loop for loop in outer if self._is_shared(loop, names.out)]
        free = [loop for loop in nest if loop not in shared]
        s.reorder(*free, *inner)
        steps = 0 if names.tiles is None else self.plan.k_block
        s.compute_at(names.block, panels if steps else free[-1])
        s.set_scope(names.block, 0, "local")
        threads = self.plan.threads
        if threads:
            parallelize(s, [loop for loop in s.get_loops(names.out) if loop not in inner])
        # Peeling a loop copies the loops inside, so the outermost is peeled first.
        cuts = [("panels", full_panels), ("tiles", full_tiles)]
        if names.tiles in nest and nest.index(names.tiles) < nest.index(panels):
            cuts.reverse()
        copies = [replace(names, panels=panels)]
        for loop, full in cuts:
            copies = [peeled for copy in copies for peeled in self._peel(copy, loop, full)]
            if loop == "panels" and steps:
                copies = [copy for copy in copies if not self._block_k(copy, height, full_tiles, steps)]
        for copy in copies:
            if threads:
                self._parallelize_rest(copy)
            self._schedule_tile(copy)

    def _parallelize_rest(self, names: NestHandles) -> None:
        """Parallelise the tiles of rows if peeling left a parallel loop with one iteration."""
        s = self.s
        loops = [loop for loop in s.get_loops(names.out) if loop not in (names.row, names.column)]
        for loop in loops:
            if s.get_for(loop).kind == "parallel" and const_value(s.extent(loop)) == 1:
                s.serial(loop)
        parallelize(s, loops)

    def _is_shared(self, loop: LoopRV, out: BlockRV) -> bool:
        """Whether a loop contains more than one tiling."""
        return any(block != out for block in self.s.get_child_blocks(loop))

    def _peel(self, names: NestHandles, which: str, full: Expr) -> Iterator[NestHandles]:
        """Peel a partial last tile off a loop: yield the nest of full tiles, then that of the last one."""
        s = self.s
        loop, inner = (names.panels, names.column) if which == "panels" else (names.tiles, names.row)
        if loop is None or inner is None or const_value(s.extent(inner)) is not None:
            yield names
            return
        for copy in s.partition(loop, [full]):
            yield names.within(copy)

    def _schedule_tile(self, names: NestHandles) -> None:
        """Schedule the registers, vectors and reduction of one tile."""
        s = self.s
        spatial, reduction = self._own_loops(names.block)
        within = []
        by_unit = self.unit is not None and names.row is not None
        if self.dot is not None and not by_unit:
            reduction[-1], member = s.split(reduction[-1], [None, self.dot.group])
            within.append(member)
        s.reorder(*reduction, *spatial, *within)
        if self.dot is None:
            position = self._position(self.found.n)
            if position >= len(spatial):
                raise ScheduleError(f"the axis {self.found.n.var.name!r} of the contraction has no loop")
            self._fill_vectors(spatial[position])
        if self.packed is not None:
            prefetch_panel(s, self.plan.prefetch, self.packed.name, reduction, names)
        single = names.row is None or const_value(s.extent(names.row)) == 1
        if self.plan.partial_sums and single:
            self._sum_partially(names.block, reduction[0], spatial, self.plan.partial_sums)
        else:
            self._accumulate(names.block, reduction, spatial, by_unit)
        if not (self.transposed and store_transposed(s, names, self.machine, self.lanes)):
            self._registers([names.column] if names.row is None else [names.row, names.column])

    def _block_k(self, names: NestHandles, height: int, full_tiles: Expr, count: int) -> bool:
        """Block K by `count` iterations of the outermost reduction loop for all tiles of a panel.

        Returns False if threads are distributed over tiles, because K cannot be blocked then.
        """
        s = self.s
        assert names.panels is not None
        assert names.tiles is not None
        if self.machine.workers > 1 and const_value(s.extent(names.panels)) == 1:
            s.compute_at(names.block, names.tiles)
            return False
        loops, reduction = self._own_loops(names.block)
        chunk = s.split(reduction[0], [None, count], tail="exact")[0] if count > 1 else reduction[0]
        part = s.rfactor(chunk, 0)
        *spatial, chunk = s.get_loops(names.block)[-len(loops) - 1 :]
        rows = spatial.pop(self._position(self.found.m[-1]))
        *outer, column = spatial
        s.reorder(chunk, *outer, rows, column)
        init = s.decompose_reduction(names.block, chunk)
        tiles, row = s.split(rows, [None, height], tail="balanced")
        s.compute_at(part, tiles)
        s.set_scope(part, 0, "local")
        inner = replace(names, tiles=tiles, row=row, column=column, block=part, panels=chunk)
        for nest in self._peel(inner, "tiles", full_tiles):
            (*within, one), steps = self._own_loops(nest.block)
            s.reorder(*steps, one, *within)
            if self.packed is not None:
                prefetch_panel(s, self.plan.block_prefetch, self.packed.name, steps, nest)
            self._accumulate(nest.block, steps, [one, *within])
            assert nest.row is not None
            self._registers([nest.row, nest.column])
        for block in (init, names.out):
            vectorize_columns(s, s.get_loops(block)[-1], self.lanes)
        return True

    def _own_loops(self, handle: BlockRV) -> tuple[list[LoopRV], list[LoopRV]]:
        """Return the spatial and the reduction loops of a block, which has one loop per axis."""
        axes = self.s.get(handle).axes
        own = list(zip(self.s.get_loops(handle)[-len(axes) :], axes, strict=True))
        return [loop for loop, axis in own if axis.kind != "reduce"], [
            loop for loop, axis in own if axis.kind == "reduce"
        ]

    def _accumulate(
        self, block: BlockRV, reduction: Sequence[LoopRV], spatial: Sequence[LoopRV], by_unit: bool = False
    ) -> None:
        """Keep the accumulators of a tile in registers."""
        s = self.s
        init = s.decompose_reduction(block, reduction[0])
        if self.dot is None:
            self._skip_padding(reduction)
            self._unroll_products(reduction[-1:])
            self._registers(spatial)
        elif by_unit:
            self.unit_nests.append((*spatial[-2:], reduction[-1]))
        else:
            for loop in spatial[:-1]:
                s.unroll(loop)
            self.dot_loops.append(spatial[-1])
            self._unroll_products(reduction)
        if self.found.rhs.other_factors:
            self._unpack(reduction[-1])
        self._registers(s.get_loops(init)[-len(spatial) :])

    def _unroll_products(self, reduction: Sequence[LoopRV]) -> None:
        """Unroll the innermost reduction loops around sums of integers, so that a body has several products
        of each. Loops of floats have larger tiles, which amortise loop control.
        """
        facts, sums = self.machine.description, self.found.block.body
        assert isinstance(sums, Store)
        if not facts.single_issue or facts.short_code or sums.buffer.dtype.is_float:
            return
        room = GEMM.unrolled_products
        for loop in reversed(reduction):
            extent = const_value(self.s.extent(loop))
            if extent is None or room < 2:
                return
            count = max(n for n in range(1, room + 1) if extent % n == 0)
            if count == extent:
                self.s.unroll(loop)
            elif count > 1:
                self.s.unroll(self.s.split(loop, [None, count], tail="exact")[1])
            if count < extent:
                return
            room //= count

    def _fill_vectors(self, column: LoopRV) -> None:
        """Compute whole vectors of columns if packed weights have them and the tail would take several."""
        extent = const_value(self.s.extent(column))
        if self.packed is None or self.parts > 1 or self.digits or extent is None or self.lanes < 2:
            return
        if (extent % self.lanes).bit_count() > 1:
            # Narrower vectors are right too, so that a refusal must not refuse the whole rule.
            with suppress(ScheduleError):
                self.s.widen(column, -(-extent // self.lanes) * self.lanes)

    def _skip_padding(self, reduction: Sequence[LoopRV]) -> None:
        """Skip taps outside of the input, if they are many; the innermost loop has no test."""
        s = self.s
        for loop in reduction[:-1]:
            share = s.zero_share(loop)
            preferred = "skipped" if share * GEMM.skipped_share >= 1 else "computed"
            if share and PADDING.choose(preferred) == "skipped":
                s.skip_zeros(loop)

    def _sum_partially(
        self, block: BlockRV, reduction: LoopRV, spatial: Sequence[LoopRV], steps: int
    ) -> None:
        """Sum blocks of K in registers, then add the partial sums."""
        s = self.s
        chunk, _ = s.split(reduction, [None, steps], tail="exact")
        part = s.rfactor(chunk, 0)
        rank = len(s.get(part).axes)
        *own, chunk = s.get_loops(block)[1 - rank :]
        s.reorder(chunk, *own)
        s.compute_at(part, chunk)
        s.set_scope(part, 0, "local")
        *within, one, step = s.get_loops(part)[-rank:]
        s.reorder(step, one, *within)
        self._accumulate(part, [step], [one, *within])
        self._accumulate(block, [chunk], own)

    def _unpack(self, numbers: LoopRV) -> None:
        """Unpack all low-bit weights of a byte from one load."""
        extent = const_value(self.s.extent(numbers))
        if extent is not None and extent <= NUMBERS_OF_BYTE:
            self.s.unroll(numbers)

    def _registers(self, loops: Sequence[LoopRV]) -> None:
        *outer, column = loops
        for loop in outer:
            self.s.unroll(loop)
        vectorize_columns(self.s, column, self.lanes)


__all__ = ["TileNest"]
