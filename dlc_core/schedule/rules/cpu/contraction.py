"""GEMM and convolution: one rule for every block that sums products of two operands.

    for block of rows, or panel of columns (parallel):
      for panel / tile of rows:
        accumulators = 0                        rows × vectors, in registers over the whole reduction
        for k…: accumulators += broadcast(lhs) * vector(rhs)
        epilogue on the accumulators, one store

A constant right-hand side is packed at compile time as [panel][k…][column in panel], so that the microkernel
streams it. `columns.py` chooses the axis of columns. `gemm_plan.py` makes the plan: it takes the tile from
`register_tile.py`, K blocking and prefetch from `panels.py`, and tails of symbolic rows from `tails.py`. This
file prepares the operands, and `tile_nest.py` makes the loop nest, with the instructions for narrow dtypes in
`dots.py` and `tile_unit.py`. Split-K exists on GPUs only (`rules/gpu/tile.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from dlc_core.arith import Analyzer
from dlc_core.diag import ScheduleError
from dlc_core.ir.expr import Binary, Expr, ExprLike, Load, Var, const_value, free_vars, substitute
from dlc_core.schedule.handles import BlockRV, LoopRV
from dlc_core.schedule.index_map import IndexMap
from dlc_core.schedule.rules.analysis import (
    anchor,
    bytes_of,
    epilogue_of,
    extent_of,
    loads_of,
    pad_rows,
    points_of,
)
from dlc_core.schedule.rules.base import Machine, ScheduleRule
from dlc_core.schedule.rules.cpu.columns import choose_columns, move_columns, schedule_packing
from dlc_core.schedule.rules.cpu.dots import dot_columns, dot_for, has_plain_indices, is_constant
from dlc_core.schedule.rules.cpu.edges import inline_tests
from dlc_core.schedule.rules.cpu.gemm_decisions import COLUMNS, GEMM_DECISIONS
from dlc_core.schedule.rules.cpu.gemm_plan import Gemm, GemmPlan, plan_gemm
from dlc_core.schedule.rules.cpu.groups import separate_groups
from dlc_core.schedule.rules.cpu.maps import MAP_DECISIONS, schedule_map
from dlc_core.schedule.rules.cpu.packing import Packable, Weights
from dlc_core.schedule.rules.cpu.register_tile import Tile
from dlc_core.schedule.rules.cpu.tails import TAILS
from dlc_core.schedule.rules.cpu.tile_nest import TileNest
from dlc_core.schedule.rules.cpu.tile_unit import tile_products, unit_for
from dlc_core.schedule.rules.cpu.transposed_rhs import copy_transposed_rhs, reduces_along_rows
from dlc_core.schedule.schedule import Schedule
from dlc_core.support.record import record
from dlc_core.tir.stmt import IterVar, PrimFunc, Store


@record(frozen=True)
class ContractionRule(ScheduleRule):
    """The rule for GEMM and convolution.

    It applies if the kernel has one reduction, which adds up products of two operands, and pointwise blocks
    around it.  It does not apply if a computed right-hand side has K innermost and the result has few rows;
    `cpu.rows` then reduces along the rows of that operand.
    """

    name: ClassVar[str] = "cpu.contraction"
    priority: ClassVar[int] = 100
    decisions: ClassVar[tuple[str, ...]] = (COLUMNS.name, *GEMM_DECISIONS, TAILS.name, *MAP_DECISIONS)
    plan: GemmPlan | None = None
    """The plan to apply to each contraction; None chooses one for each."""

    def matches(self, func: PrimFunc, machine: Machine) -> bool:
        found = anchor(func)
        return found is not None and not reduces_along_rows(func, found, machine)

    def apply(self, schedule: Schedule, machine: Machine) -> None:
        found = anchor(schedule.func)
        assert found is not None
        ContractionScheduler(schedule, machine, found).run(self.plan)


class ContractionScheduler(TileNest):
    """The steps of the rule.  Rules for algorithms with a GEMM inside use them too."""

    def run(self, plan: GemmPlan | None = None) -> None:
        """Schedule the kernel by a plan; the default is the plan chosen from its facts."""
        s = self.s
        self.found = separate_groups(s, self.block, self.found)
        borders = s.get_producers(self.block)
        self._choose_columns()
        # In short code, groups of elements contain tests for borders, which a dot product cannot have.
        if not (self.machine.short_code and borders):
            self.dot = dot_for(s.func, self.found, self.machine)
        self.unit = unit_for(self.found, self.dot, self.machine)
        for handle in borders:
            schedule_map(s, handle, self.machine)
        if self.dot is None and not self.transposed:
            self.found, self.rhs_copy = copy_transposed_rhs(s, self.block, self.found, self.machine)
        out = epilogue_of(s, self.block)
        self._split_digits(out)
        columns = self._loops_for(out, self.found.n)
        row = self._rows(out)
        if self.transposed and row is not None:
            # Parts of a symbolic number of rows all have all columns.
            s.reorder(*(loop for loop in s.get_loops(out) if loop != columns[-1]), columns[-1])
        plan = plan or plan_gemm(self._facts(out, row, columns), self.machine)
        self.dot, self.unit = plan.dot, plan.unit
        if plan.packed:
            self.pack(plan.tile, computed=True)
        elif self.rhs_copy is not None:
            schedule_map(s, self.rhs_copy, self.machine)
        if plan.pad_rows:
            self._pad_rows()
        self.apply(plan, out, row, columns[-1])
        if self.machine.short_code:
            inline_tests(s, borders)
        if self.dot is not None:
            s.compact_buffers()
            for column in self.dot_loops:
                dot_columns(s, column, self.dot)
        if self.unit is not None and self.dot is not None:
            for loops in self.unit_nests:
                tile_products(s, loops, self.unit, self.dot)

    def _choose_columns(self) -> None:
        """Choose the columns, and move them if the result is not contiguous along them."""
        found = choose_columns(self.s.func, self.found, self.machine, self.lanes)
        if found is self.found:
            return
        self.transposed = True
        epilogue_of(self.s, self.block)  # the accumulators become another buffer than the result
        # A copy of the right-hand side transposes the longest rows if it keeps their order.
        copied = not is_constant(self.s.func, found)
        self.found = move_columns(self.s, self.block, found, keep_order=copied)

    def _facts(self, out: BlockRV, row: LoopRV | None, columns: Sequence[LoopRV]) -> Gemm:
        """Collect the facts of the contraction, whose output has these loops."""
        s, found = self.s, self.found
        around = [loop for loop in s.get_loops(out) if loop not in (row, columns[-1])]
        lhs, sums = found.lhs.load.buffer, s.get(self.block).writes[0].buffer.dtype
        step = const_value(found.lhs.factors[found.m[-1].var]) if found.m and lhs.ndim > 1 else None
        rows = 1 if row is None else const_value(s.extent(row))
        return Gemm(
            rows,
            extent_of(found.n),
            tuple(extent_of(axis) for axis in found.k),
            self.lanes,
            tuple(const_value(s.extent(loop)) for loop in around),
            any(const_value(s.extent(loop)) != 1 for loop in around if loop not in columns),
            row is not None,
            1 if row is None or rows is not None else Analyzer().modular(s.extent(row))[0],
            points_of(found.m),
            points_of(found.block.axes),
            bool(found.shared),
            bytes_of(found.rhs.load.buffer),
            self._weights() if self.packed or self.transposed or is_constant(s.func, found) else None,
            bool(found.rhs.other_factors),
            sums.itemsize,
            sums.is_float,
            None if step is None else step * lhs.dtype.itemsize,
            lhs.dtype.itemsize,
            lhs not in s.func.params,
            self.dot,
            self.unit,
            self._packable(),
        )

    def _packable(self) -> Packable | None:
        """Describe the right-hand side, if it is computed and can be packed in the kernel: a matrix."""
        s, found = self.s, self.found
        rhs, buffer = found.rhs, found.rhs.load.buffer
        if self.packed or self.transposed or self.dot is not None or is_constant(s.func, found):
            return None
        if self.digits or found.shared or rhs.other_factors or len(found.k) != 1 or self.lanes < 2:
            return None
        if not has_plain_indices(found) or const_value(buffer.num_elements()) is None:
            return None
        copied = self.rhs_copy is not None
        in_order = buffer in s.func.params and const_value(rhs.factors[found.n.var]) == 1
        return Packable(self._weights(), copied) if copied or in_order else None

    def _weights(self) -> Weights:
        """Describe the right-hand side as weights that are packed or can be."""
        found = self.found
        buffer = found.rhs.load.buffer
        columns, lead, inner = self._dims_of_weights()
        shape = [const_value(extent) for extent in buffer.shape]
        wide = shape[columns]
        return Weights(
            tuple(shape[i] for i in lead),
            tuple(shape[i] for i in inner),
            None if wide is None else wide // self.parts,
            buffer.dtype.itemsize,
            self.parts,
            1 if self.dot is None else self.dot.group,
        )

    def _dims_of_weights(self) -> tuple[int, list[int], list[int]]:
        """Return the dims of the right-hand side: the one of columns, those of no column or K, those of K."""
        order = list(self.found.rhs.load.indices)
        columns = order.index(self.found.n.var)
        inner = [order.index(a.var) for a in self.found.k if a.var in order]
        return columns, [i for i in range(len(order)) if i != columns and i not in inner], inner

    # Row and column loops of the output

    def _result_in(self, out: BlockRV) -> Load:
        """Find the load of the contraction's result in the output block."""
        written = self.s.get(self.block).writes[0].buffer
        found = next((e for e in loads_of(self.s.get(out)) if e.buffer is written), None)
        if found is None:
            raise ScheduleError(f"block {out.name!r} does not read what {self.block.name!r} computes")
        return found

    def _split_digits(self, out: BlockRV) -> None:
        """Split output loops that combine several axes of the contraction, such as channel groups."""
        s = self.s
        block, load = s.get(out), self._result_in(out)
        bound = {a.var: v for a, v in zip(block.axes, block.values, strict=True)}
        for index in load.indices:
            if isinstance(index, Binary) and index.op == "floormod" and isinstance(index.a, Var):
                value = bound.get(index.a)
                loop = next((found for found in s.get_loops(out) if found.var is value), None)
                size = const_value(index.b)
                if loop is not None and size is not None:
                    s.split(loop, [None, size], tail="exact")
                    self.digits = True

    def _loops_for(self, out: BlockRV, axis: IterVar) -> list[LoopRV]:
        """Return the output loops of a spatial axis of the contraction, outer to inner."""
        s = self.s
        block, load = s.get(out), self._result_in(out)
        accumulator = s.get(self.block).body
        assert isinstance(accumulator, Store)
        own = s.get(self.block).axes[self._position(axis)].var
        dim = next((i for i, e in enumerate(accumulator.indices) if e is own), None)
        if dim is None:
            raise ScheduleError(f"no dim of {accumulator.buffer.name} is axis {own.name} alone")
        values = {a.var: value for a, value in zip(block.axes, block.values, strict=True)}
        seen = Analyzer()
        for loop in s.get_loops(out):
            seen.bind(loop.var, 0, s.extent(loop))
        used = set(free_vars(seen.simplify(substitute(load.indices[dim], values))))
        found = [loop for loop in s.get_loops(out) if loop.var in used]
        if not found:
            raise ScheduleError(f"no loop around block {out.name!r} runs with axis {own.name}")
        return found

    def _rows(self, out: BlockRV) -> LoopRV | None:
        """Return the loop over the innermost row axis; if the output has several axes for it, fuse them."""
        rows = [a for a in self.found.m if extent_of(a) != 1]
        if not rows:
            return None
        loops = self._loops_for(out, rows[-1])
        return self.s.fuse(*loops) if len(loops) > 1 else loops[0]

    def _pad_rows(self) -> None:
        """Pad the rows of a copy of the left-hand side, so that they map to different cache sets."""
        s, buffer = self.s, self.found.lhs.load.buffer
        if buffer in s.func.params:
            made = s.cache_read(self.block, buffer.name, "global")
            schedule_map(s, made, self.machine)
        else:
            # A padded input has several producers, which write its interior and its edges.
            made = next(p for p in s.get_producers(self.block) if s.get(p).writes[0].buffer is buffer)
        pad_rows(s, made, buffer.ndim - 2, self.machine.description.cache_line)

    # Packing

    def pack(self, tile: Tile, parts: int = 1, computed: bool = False) -> None:
        """Pack the right-hand side into panels as wide as a tile, for each part of the columns.

        One that is not constant is copied if it is to be packed although it is `computed`, else left as it
        is.
        """
        s, found = self.s, self.found
        buffer, copy = found.rhs.load.buffer, None
        if not is_constant(s.func, found):
            if not computed:
                return
            copy = self.rhs_copy or s.cache_read(self.block, buffer.name, "global")
            buffer = s.get(copy).writes[0].buffer
        order = list(found.rhs.load.indices)
        group = 1 if self.dot is None else self.dot.group
        width = tile.vectors * self.lanes
        columns, lead, inner = self._dims_of_weights()
        part = (extent_of(found.n) or 0) // parts if parts > 1 else 0

        def packed(*indices: Expr) -> tuple[ExprLike, ...]:
            column, steps = indices[columns], [indices[i] for i in inner]
            dim = column % width
            if group > 1:
                dim = dim * group + steps[-1] % group
                steps[-1] = steps[-1] // group
            outer = [indices[i] for i in lead]
            if part:
                return (column // part, *outer, column % part // width, *steps, dim)
            return (*outer, column // width, *steps, dim)

        self.parts = parts
        s.transform_layout(self.block, buffer.name, IndexMap.of(packed, len(order)), pad_value=0)
        self.packed = next(r.buffer for r in s.get(self.block).reads if r.buffer.name == buffer.name)
        if copy is not None:
            size = const_value(found.rhs.load.buffer.shape[columns])
            assert size is not None
            schedule_packing(s, copy, len(lead), size, self.machine)

    # Loops

    def nest(self, out: BlockRV, rows: LoopRV | None, column: LoopRV, tile: Tile) -> None:
        """Tile the output loops and compute the contraction in each tile, without packing."""
        facts = replace(self._facts(out, rows, [column]), row_bytes=None)
        plan = plan_gemm(facts if self.packed else replace(facts, weights=None), self.machine, tile)
        self.apply(plan, out, rows, column)
