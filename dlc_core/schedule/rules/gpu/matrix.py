"""GEMM and convolution by the matrix units of machines that launch groups of threads.

    for tile of rows and columns (group):
      for subgroup:
        accumulators = 0                          fragments in the registers of its threads
        for tile of K:
          copies of both operands' tiles          by all threads, as vectors, to shared memory
          for step: accumulators += product       load fragments, multiply by the unit
        epilogue on the accumulators

Operands in shared memory keep the caller's layout if the unit can transpose them, else each thread's fragment
is contiguous. Padding, split-K and the order of groups are those of `contraction`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from dlc_core.diag import ScheduleError
from dlc_core.ir.expr import Expr, const_value, free_vars
from dlc_core.schedule.handles import BlockRV, LoopRV
from dlc_core.schedule.index_map import IndexMap
from dlc_core.schedule.matrices import Tiles, digits_of, matrix_intrin, operand_scope, row_of
from dlc_core.schedule.pipeline import STAGE
from dlc_core.schedule.rules.analysis import Contraction, anchor, count_of, inline_producers
from dlc_core.schedule.rules.base import Machine, ScheduleRule
from dlc_core.schedule.rules.gpu.choices import (
    GEMM_DECISIONS,
    choose_lanes,
    choose_parts,
    choose_stages,
    choose_tile,
)
from dlc_core.schedule.rules.gpu.contraction import ContractionScheduler, normal_of, problem_of
from dlc_core.schedule.rules.gpu.grid import Grid
from dlc_core.schedule.rules.gpu.heuristics import MATRIX
from dlc_core.schedule.rules.gpu.maps import vector_lanes
from dlc_core.schedule.rules.gpu.matrix_tile import (
    MatrixTile,
    cost,
    fitting,
    max_stages,
    parts_of,
    ranked,
    stages_of,
)
from dlc_core.schedule.rules.gpu.normal import Normal, Side, is_product
from dlc_core.schedule.schedule import Schedule
from dlc_core.support.record import record
from dlc_core.tir.matrix import MatrixUnit
from dlc_core.tir.stmt import PrimFunc, Store


@record(frozen=True)
class MatrixRule(ScheduleRule):
    """The rule for GEMM and convolution on matrix units.

    It applies if the kernel has one GEMM whose dtypes a matrix unit of the description multiplies.
    """

    name: ClassVar[str] = "gpu.matrix"
    priority: ClassVar[int] = 110
    decisions: ClassVar[tuple[str, ...]] = GEMM_DECISIONS

    def matches(self, func: PrimFunc, machine: Machine) -> bool:
        found = anchor(func) if machine.description.matrix_units else None
        known = found is not None and bool(found.m) and is_product(found.block)
        return known and found is not None and bool(units_for(found, machine))

    def apply(self, schedule: Schedule, machine: Machine) -> None:
        s, grid = schedule, Grid.of(machine)
        found = anchor(s.func)
        assert found is not None
        problem = problem_of(found)
        units = units_for(found, machine)
        known = ranked(units, problem, machine, grid)
        if not known:
            raise ScheduleError("no tile of the matrix unit fits the GEMM and the machine")
        splits = known[0].splits
        best = choose_tile(
            known[0],
            lambda: fitting(units, problem, splits, machine, grid),
            lambda t: (t.rows, t.columns),
            cost=lambda t: cost(t, problem, machine, grid),
            compared=lambda: [t for t in known if t.splits == splits],
        )
        parts = choose_parts(
            splits,
            lambda: parts_of(best, problem),
            cost=lambda n: cost(replace(best, splits=n), problem, machine, grid),
        )
        tile = replace(best, splits=parts)
        normal = normal_of(s, machine, grid, found, tile.splits)
        least = tile.buffers(problem.k) if tile.unit.in_place else 1
        stages = choose_stages(
            stages_of(tile, problem, machine, grid),
            range(least, max_stages(tile, problem, machine) + 1),
        )
        MatrixScheduler(s, machine, grid, normal, tile, stages).run()


def units_for(found: Contraction, machine: Machine) -> list[MatrixUnit]:
    """Return the units that multiply a contraction's operands.

    Units that read shared memory are excluded if copies would have to transpose operands element by element.
    """
    body = found.block.body
    assert isinstance(body, Store)
    a, b = found.lhs.load.buffer.dtype.name, found.rhs.load.buffer.dtype.name
    units = machine.description.units_for(a, b, body.buffer.dtype.name)
    steps = {axis.var for axis in found.k}
    lasts = [side.load.indices[-1] for side in (found.lhs, found.rhs)]
    along = all(steps & set(free_vars(last)) for last in lasts)
    return [unit for unit in units if along or unit.transposable or not unit.in_place]


class MatrixScheduler(ContractionScheduler):
    """The steps of the rule, for a contraction in normal form."""

    def __init__(
        self,
        s: Schedule,
        machine: Machine,
        grid: Grid,
        normal: Normal,
        matrix_tile: MatrixTile,
        stages: int,
    ) -> None:
        super().__init__(s, machine, grid, normal, matrix_tile.plain)
        self.blocks = matrix_tile
        self.unit = matrix_tile.unit
        self.stages = stages
        """Pipeline stages: tiles of an operand in shared memory."""

    def run(self) -> None:
        s, tile, normal, unit = self.s, self.blocks, self.normal, self.unit
        block, out = normal.block, normal.out
        if not normal.a.both or not normal.b.both:
            raise ScheduleError("an operand of the product is a vector")
        stored = vector_lanes(s.get(out), self.machine)
        self._pad()
        a, b = self._operands()
        threads, _ = digits_of(unit.of_acc)
        layout = _Layout(normal.batch, tile)
        s.transform_block_layout(block, layout.of_block())
        loops = layout.named(s.get_loops(block))
        s.set_scope(block, 0, "local")
        subgroup = [loops[name] for name in ("high", "wide") if name in loops]
        inner = subgroup[-1] if subgroup else loops["no"]
        s.reverse_compute_at(out, inner)
        if subgroup:
            s.bind(s.fuse(*subgroup) if len(subgroup) > 1 else subgroup[0], self.grid.rows)
        init = s.decompose_reduction(block, loops["ko"])
        copies = [s.cache_read(block, side, operand_scope(unit)) for side in (a, b)]
        transposed_ab = [self._is_transposed(side) for side in (normal.a, normal.b)]
        for copy, transposed in zip(copies, transposed_ab, strict=True):
            if transposed:
                rank = s.get(copy).writes[0].buffer.ndim
                s.transform_layout(copy, ("write", 0), _swapped(rank))
                s.reorder_block_axes(copy, [*range(rank - 2), rank - 1, rank - 2])
        for copy, transposed in zip(copies, transposed_ab, strict=True):
            s.compute_at(copy, loops["ko"])
            inline_producers(s, copy)
            inner_extent = s.get_loops(copy)[-1]
            width = const_value(s.extent(inner_extent))
            if not unit.in_place:
                self._pad_rows(copy, width if isinstance(width, int) else 1)
            elif not transposed:
                buffer = s.get(copy).writes[0].buffer
                rows = _in_rows(buffer.ndim, row_of(unit, buffer.dtype.name))
                s.transform_layout(copy, ("write", 0), rows)
        s.transform_layout(block, ("write", 0), layout.of_results())
        s.compact_buffers()
        # The first operand is [k, m] in normal form, and [m, k] for the unit.
        tiles = Tiles(unit, tile.down, tile.across, self.grid.threads, not transposed_ab[0], transposed_ab[1])
        s.tensorize(loops["thread0"], matrix_intrin(tiles))
        batches = [loops[f"b{i}"] for i in range(normal.batch)]
        self._bind_groups(batches, loops["mo"], loops["no"])
        for copy, side, transposed in zip(copies, (normal.a, normal.b), transposed_ab, strict=True):
            if not self._fill_in_bulk(copy, loops["ko"], side, transposed):
                self._fill_by_threads(_inside(s.get_loops(copy), loops["ko"]), side, transposed)
        if self._is_double_buffered():
            for copy in copies:
                s.double_buffer(copy)
            self._pipeline(loops["ko"])
        self._init_accumulators(init, len(threads))
        self._schedule_epilogue(out, stored)

    def _is_transposed(self, side: Side) -> bool:
        """Whether K is innermost in an operand's tile; in normal form it is outermost."""
        return side.along_k or not self.unit.transposable

    # Accumulators

    def _init_accumulators(self, init: BlockRV, digits: int) -> None:
        """Initialise the accumulators of each thread."""
        s = self.s
        loops = s.get_loops(init)
        count = sum(len(part) for part in digits_of(self.unit.of_acc))
        count += (self.blocks.down > 1) + (self.blocks.across > 1)
        loops = loops[len(loops) - count :]
        lane = s.fuse(*loops[:digits]) if digits > 1 else loops[0]
        s.bind(lane, self.grid.threads)
        for loop in loops[digits:]:
            s.unroll(loop)

    def _schedule_epilogue(self, out: BlockRV, lanes: int) -> None:
        """Compute the epilogue on the accumulators of each thread."""
        s, unit = self.s, self.unit
        rows, columns = s.get_loops(out)[-2:]
        found: dict[tuple[str, int], LoopRV] = {}
        threads, own = digits_of(unit.of_acc)
        every = [("thread", i, d) for i, d in enumerate(threads)]
        every += [("own", i, d) for i, d in enumerate(own)]
        rest = []
        for dim, loop in ((0, rows), (1, columns)):
            size = const_value(s.extent(loop))
            # Digits beyond the extent of a narrow result are always 0.
            inside = [x for x in every if x[2].dim == dim and (size is None or x[2].step < size)]
            digits = sorted(inside, key=lambda x: -x[2].step)
            outer, *parts = s.split(loop, [None, *(d.extent for _, _, d in digits)])
            rest.append(outer)
            found.update({(kind, i): part for (kind, i, _), part in zip(digits, parts, strict=True)})
        lane = [found[key] for i in range(len(threads)) if (key := ("thread", i)) in found]
        values = [found[key] for i in range(len(own)) if (key := ("own", i)) in found]
        if len(lane) < len(threads):
            raise ScheduleError("the result is too narrow for the matrix unit")
        s.reorder(*lane, *rest, *values)
        s.bind(s.fuse(*lane) if len(lane) > 1 else lane[0], self.grid.threads)
        last = own[-1] if ("own", len(own) - 1) in found else None
        contiguous = last is not None and last.dim == 1 and last.step == 1 and lanes >= last.extent > 1
        if contiguous and last is not None:
            contiguous = choose_lanes(last.extent, (1, last.extent), where="store") > 1
        for loop in (*rest, *values):
            if contiguous and loop is values[-1]:
                s.vectorize(loop)
            else:
                s.unroll(loop)

    # Copies to shared memory

    def _fill_by_threads(self, loops: Sequence[LoopRV], side: Side, transposed: bool) -> None:
        """Fill a tile in shared memory by all threads, along the contiguous axis of the operand."""
        s, grid = self.s, self.grid
        *others, one, last = loops
        if transposed != side.along_k:
            s.reorder(last, one)
            one, last = last, one
        points, inner = count_of(s, (one, last)), const_value(s.extent(last))
        if points is None or not isinstance(inner, int):
            raise ScheduleError("a tile of an operand has no known size")
        lanes = self._choose_copy_lanes(side, inner, points)
        flat = s.fuse(*others, one, last)
        step, subgroup, thread, lane = s.split(flat, [None, self.blocks.subgroups, self.unit.width, lanes])
        if lanes > 1:
            s.vectorize(lane)
        if self.blocks.subgroups > 1:
            s.bind(subgroup, grid.rows)
        s.bind(thread, grid.threads)
        s.unroll(step)

    def _fill_in_bulk(self, copy: BlockRV, step: LoopRV, side: Side, transposed: bool) -> bool:
        """Fill a tile in shared memory by tensor copies, if the operand allows it."""
        s, machine = self.s, self.machine.description.bulk
        *_, one, last = _inside(s.get_loops(copy), step)
        row = row_of(self.unit, s.get(copy).writes[0].buffer.dtype.name)
        width, high = const_value(s.extent(last)), const_value(s.extent(one))
        if machine is None or not self.unit.in_place or transposed != side.along_k:
            return False
        if not isinstance(width, int) or not isinstance(high, int) or width % row:
            return False
        rest = [1]
        while high // rest[0] > machine.extent or high % rest[0]:
            rest[0] += 1
        outer, inner = s.split(last, [None, row])
        some, box = s.split(one, [rest[0], None])
        s.reorder(outer, some, box, inner)
        limits = {"dims": machine.dims, "extent": machine.extent, "align": machine.align, "row": machine.row}
        try:
            s.bulk_copy(box, **limits)
        except ScheduleError:
            return False
        for loop in (outer, some):
            s.unroll(loop)
        return True

    def _pipeline(self, loop: LoopRV) -> None:
        """Software-pipeline the loop: copies of tiles start several iterations before their use.

        Units that read shared memory run asynchronously, while threads start the copies of the next tile.
        With enough memory, their multiplications overlap the next iteration.
        """
        count = self.stages
        spare = int(self.unit.in_place and count >= MATRIX.deep_pipeline)
        if count < 3 and not self.unit.in_place:
            return
        stages = [stage * (count - 1 - spare) for stage in self.s.get_for(loop).annotations[STAGE]]
        by_stage = sorted(range(len(stages)), key=lambda part: -stages[part] * self.unit.in_place)
        order = [by_stage.index(part) for part in range(len(stages))]
        self.s.software_pipeline(loop, stages, order, spare)

    def _is_double_buffered(self) -> bool:
        return self.stages > 1


def _inside(loops: Sequence[LoopRV], outer: LoopRV) -> Sequence[LoopRV]:
    """The loops inside of `outer`."""
    return loops[list(loops).index(outer) + 1 :]


def _in_rows(rank: int, row: int) -> IndexMap:
    """Split the last dim, and move the dim of its parts before the last two dims."""
    return IndexMap.of(lambda *at: [*at[:-2], at[-1] // row, at[-2], at[-1] % row], rank)


def _swapped(rank: int) -> IndexMap:
    """Swap the last two dims."""
    return IndexMap.of(lambda *at: [*at[:-2], at[-1], at[-2]], rank)


class _Layout:
    """The axes of a GEMM in the order of its loops, and the dims of its results."""

    def __init__(self, batch: int, tile: MatrixTile) -> None:
        unit = tile.unit
        threads, own = digits_of(unit.of_acc)
        found: dict[str, tuple[int, int, int | None]] = {}
        """For each name of a digit: its axis, its lowest bit in that axis, and its extent."""

        def add(name: str, axis: int, lower: int, extent: int | None) -> None:
            if extent != 1:
                found[name] = axis, lower, extent

        m, n, k = batch, batch + 1, batch + 2
        for axis in range(batch):
            add(f"b{axis}", axis, 1, None)
        add("mo", m, tile.rows, None)
        add("no", n, tile.columns, None)
        add("high", m, tile.down * unit.m, tile.high)
        add("wide", n, tile.across * unit.n, tile.wide)
        add("ko", k, tile.depth, None)
        add("ki", k, unit.k, tile.deep)
        for number, digit in enumerate(threads):
            add(f"thread{number}", m + digit.dim, digit.step, digit.extent)
        add("down", m, unit.m, tile.down)
        add("across", n, unit.n, tile.across)
        for number, digit in enumerate(own):
            add(f"own{number}", m + digit.dim, digit.step, digit.extent)
        add("kk", k, 1, unit.k)
        self._found = found
        self._steps = k

    def of_block(self) -> IndexMap:
        """The map from the axes of the normal form."""
        return self._map(list(self._found), self._steps + 1)

    def of_results(self) -> IndexMap:
        """The map from the dims of the results."""
        names = [name for name, (axis, _, _) in self._found.items() if axis != self._steps]
        return self._map(names, self._steps)

    def named(self, loops: Sequence[LoopRV]) -> dict[str, LoopRV]:
        """The block's loops by name."""
        return dict(zip(self._found, loops, strict=True))

    def _map(self, names: Sequence[str], rank: int) -> IndexMap:
        def digits(*axes: Expr) -> list[Expr]:
            made = []
            for name in names:
                axis, lower, extent = self._found[name]
                value = axes[axis] // lower if lower > 1 else axes[axis]
                made.append(value if extent is None else value % extent)
            return made

        return IndexMap.of(digits, rank)


__all__ = ["MatrixRule", "MatrixScheduler", "units_for"]
