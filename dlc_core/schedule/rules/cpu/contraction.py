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

from dlc_core.ir.expr import Expr, ExprLike, Var, as_expr, const_value, free_vars
from dlc_core.schedule.handles import BlockRV, Copy, LoopRV
from dlc_core.schedule.index_map import IndexMap
from dlc_core.schedule.rules.analysis import (
    Contraction,
    anchor,
    extent_of,
    inline_pointwise,
    loads_of,
    loop_of,
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

    def run(self) -> None:
        s = self.s
        for handle in s.get_producers(self.block):
            schedule_map(s, handle, self.machine)
        if s.get_output_blocks() == [self.block]:
            out = s.cache_write(self.block, 0, "local")
        else:
            out = inline_pointwise(s)
        columns = self._loops_for(out, self.found.n)
        row = self._rows(out)
        row_extent = 1 if row is None else const_value(s.extent(row))
        tile = choose(row_extent, extent_of(self.found.n), self.lanes, self.machine.registers)
        self._pack(tile)
        self._nest(out, row, columns[-1], tile)

    # Which loops of the output are rows and columns

    def _loops_for(self, out: BlockRV, axis: IterVar) -> list[LoopRV]:
        """The loops of the output block that a spatial axis of the contraction runs with, outer to inner."""
        s = self.s
        block = s.get(out)
        accumulator = s.get(self.block).body
        assert isinstance(accumulator, Store)
        load = next(e for e in loads_of(block) if e.buffer is accumulator.buffer)
        place = next(i for i, e in enumerate(accumulator.indices) if e is s.get(self.block).axes[self._position(axis)].var)
        used = set(free_vars(load.indices[place]))
        bound = {value: a.var for a, value in zip(block.axes, block.values, strict=True)}
        return [loop for loop in s.get_loops(out) if bound.get(loop.var) in used]

    def _position(self, axis: IterVar) -> int:
        return [a.var for a in self.found.block.axes].index(axis.var)

    def _rows(self, out: BlockRV) -> LoopRV | None:
        """The loop over the innermost row axis; where the output sees it as several axes, these fused."""
        rows = [a for a in self.found.m if extent_of(a) != 1]
        if not rows:
            return None
        loops = self._loops_for(out, rows[-1])
        return self.s.fuse(*loops) if len(loops) > 1 else loops[0]

    # Packing

    def _pack(self, tile: Tile) -> None:
        """Repack a constant right-hand side into panels of the tile's width."""
        s, found = self.s, self.found
        buffer = found.rhs.load.buffer
        constants = s.func.attrs.get("constants", ())
        if buffer not in s.func.params or s.func.params.index(buffer) not in constants:
            return
        places = {a.var for a in found.block.axes}
        order: list[Var] = []
        for index in found.rhs.load.indices:
            if not isinstance(index, Var) or index not in places:
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

        s.transform_layout(self.block, buffer.name, IndexMap.of(packed, len(order)), pad_value=0)

    # Loops

    def _nest(self, out: BlockRV, rows: LoopRV | None, column: LoopRV, tile: Tile) -> None:
        s = self.s
        outer = [loop for loop in s.get_loops(out) if loop not in (rows, column)]
        panels, column = s.split(column, [None, tile.vectors * self.lanes], tail="shrink")
        names = _Names(None, None, column, self.block, out)
        nest, inner, full_tiles = [*outer, panels], [column], as_expr(1)
        if rows is not None:
            full_tiles = s.extent(rows) // tile.rows
            tiles, row = s.split(rows, [None, tile.rows], tail="shrink")
            names = _Names(tiles, row, column, self.block, out)
            nest, inner = self._order(outer, panels, tiles), [row, column]
        s.reorder(*nest, *inner)
        s.compute_at(self.block, nest[-1])
        s.set_scope(self.block, 0, "local")
        if self.machine.description.parallel and self._work() >= PARALLEL_WORK:
            s.parallel(nest[0])
        full_panels = as_expr(self.found.n.dom.extent) // (tile.vectors * self.lanes)
        for in_panel in self._cut(panels, column, names, full_panels):
            if in_panel.tiles is None or in_panel.row is None:
                self._inner(in_panel)
                continue
            for in_tile in self._cut(in_panel.tiles, in_panel.row, in_panel, full_tiles):
                self._inner(in_tile)

    def _order(self, outer: list[LoopRV], panels: LoopRV, tiles: LoopRV) -> list[LoopRV]:
        """Outer loops, the parallel one first: panels where the weights are larger than the rows, rows elsewhere."""
        if not self._rows_in_parallel():
            return [panels, *outer, tiles]
        return [*outer, panels, tiles] if outer else [tiles, panels]

    def _rows_in_parallel(self) -> bool:
        """Whether rows, not panels, are dealt out to threads."""
        if self.found.shared:
            return True
        rows = _product(self.found.m)
        columns = extent_of(self.found.n)
        return rows is None or columns is None or rows >= columns

    def _work(self) -> int:
        """Multiply-adds, a symbolic extent taken for large."""
        return _product(self.found.block.axes) or PARALLEL_WORK

    def _cut(self, loop: LoopRV, inner: LoopRV, names: _Names, full: Expr) -> Iterator[_Names]:
        """The full iterations of a tiling loop, then the last one where the border of the domain cuts it."""
        s = self.s
        if const_value(s.extent(inner)) is not None:
            yield names
            return
        for copy in s.partition(loop, [full]):
            yield names.within(copy)

    def _inner(self, names: _Names) -> None:
        """Registers, vectors and the reduction of one tile."""
        s = self.s
        block = s.get(names.block)
        own = s.get_loops(names.block)[-len(block.axes) :]
        reduction = [loop for loop, axis in zip(own, block.axes, strict=True) if axis.kind == "reduce"]
        spatial = [loop for loop in own if loop not in reduction]
        s.reorder(*reduction, *spatial)
        init = s.decompose_reduction(names.block, reduction[0])
        self._registers(spatial)
        self._registers(s.get_loops(init)[-len(spatial) :])
        self._registers([names.column] if names.row is None else [names.row, names.column])

    def _registers(self, loops: Sequence[LoopRV]) -> None:
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
