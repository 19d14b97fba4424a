"""Random schedules of a program: calls of primitives that a schedule accepts must not change results.

    sch = random_schedule(func, random.Random(0))
    check_schedule_trace(func, sizes, sch)

Values are small integers held in floats, so that sums are exact in every order.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from dlc_core.diag import ScheduleError, VerifyError
from dlc_core.ir.convert import convert
from dlc_core.ir.expr import Expr, Var, const_value
from dlc_core.ir.structural import first_difference
from dlc_core.passes.tir import flatten_and_simplify, lower_blocks, unroll_loops, vectorize_loops
from dlc_core.schedule import BlockRV, IndexMap, LoopRV, Schedule, TensorIntrin, Trace
from dlc_core.script import parse, to_script
from dlc_core.testing.te_programs import Array, arrays_for, results_of
from dlc_core.tir.functor import buffers_written
from dlc_core.tir.interpreter import run
from dlc_core.tir.stmt import PrimFunc
from dlc_core.tir.verify import verify_func

FREQUENT = (
    "split",
    "compute_at",
    "reverse_compute_at",
    "compute_inline",
    "reorder",
    "kind",
    "decompose_reduction",
    "compact_buffers",
)
"""Calls that other calls depend on. They are tried more often."""


class RandomCalls:
    """Calls primitives with arguments chosen by `rng`, and counts the legal calls."""

    def __init__(self, schedule: Schedule, rng: random.Random, intrins: Sequence[TensorIntrin] = ()) -> None:
        self.sch = schedule
        self.rng = rng
        self.intrins = tuple(intrins)
        self.done: list[str] = []
        self.refused: list[str] = []

    def call(self, name: str) -> None:
        """Call a method of this class. A refused call must not change the program."""
        method: Callable[[], object] = getattr(self, name)
        before, steps = self.sch.func, len(self.sch.trace.steps)
        try:
            method()
        except ScheduleError as error:
            changes = any(not s.name.startswith("get") for s in self.sch.trace.steps[steps:])
            if self.sch.func is not before and not changes:
                raise VerifyError(f"a refused {name} changed the program") from error
            self.refused.append(str(error))
        else:
            self.done.append(name)

    # Arguments.

    def block(self) -> BlockRV:
        return self.rng.choice(self.sch.get_blocks())

    def loop(self) -> LoopRV:
        found = [loop for block in self.sch.get_blocks() for loop in self.sch.get_loops(block)]
        if not found:
            raise ScheduleError("the program has no loop")
        return self.rng.choice(found)

    def loop_of(self, blocks: Sequence[BlockRV]) -> LoopRV:
        """A loop around one of the blocks, or any loop if there is none."""
        found = [loop for block in blocks for loop in self.sch.get_loops(block)]
        return self.rng.choice(found) if found else self.loop()

    def reducing(self) -> BlockRV:
        """A reduction block, or any block if there is none."""
        found = [b for b in self.sch.get_blocks() if any(a.kind == "reduce" for a in self.sch.get(b).axes)]
        return self.rng.choice(found) if found else self.block()

    def index(self) -> int | None:
        return self.rng.choice((None, None, None, 0, 1, 2))

    # Calls of primitives.

    def split(self) -> None:
        tail = self.rng.choice(("predicate", "shrink", "partition", "balanced", "exact"))
        factors = self.rng.choice(
            ([None, 2], [None, 3], [None, 2, 2], [2, None], [4, None], [None, 16], [2, None, 2])
        )
        self.sch.split(self.loop(), factors, tail)

    def split_by_sample(self) -> None:
        loop = self.loop()
        self.sch.split(loop, self.sch.sample_perfect_tile(loop, self.rng.choice((2, 3))))

    def split_by_choice(self) -> None:
        loop = self.loop()
        self.sch.split(loop, [None, self.sch.sample_categorical([2, 3, 4], [0.5, 0.25, 0.25])])

    def split_by_dim(self) -> None:
        if self.sch.func.scalars:
            dim: Expr = self.rng.choice(self.sch.func.scalars)
            self.sch.split(self.loop(), self.rng.choice(([None, dim], [dim, None], [None, dim // 2 + 1])))

    def partition(self) -> None:
        loop = self.loop()
        self.sch.partition(loop, [self.sch.get_for(loop).begin + self.rng.randint(0, 3)])

    def widen(self) -> None:
        loop = self.loop()
        extent = const_value(self.sch.extent(loop))
        self.sch.widen(loop, (extent or 0) + self.rng.randint(0, 9))

    def skip_zeros(self) -> None:
        self.sch.skip_zeros(self.loop())

    def fuse(self) -> None:
        loops = self.sch.get_loops(self.block())
        first = self.rng.randint(0, max(0, len(loops) - 2))
        self.sch.fuse(*loops[first : first + 2])

    def reorder(self) -> None:
        loops = self.sch.get_loops(self.block())
        self.rng.shuffle(loops)
        self.sch.reorder(*loops[:3])

    def kind(self) -> None:
        getattr(self.sch, self.rng.choice(("parallel", "vectorize", "unroll", "serial")))(self.loop())

    def annotate(self) -> None:
        target = self.rng.choice((self.block, self.loop))()
        self.sch.annotate(target, "note", self.rng.choice((None, 1, 0.5, "x", (1, 2))))

    def add_unit_loop(self) -> None:
        self.sch.add_unit_loop(self.rng.choice((self.block, self.loop))())

    def compute_inline(self) -> None:
        self.sch.compute_inline(self.block())

    def reverse_compute_inline(self) -> None:
        self.sch.reverse_compute_inline(self.block())

    def compute_at(self) -> None:
        block = self.block()
        loop = self.loop_of(self.sch.get_consumers(block))
        self.sch.compute_at(block, loop, self.rng.random() < 0.7, self.index())

    def compute_at_sample(self) -> None:
        block = self.block()
        loop = self.sch.sample_compute_location(block)
        if loop is not None:
            self.sch.compute_at(block, loop)

    def reverse_compute_at(self) -> None:
        block = self.block()
        loop = self.loop_of(self.sch.get_producers(block))
        self.sch.reverse_compute_at(block, loop, self.rng.random() < 0.7, self.index())

    def duplicate(self) -> None:
        block = self.block()
        users = self.sch.get_consumers(block)
        self.sch.duplicate(block, users[: self.rng.randint(0, len(users))])

    def cache_read(self) -> None:
        self.sch.cache_read(self.block(), self.rng.randint(0, 1), "local")

    def cache_write(self) -> None:
        self.sch.cache_write(self.block(), 0, "local")

    def set_scope(self) -> None:
        self.sch.set_scope(self.block(), 0, "local")

    def reindex(self) -> None:
        block = self.block()
        self.sch.reindex(block, (self.rng.choice(("read", "write")), self.rng.randint(0, 1)))

    def storage_align(self) -> None:
        factor = self.rng.choice((1, 2, 4, 8))
        axis, offset = self.rng.randint(-1, 1), self.rng.randrange(factor)
        self.sch.storage_align(self.block(), 0, axis, factor, offset)

    def decompose_reduction(self) -> None:
        block = self.reducing()
        self.sch.decompose_reduction(block, self.loop_of([block]))

    def rfactor(self) -> None:
        self.sch.rfactor(self.loop_of([self.reducing()]), self.rng.randint(0, 2))

    def decompose_padding(self) -> None:
        block = self.block()
        self.sch.decompose_padding(block, self.loop_of([block]))

    def pad_einsum(self) -> None:
        block = self.reducing()
        self.sch.pad_einsum(block, [self.rng.choice((1, 2, 3, 4)) for _ in self.sch.get(block).axes])

    def reorder_block_axes(self) -> None:
        block = self.block()
        order = list(range(len(self.sch.get(block).axes)))
        self.rng.shuffle(order)
        self.sch.reorder_block_axes(block, order)

    def transform_block_layout(self) -> None:
        block = self.block()
        rank = len(self.sch.get(block).axes)
        self.sch.transform_block_layout(block, self.tiling(rank))

    def blockize(self) -> None:
        self.sch.blockize(self.rng.choice((self.loop, self.loop, self.block))())

    def tensorize(self) -> None:
        """Tile the last loops of a block by the shape of an intrinsic, and tensorize the inner loops."""
        if not self.intrins:
            return
        intrin = self.rng.choice(self.intrins)
        shape = intrin_extents(intrin)
        fitting = [b for b in self.sch.get_blocks() if self._in_tiles(b, shape)]
        if not fitting:
            raise ScheduleError(f"no block has loops that are multiples of {shape}")
        loops = self.sch.get_loops(self.rng.choice(fitting))[-len(shape) :]
        tiles = [self.sch.split(loop, [None, size], "exact") for loop, size in zip(loops, shape)]
        self.sch.reorder(*(t[0] for t in tiles), *(t[1] for t in tiles))
        self.sch.tensorize(tiles[0][1], intrin)

    def _in_tiles(self, block: BlockRV, shape: Sequence[int]) -> bool:
        """Whether the last loops of a block are multiples of a tile, and it accumulates."""
        extents = [const_value(self.sch.extent(loop)) for loop in self.sch.get_loops(block)[-len(shape) :]]
        divisible = all(extent and extent % size == 0 for extent, size in zip(extents, shape))
        accumulates = any(a.kind == "reduce" for a in self.sch.get(block).axes)
        return len(extents) == len(shape) and divisible and accumulates

    def compact_buffers(self) -> None:
        self.sch.compact_buffers()

    def transform_layout(self) -> None:
        block = self.block()
        found = self.sch.get(block)
        regions = [*found.reads, *found.writes]
        if not regions:
            return
        buffer = self.rng.choice(regions).buffer
        if not buffer.ndim:
            return
        dim, factor = self.rng.randrange(buffer.ndim), self.rng.randint(2, 4)

        def tiled(*indices: Var) -> tuple[Expr, ...]:
            rest = [i for d, i in enumerate(indices) if d != dim]
            return (indices[dim] // factor, *rest, indices[dim] % factor)

        layout = IndexMap.of(tiled, buffer.ndim)
        size = const_value(buffer.shape[dim])
        # Padding is uninitialised, so a later cache must not copy it.
        self.sch.transform_layout(block, buffer.name, layout, None if size and size % factor == 0 else 0.0)

    def tiling(self, rank: int) -> IndexMap:
        """An index map that permutes the axes and tiles one of them."""
        order = list(range(rank))
        self.rng.shuffle(order)
        dim, factor = self.rng.randrange(max(rank, 1)), self.rng.randint(2, 4)

        def tiled(*axes: Var) -> list[Expr]:
            outputs: list[Expr] = [axes[d] for d in order]
            if rank:
                outputs[order.index(dim)] = axes[dim] // factor
                outputs.insert(self.rng.randint(0, rank), axes[dim] % factor)
            return outputs

        return IndexMap.of(tiled, rank)


HELPERS = ("block", "loop", "call", "loop_of", "reducing", "index", "tiling")
CALLS = tuple(sorted(n for n in vars(RandomCalls) if not n.startswith("_") and n not in HELPERS))


def intrin_extents(intrin: TensorIntrin) -> list[int]:
    """Extents of the loops of an intrinsic's description, outer to inner."""
    schedule = Schedule(intrin.desc)
    loops = schedule.get_loops(schedule.get_blocks()[-1])
    return [size for loop in loops if (size := const_value(schedule.extent(loop))) is not None]


def random_schedule(
    func: PrimFunc, rng: random.Random, calls: int = 14, intrins: Sequence[TensorIntrin] = ()
) -> RandomCalls:
    """Make up to `calls` random calls on a schedule, the field `sch` of the result."""
    schedule = Schedule(func, seed=rng.randrange(1 << 30), intrins={i.name: i for i in intrins})
    made = RandomCalls(schedule, rng, intrins)
    for _ in range(rng.randint(1, calls)):
        made.call(rng.choice((*CALLS, *FREQUENT)))
    return made


def lowered(func: PrimFunc) -> PrimFunc:
    """Lower a program to plain loops over flat memory."""
    return unroll_loops(vectorize_loops(flatten_and_simplify(lower_blocks(func))))


def check_schedule_trace(
    func: PrimFunc, sizes: Mapping[Var, int], schedule: Schedule, seed: int = 0, *, texts: bool = True
) -> None:
    """Check that the scheduled program computes the same bits, before and after lowering, that it parses back
    from its text, and that its trace and the trace's JSON reproduce it. Raises VerifyError with the
    difference."""
    arrays = arrays_for(func, sizes, np.random.default_rng(seed))
    written = set(buffers_written(func.body))
    outputs = [n for n, b in enumerate(func.buffers) if b in written]
    for n in outputs:
        arrays[n][...] = convert(99, func.buffers[n].dtype)
    expected = results_of(func, arrays, sizes)
    verify_func(schedule.func, level=2)
    externs = schedule.externs
    found = results_of(schedule.func, arrays, sizes, check=True, externs=externs)
    _same(found, expected, outputs, "the scheduled program")
    plain = lowered(schedule.func)
    verify_func(plain)
    given = [a.copy() for a in arrays]
    for position, layout in schedule.func.attrs.get("repack", {}).items():
        given[position] = layout.apply_numpy(given[position])
    flat = [a.reshape(-1) for a in given]
    run(plain, *flat, *(sizes[v] for v in plain.scalars), check=True, externs=externs)
    _same(flat, [e.reshape(-1) for e in expected], outputs, "the lowered program")
    again = Schedule(func)
    schedule.trace.replay(again)
    _equal(again.func, schedule.func, "the trace replayed")
    if texts:
        text, metadata = to_script(schedule.func)
        difference = first_difference(parse(text, metadata), schedule.func)
        if difference is not None:
            raise VerifyError("its text parses as another program", details=[difference])
        reread = Schedule(func, intrins=schedule.intrins)
        Trace.from_json(json.dumps(json.loads(schedule.trace.to_json()))).replay(reread)
        _equal(reread.func, schedule.func, "the trace from JSON")


def _same(found: Sequence[Array], expected: Sequence[Array], outputs: Sequence[int], what: str) -> None:
    for n in outputs:
        if not np.array_equal(found[n], expected[n]):
            raise VerifyError(f"{what} computes other values in buffer {n}")


def _equal(found: PrimFunc, expected: PrimFunc, what: str) -> None:
    difference = first_difference(found, expected)
    if difference is not None:
        raise VerifyError(f"{what} is another program", details=[difference])


__all__ = [
    "CALLS",
    "FREQUENT",
    "RandomCalls",
    "check_schedule_trace",
    "intrin_extents",
    "lowered",
    "random_schedule",
]
