"""Matrix products and convolutions: one rule for every block that sums products of two operands.

    for group of rows, or panel of columns (parallel):
      for panel / tile of rows:
        accumulators = 0                        rows × vectors, in registers over the whole reduction
        for k…: accumulators += broadcast(lhs) * vector(rhs)
        epilogue on the accumulators, one store

The right-hand side, where it is constant, is repacked at compile time as [panel][k…][column in panel], so that the inner loop
streams it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from dlc_core.ir.expr import Expr, ExprLike, Var, const_value
from dlc_core.schedule.handles import BlockRV, Copy, LoopRV
from dlc_core.schedule.layout import IndexMap
from dlc_core.schedule.rules.analysis import (
    Contraction,
    anchor,
    coefficients,
    extent_of,
    inline_pointwise,
    loads_of,
    loop_of,
    same,
)
from dlc_core.schedule.rules.base import Machine, ScheduleRule
from dlc_core.schedule.rules.cpu.maps import schedule_map
from dlc_core.schedule.rules.cpu.tile import Tile, choose
from dlc_core.schedule.rules.cpu.vector import vectorize_columns
from dlc_core.schedule.schedule import Schedule
from dlc_core.tir.stmt import IterVar, PrimFunc, Store

PARALLEL_WORK = 1 << 16
"""Multiply-adds below which a kernel is not worth waking other threads for."""
CHUNKS_PER_THREAD = 4
"""Parts that parallel rows are cut into for each thread, so that a late thread costs little."""


@dataclass(frozen=True)
class ContractionRule(ScheduleRule):
    """See the module's text."""

    name: ClassVar[str] = "cpu.contraction"
    priority: ClassVar[int] = 100

    def matches(self, func: PrimFunc, machine: Machine) -> bool:
        return machine.description.vector_bits > 0 and anchor(func) is not None

    def apply(self, schedule: Schedule, machine: Machine) -> None:
        found = anchor(schedule.func)
        assert found is not None
        _Contract(schedule, machine, found).run()


@dataclass(frozen=True)
class _Names:
    """What the parts of the nest are called in one copy of it."""

    tiles: LoopRV | None
    row: LoopRV | None
    column: LoopRV
    block: BlockRV
    out: BlockRV

    def within(self, copy: Copy) -> _Names:
        return _Names(
            None if self.tiles is None else copy[self.tiles],
            None if self.row is None else copy[self.row],
            copy[self.column],
            copy[self.block],
            copy[self.out],
        )


class _Contract:
    def __init__(self, schedule: Schedule, machine: Machine, found: Contraction) -> None:
        self.s = schedule
        self.machine = machine
        self.found = found
        self.block = BlockRV(found.block.name)
        out = found.block.body
        assert isinstance(out, Store)
        self.lanes = machine.lanes(out.buffer.dtype.bits)
        self.position = {axis.var: i for i, axis in enumerate(found.block.axes)}

    def run(self) -> None:
        s = self.s
        for handle in s.get_producers(self.block):
            schedule_map(s, handle, self.machine)
        if s.get_output_blocks() == [self.block]:
            out = s.cache_write(self.block, 0, "local")
        else:
            out = inline_pointwise(s)
        rows = self._row_loops(out)
        column = loop_of(s, out, self.position[self.found.n.var])
        row_extent = const_value(s.extent(rows[-1])) if rows else 1
        tile = choose(row_extent, extent_of(self.found.n), self.lanes, self.machine.registers)
        self._pack(tile)
        self._nest(out, rows, column, tile)

    # Rows

    def _row_axes(self) -> list[IterVar]:
        return [a for a in self.found.m if extent_of(a) != 1]

    def _row_loops(self, out: BlockRV) -> list[LoopRV]:
        """The output block's row loops, the innermost ones fused while every operand is contiguous over them."""
        s = self.s
        axes = self._row_axes()
        loops = [loop_of(s, out, self.position[a.var]) for a in axes]
        while len(loops) > 1 and self._contiguous(out, axes[-2], axes[-1]):
            inner = loops.pop()
            axes.pop()
            loops[-1] = s.fuse(loops[-1], inner)
        return loops

    def _contiguous(self, out: BlockRV, outer: IterVar, inner: IterVar) -> bool:
        """Whether two row axes are one axis of every operand: the outer's step is the inner's times its extent."""
        factors = self.found.lhs.factors
        if not same(factors[outer.var], factors[inner.var] * inner.dom.extent):
            return False
        block = self.s.get(out)
        assert isinstance(block.body, Store)
        own = [block.axes[self.position[a.var]].var for a in (outer, inner)]
        accesses = [(block.body.buffer, block.body.indices), *((e.buffer, e.indices) for e in loads_of(block))]
        for buffer, indices in accesses:
            steps = coefficients(buffer, indices, own)
            if steps is None or not same(steps[own[0]], steps[own[1]] * inner.dom.extent):
                return False
        return True

    # Packing

    def _pack(self, tile: Tile) -> None:
        """Repack a constant right-hand side into panels of the tile's width."""
        s, found = self.s, self.found
        buffer = found.rhs.load.buffer
        constants = s.func.attrs.get("constants", ())
        if buffer not in s.func.params or s.func.params.index(buffer) not in constants:
            return
        order: list[Var] = []
        for index in found.rhs.load.indices:
            if not isinstance(index, Var) or index not in self.position:
                return
            order.append(index)
        columns = order.index(found.n.var)
        width = tile.vectors * self.lanes
        inner = [order.index(a.var) for a in found.k if a.var in order]
        lead = [i for i in range(len(order)) if i != columns and i not in inner]

        def packed(*indices: Expr) -> tuple[ExprLike, ...]:
            column = indices[columns]
            return (
                *(indices[i] for i in lead), column // width, *(indices[i] for i in inner), column % width,
            )  # fmt: skip

        s.transform_layout(self.block, buffer, IndexMap.of(len(order), packed), pad_value=0)

    # Loops

    def _nest(self, out: BlockRV, rows: list[LoopRV], column: LoopRV, tile: Tile) -> None:
        s = self.s
        outer = [loop for loop in s.get_loops(out) if loop != column and (not rows or loop != rows[-1])]
        panels, column = s.split(column, [None, tile.vectors * self.lanes], tail="shrink")
        names = _Names(None, None, column, self.block, out)
        parallel_rows = self._rows_in_parallel()
        inner = [column]
        nest = [*outer, panels]
        if rows:
            tiles, row = s.split(rows[-1], [None, tile.rows], tail="shrink")
            names = _Names(tiles, row, column, self.block, out)
            inner = [row, column]
            nest = self._order(outer, panels, tiles, parallel_rows)
        s.reorder(*nest, *inner)
        s.compute_at(self.block, nest[-1])
        s.set_scope(self.block, 0, "local")
        if self.machine.description.parallel and self._work() >= PARALLEL_WORK:
            s.parallel(nest[0])
        for in_panel in self._cut(panels, names):
            if in_panel.tiles is None:
                self._inner(in_panel)
                continue
            for in_tile in self._cut(in_panel.tiles, in_panel):
                self._inner(in_tile)

    def _order(
        self, outer: list[LoopRV], panels: LoopRV, tiles: LoopRV, parallel_rows: bool
    ) -> list[LoopRV]:
        """Outer loops, the parallel one first: panels where the weights are larger than the rows, rows elsewhere."""
        if not parallel_rows:
            return [panels, *outer, tiles]
        return [*outer, panels, tiles] if outer else [tiles, panels]

    def _rows_in_parallel(self) -> bool:
        """Whether rows, not panels, are dealt out to threads."""
        if self.found.shared:
            return True
        rows = _product(self._row_axes())
        columns = extent_of(self.found.n)
        return rows is None or columns is None or rows >= columns

    def _work(self) -> int:
        """Multiply-adds, a symbolic extent taken for large."""
        return _product(self.found.block.axes) or PARALLEL_WORK

    def _cut(self, loop: LoopRV, names: _Names) -> Iterator[_Names]:
        """The full iterations of a tiling loop, then the last one where it is cut by the border of the domain."""
        s = self.s
        inner = names.row if loop == names.tiles else names.column
        assert inner is not None
        if const_value(s.extent(inner)) is not None:
            yield names
            return
        full = s.full_tiles(loop, inner)
        copies = s.partition(loop, [full])
        for copy in copies:
            yield names.within(copy)

    def _inner(self, names: _Names) -> None:
        """Registers, vectors and the reduction of one tile."""
        s = self.s
        block_axes = s.get(names.block).axes
        loops = {axis.var: loop for axis, loop in zip(block_axes, self._own_loops(names.block), strict=False)}
        reduction = [loops[a.var] for a in block_axes if a.kind == "reduce" and a.var in loops]
        tile_loops = [loop for loop in self._own_loops(names.block) if loop not in reduction]
        s.reorder(*reduction, *tile_loops)
        init = s.decompose_reduction(names.block, reduction[0])
        for handle in (init, names.block, names.out):
            own = self._own_loops(handle)
            skip = [loop for loop in own if loop in reduction]
            self._tile_loops([loop for loop in own if loop not in skip])

    def _own_loops(self, block: BlockRV) -> list[LoopRV]:
        raise NotImplementedError

    def _tile_loops(self, loops: Sequence[LoopRV]) -> None:
        *outer, column = loops
        for loop in outer:
            self.s.unroll(loop)
        vectorize_columns(self.s, column, self.lanes)


def _product(axes: Sequence[IterVar]) -> int | None:
    total = 1
    for axis in axes:
        size = extent_of(axis)
        if size is None:
            return None
        total *= size
    return total
