"""GEMM and convolution on machines with thread axes: one rule for every block that sums products of two
operands.

    for tile of rows and columns (group):
      for thread:
        accumulators = 0                          rows x columns in registers
        for tile of K:
          copies of both operands' tiles          by all threads, as vectors, to shared memory
          for step: accumulators += column of one * row of the other
        epilogue on the accumulators, stored as vectors

Shared memory holds operands with K outermost, so that a thread reads vectors. If a thread has several
vectors, they are interleaved over threads, so that neighbouring threads read neighbouring vectors. Sizes that
are not multiples of a tile are padded in the copies and masked in the epilogue. With few tiles, split-K
distributes K over groups, and a second launch adds the partial sums. The tile and split-K are chosen in
`tile.py`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from dlc_core.diag import ScheduleError
from dlc_core.ir.expr import const_value
from dlc_core.schedule.dots import dot_intrin
from dlc_core.schedule.handles import BlockRV, LoopRV
from dlc_core.schedule.rules.analysis import (
    Contraction,
    Operand,
    anchor,
    contraction_of,
    count_of,
    epilogue_of,
    extent_of,
    inline_pointwise,
    inline_producers,
    is_pointwise,
    points_of,
)
from dlc_core.schedule.rules.base import Machine, ScheduleRule
from dlc_core.schedule.rules.gpu.choices import (
    EPILOGUE,
    GEMM_DECISIONS,
    SHARED_LAYOUT,
    TILE_ORDER,
    choose_lanes,
    choose_parts,
    choose_stages,
    choose_tile,
)
from dlc_core.schedule.rules.gpu.dots import dot_of, group_steps
from dlc_core.schedule.rules.gpu.grid import Grid, bind_points
from dlc_core.schedule.rules.gpu.heuristics import TILES
from dlc_core.schedule.rules.gpu.maps import map_points, vector_lanes
from dlc_core.schedule.rules.gpu.normal import Normal, Side, contiguity, is_product, normalise
from dlc_core.schedule.rules.gpu.tile import (
    Problem,
    Tile,
    cost,
    fitting,
    ranked,
    refusal,
    resident,
    shared_bytes,
    splits_of,
)
from dlc_core.schedule.schedule import Schedule
from dlc_core.support.record import record
from dlc_core.target.description import Dot
from dlc_core.tir.stmt import IterVar, PrimFunc, Store


@record(frozen=True)
class ContractionRule(ScheduleRule):
    """The rule for GEMM and convolution without matrix units.

    It applies if the kernel has one reduction, which adds up products of two elements (with optional casts),
    and whose result has rows.
    """

    name: ClassVar[str] = "gpu.contraction"
    priority: ClassVar[int] = 100
    decisions: ClassVar[tuple[str, ...]] = GEMM_DECISIONS

    def matches(self, func: PrimFunc, machine: Machine) -> bool:
        found = anchor(func)
        return found is not None and bool(found.m) and is_product(found.block)

    def apply(self, schedule: Schedule, machine: Machine) -> None:
        s, grid = schedule, Grid.of(machine)
        found = anchor(s.func)
        assert found is not None
        problem = problem_of(found)
        found_tiles = ranked(problem, machine, grid)
        if not found_tiles:
            raise ScheduleError("no tile fits the machine")
        splits = found_tiles[0].splits
        tile = choose_tile(
            found_tiles[0],
            lambda: fitting(problem, splits, machine, grid),
            lambda t: (t.rows, t.columns),
            cost=lambda t: cost(t, problem, machine, grid),
            compared=lambda: [t for t in found_tiles if t.splits == splits],
        )
        splits = choose_parts(
            splits,
            lambda: splits_of(problem),
            cost=lambda n: cost(replace(tile, splits=n), problem, machine, grid),
            refused=lambda n: refusal(replace(tile, splits=n), problem, machine, grid),
        )
        tile = replace(tile, splits=splits)
        normal = normal_of(s, machine, grid, found, splits)
        if problem.k == 1:
            tile = replace(tile, depth=1)
        ContractionScheduler(s, machine, grid, normal, tile, dot_of(found, machine, tile.depth)).run()


def problem_of(found: Contraction) -> Problem:
    """Return the sizes that determine the tile."""
    body = found.block.body
    assert isinstance(body, Store)

    def contiguity_of(operand: Operand, *own: IterVar) -> tuple[bool, int]:
        return contiguity(operand, own[0], found.k[-1]) if own and found.k else (True, 1)

    longest = max((extent_of(a) or 1 for a in found.k), default=1)
    return Problem(
        points_of(found.shared),
        points_of(found.m),
        extent_of(found.n),
        points_of(found.k),
        max(found.lhs.load.dtype.bits, found.rhs.load.dtype.bits),
        body.buffer.dtype.bits,
        longest,
        (contiguity_of(found.lhs, *found.m[-1:]), contiguity_of(found.rhs, found.n)),
    )


def normal_of(s: Schedule, machine: Machine, grid: Grid, found: Contraction, splits: int) -> Normal:
    """Bring a contraction to normal form with split-K over `splits` groups; raise ScheduleError if it has
    none.
    """
    block = BlockRV(found.block.name)
    if splits > 1:
        block, out = _split_steps(s, grid, found, splits)
    else:
        out = _separate_epilogue(s, machine, grid, block) or epilogue_of(s, block)
    made = contraction_of(s.get(block))
    if made is None:
        raise ScheduleError("a part of split-K is not a contraction")
    return normalise(s, made, out)


def _separate_epilogue(s: Schedule, machine: Machine, grid: Grid, block: BlockRV) -> BlockRV | None:
    """Move the epilogue to a separate launch, if that is decided, and return the block that stores the
    results; else return None.
    """
    outputs = s.get_output_blocks()
    if len(outputs) != 1 or outputs == [block] or not is_pointwise(s.get(outputs[0])):
        return None
    why = "a second launch would read all results again"
    if EPILOGUE.choose("fused", refused=lambda where: why) == "fused":
        return None
    map_points(s, grid, inline_pointwise(s), machine)
    return s.cache_write(block, 0, "local")


def _split_steps(s: Schedule, grid: Grid, found: Contraction, splits: int) -> tuple[BlockRV, BlockRV]:
    """Split K over groups: return the contraction of a part, and the block that stores the results."""
    block = BlockRV(found.block.name)
    out = epilogue_of(s, block)
    axis = max(found.k, key=lambda a: extent_of(a) or 1)
    number = [a.var for a in s.get(block).axes].index(axis.var)
    value = s.get(block).values[number]
    (loop,) = [loop for loop in s.get_loops(block) if loop.var is value]
    part, _ = s.split(loop, [splits, None])
    partial = s.rfactor(part, 0)
    point = bind_points(s, grid, s.get_loops(out))
    s.compute_at(block, point)
    s.set_scope(block, 0, "local")
    return partial, s.cache_write(partial, 0, "local")


class ContractionScheduler:
    """The steps of the rule, for a contraction in normal form."""

    def __init__(
        self, s: Schedule, machine: Machine, grid: Grid, normal: Normal, tile: Tile, dot: Dot | None = None
    ) -> None:
        self.s = s
        self.machine = machine
        self.grid = grid
        self.normal = normal
        self.tile = tile
        self.dot = dot

    def run(self) -> None:
        s, tile, normal = self.s, self.tile, self.normal
        block, out = normal.block, normal.out
        stored = vector_lanes(s.get(out), self.machine)
        self._pad()
        a, b = self._operands()
        *batches, m, n, k = s.get_loops(block)
        vector_m, vector_n = (min(TILES.thread_vector, own) for own in (tile.own_rows, tile.own_columns))
        tall, wide = tile.rows // tile.own_rows, tile.columns // tile.own_columns
        mo, vm, ty, i = s.split(m, [None, tile.own_rows // vector_m, tall, vector_m])
        no, vn, tx, j = s.split(n, [None, tile.own_columns // vector_n, wide, vector_n])
        s.reorder(*batches, mo, no, vm, vn, ty, tx, i, j, k)
        s.set_scope(block, 0, "local")
        s.reverse_compute_at(out, tx)
        ko, ki = s.split(k, [None, tile.depth])
        if self.dot:
            ki, element = s.split(ki, [None, self.dot.group])
            s.reorder(ko, ki, i, j, element)
        else:
            s.reorder(ko, ki, i, j)
        for loop, name in ((vm, "vthread.m"), (vn, "vthread.n")):
            s.bind(loop, name)
        s.bind(s.fuse(ty, tx), self.grid.threads)
        init = s.decompose_reduction(block, ko)
        copies = [s.cache_read(block, side, "shared") for side in (a, b)]
        sides = (normal.a, normal.b)
        for copy, side, width in zip(copies, sides, (tile.rows, tile.columns), strict=True):
            s.compute_at(copy, ko)
            inline_producers(s, copy)
            if self.dot and side.both:
                group_steps(s, copy, self.dot.group)
            self._pad_rows(copy, width)
        registers = [s.cache_read(block, s.get(copy).writes[0].buffer.name, "local") for copy in copies]
        for copy in registers:
            s.compute_at(copy, ki)
        s.compact_buffers()
        self._bind_groups(batches, mo, no)
        for copy in registers:
            self._vector(s.get_loops(copy)[-1])
        for copy, side in zip(copies, sides, strict=True):
            loops = s.get_loops(copy)
            self._fill(loops[loops.index(ko) + 1 :], side)
        if self._is_double_buffered():
            for copy in copies:
                s.double_buffer(copy)
        if self.dot:
            s.tensorize(j, dot_intrin(self.dot, vector_n, "local"))
            unrolled = i, *s.get_loops(init)[-2:]
        else:
            unrolled = i, j, *s.get_loops(init)[-2:]
        for loop in unrolled:
            s.unroll(loop)
        self._store(out, vector_n if stored >= vector_n else 1)

    # Preparation

    def _pad(self) -> None:
        """Pad the sizes to whole tiles; consumers read the padded result."""
        s, tile, normal = self.s, self.tile, self.normal
        padding = [*[1] * normal.batch, tile.rows, tile.columns, tile.depth]
        made = s.pad_einsum(normal.block, padding)
        read = set(s.get_producers(normal.block))
        for handle in made:
            if handle not in read:
                s.compute_inline(handle)

    def _operands(self) -> list[str]:
        """Return the buffers that the contraction reads: rows first, then columns."""
        names = [r.buffer.name for r in self.s.get(self.normal.block).reads]
        sides = (self.normal.a.buffer, self.normal.b.buffer)
        return [next(name for name in names if name in (side, f"{side}_pad")) for side in sides]

    def _bind_groups(self, batches: list[LoopRV], mo: LoopRV, no: LoopRV) -> None:
        """Bind tiles to groups, so that groups close in time read the same rows and columns."""
        s, grid = self.s, self.grid
        rows = const_value(s.extent(mo))
        swizzled = isinstance(rows, int) and rows % TILES.swizzled_rows == 0 and rows > TILES.swizzled_rows
        reasons = {
            "row_major": "concurrent groups would read fewer columns in common",
            "swizzled": f"there are {rows} rows of tiles, which are not several times {TILES.swizzled_rows}"
            if isinstance(rows, int)
            else "the number of rows of tiles is symbolic",
        }
        preferred = "swizzled" if swizzled else "row_major"
        if TILE_ORDER.choose(preferred, refused=reasons.__getitem__) == "swizzled":
            tiles = s.swizzle(mo, no, TILES.swizzled_rows)
        else:
            tiles = s.fuse(mo, no)
        s.bind(s.fuse(*batches, tiles) if batches else tiles, grid.groups)

    # Copies to shared memory

    def _pad_rows(self, copy: BlockRV, width: int) -> None:
        """Pad rows of a tile, so that writes of a column go to different banks."""
        buffer = self.s.get(copy).writes[0].buffer
        size = buffer.dtype.itemsize
        row = self.machine.description.shared_banks * 4 // size
        padded = buffer.ndim > 1 and width * size > TILES.padding
        why = "threads that write a column would wait for one bank"
        if padded and SHARED_LAYOUT.choose("padded", refused=lambda layout: why) == "padded":
            self.s.storage_align(copy, 0, buffer.ndim - 2, min(row, width), TILES.padding // size)

    def _fill(self, loops: list[LoopRV], side: Side) -> None:
        """Fill a tile in shared memory by all threads, along the contiguous axis of the operand."""
        s = self.s
        points = count_of(s, loops)
        if not loops:
            raise ScheduleError("a tile of an operand is a single element")
        if points is None:
            raise ScheduleError("a tile of an operand has no known size")
        if side.both and side.along_k:
            *others, step, own = loops
            s.reorder(own, step)
            loops = [*others, own, step]
        inner = const_value(s.extent(loops[-1]))
        assert isinstance(inner, int)
        threads = self.tile.threads
        lanes = self._choose_copy_lanes(
            side, inner, points, self.dot.group if self.dot and side.along_k else None
        )
        flat = s.fuse(*loops) if len(loops) > 1 else loops[0]
        if lanes > 1:
            step, thread, lane = s.split(flat, [None, threads, lanes])
            s.vectorize(lane)
        else:
            step, thread = s.split(flat, [None, threads])
        s.bind(thread, self.grid.threads)
        s.unroll(step)

    def _choose_copy_lanes(self, side: Side, inner: int, points: int, most: int | None = None) -> int:
        """Choose the vector width of copies of an operand's tile of `points` elements, `inner` in a row."""
        lanes = max(1, self.machine.description.load_bytes * 8 // side.bits)
        lanes = lanes if most is None else min(lanes, most)
        while lanes > 1 and (side.run % lanes or inner % lanes or points < lanes * self.tile.threads):
            lanes //= 2
        return choose_lanes(lanes, where=side.buffer)

    def _vector(self, loop: LoopRV) -> None:
        extent = const_value(self.s.extent(loop))
        if isinstance(extent, int) and extent > 1:
            self.s.vectorize(loop)

    def _is_double_buffered(self) -> bool:
        """Whether tiles are double-buffered: only if that does not reduce the number of resident groups."""
        facts, normal = self.machine.description, self.normal
        bits = max(normal.a.bits, normal.b.bits)
        twice = shared_bytes(self.tile, bits, 2)
        several = normal.k is None or normal.k > self.tile.depth
        fits = not facts.shared_bytes or twice <= facts.shared_bytes
        if not several or not fits:
            return False
        at_once = [resident(self.tile, bits, normal.bits, facts, buffers) for buffers in (1, 2)]
        return choose_stages(2 if at_once[0] == at_once[1] else 1, (1, 2)) == 2

    # Epilogue

    def _store(self, out: BlockRV, lanes: int) -> None:
        s = self.s
        i, j = s.get_loops(out)[-2:]
        s.unroll(i)
        lanes = choose_lanes(lanes, (1, lanes), where="store")
        if lanes > 1:
            s.vectorize(j)
        else:
            s.unroll(j)


__all__ = ["ContractionRule", "ContractionScheduler", "normal_of", "problem_of"]
