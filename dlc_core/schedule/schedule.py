"""`Schedule`: a program and the primitives that transform it without changing what it computes.

    sch = Schedule(func)
    c = sch.get_block("matmul")
    i, j, k = sch.get_loops(c)
    i0, i1 = sch.split(i, [None, 4])
    sch.parallel(i0)
    sch.func                       # the transformed PrimFunc

Each primitive checks its own legality and raises ScheduleError, which shows the loop nest and the reason; the
program is then as it was.  Handles stay valid until a primitive removes or replaces what they name.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from dlc_core.diag import ScheduleError
from dlc_core.ir.expr import Expr, ExprLike
from dlc_core.ir.module import IRModule
from dlc_core.schedule import (
    alignment,
    block_axes,
    buffers,
    compact,
    einsum,
    inline,
    layout,
    padding,
    pipeline,
    query,
    reduction,
    threads,
)
from dlc_core.schedule import blockize as blockizing
from dlc_core.schedule import compute_at as moving
from dlc_core.schedule import decide as deciding
from dlc_core.schedule import loops as loop_primitives
from dlc_core.schedule import prefetch as prefetching
from dlc_core.schedule import reindex as reindexing
from dlc_core.schedule import tensor_copy as tensor_copies
from dlc_core.schedule import tensorize as tensorizing
from dlc_core.schedule import trim as trimming
from dlc_core.schedule.handles import BlockRV, Copy, LoopRV, Loops
from dlc_core.schedule.index_map import IndexMap
from dlc_core.schedule.intrin import TensorIntrin
from dlc_core.schedule.sampling import Sampling
from dlc_core.schedule.traced import Traced, primitive
from dlc_core.schedule.tree import Program, prepared
from dlc_core.tir.stmt import Block, For, PrimFunc
from dlc_core.tir.tensor_copy import Bulk


class Schedule(Sampling):
    """A PrimFunc, or all PrimFuncs of a module, under transformation.

    Blocks are known by name; names used twice in a function are numbered.  `seed` starts the generator of
    the sampling primitives; `intrins` are tensor intrinsics by name.
    """

    def __init__(
        self,
        program: PrimFunc | IRModule,
        *,
        seed: int = 0,
        intrins: Mapping[str, TensorIntrin] = MappingProxyType({}),
    ) -> None:
        if isinstance(program, IRModule):
            functions = program.of_kind(PrimFunc)
            if not functions:
                raise ScheduleError("the module has no PrimFunc to schedule")
            working = program.entry if program.entry in functions else next(iter(functions))
        else:
            functions, working = {program.name: program}, program.name
        module = program if isinstance(program, IRModule) else None
        programs = {name: Program(func) for name, func in prepared(functions).items()}
        super().__init__(programs, module, working)
        self._random.seed(seed)
        self._intrins: ChainMap[str, TensorIntrin] = ChainMap({}, intrins)  # type: ignore[arg-type]
        self._used: dict[str, TensorIntrin] = {}

    @property
    def func(self) -> PrimFunc:
        """The function that is worked on, as it is now."""
        return self._program.func

    @property
    def mod(self) -> IRModule:
        """The module as it is now; one of a single function where the schedule is of a function."""
        module = IRModule(entry=self._working) if self._module is None else self._module
        return module.with_functions({name: program.func for name, program in self._programs.items()})

    @primitive
    def work_on(self, func: str) -> None:
        """Let `func`, `get_block` without a function, and handles that name none, mean another function of
        the module."""
        self._home(BlockRV("", func))
        self._working = func

    def show(self) -> str:
        """The loop nest with its blocks, one line each."""
        return "\n".join(self._program.outline())

    def copy(self) -> Schedule:
        """A schedule that goes its own way from here; handles are good for both."""
        other = Schedule.__new__(Schedule)
        programs = {name: Program(program.func) for name, program in self._programs.items()}
        Traced.__init__(other, programs, self._module, self._working)
        other.trace.steps.extend(self.trace.steps)
        other._random.setstate(self._random.getstate())
        other._intrins, other._used = self._intrins.copy(), dict(self._used)
        return other

    # Blocks and loops.

    @primitive
    def get_block(self, name: str, func: str | None = None) -> BlockRV:
        """The block of that name, of a function of the module where `func` names one; ScheduleError lists the
        known ones."""
        if func is not None:
            self._active = self._home(BlockRV(name, func))
        self._program.block(BlockRV(name))
        return BlockRV(name)

    @primitive
    def get_blocks(self) -> list[BlockRV]:
        """All blocks, outer before inner, in order of execution."""
        return [BlockRV(name) for name in self._program.tree.blocks]

    @primitive
    def get_loops(self, block: BlockRV) -> list[LoopRV]:
        """Loops around a block, outer to inner."""
        return query.loops_of(self._program, block)

    @primitive
    def get_child_blocks(self, parent: BlockRV | LoopRV) -> list[BlockRV]:
        """Outermost blocks inside a loop or a block, in order of execution."""
        return query.child_blocks(self._program, parent)

    @primitive
    def get_producers(self, block: BlockRV) -> list[BlockRV]:
        """Other blocks that write what the block reads."""
        return query.producers(self._program, block)

    @primitive
    def get_consumers(self, block: BlockRV) -> list[BlockRV]:
        """Other blocks that read what the block writes."""
        return query.consumers(self._program, block)

    @primitive
    def get_output_blocks(self) -> list[BlockRV]:
        """Blocks that write a parameter of the function."""
        return query.output_blocks(self._program)

    def get(self, handle: BlockRV) -> Block:
        """The block as it stands in the tree."""
        return self._programs[self._function_of(handle)].block(BlockRV(handle.name))

    def get_for(self, handle: LoopRV) -> For:
        """The loop as it stands in the tree."""
        return self._programs[self._function_of(handle)].loop(handle)

    def extent(self, loop: LoopRV) -> Expr:
        """Number of iterations."""
        return self.get_for(loop).extent

    # Loops.

    @primitive
    def split(self, loop: LoopRV, factors: Sequence[ExprLike | None], tail: str = "predicate") -> Loops:
        """Loops of the given extents, outer to inner, in place of one; a factor None is computed.

        `tail` says what happens where the extent is no multiple of the product of the factors:
        "predicate" guards the blocks inside; "shrink" makes the inner loops of the last tile shorter (extents
        become `min(factor, what is left)`: a later partition of the outer loop makes both constant);
        "balanced" makes the tiles of a known extent equal up to one, the larger ones first (a partition after
        those makes the inner extents constant);
        "partition" runs full tiles only and then, as `.tail` of the result, a copy of the loop over the rest;
        "exact" refuses.  Extents and factors may be symbolic.
        """
        return loop_primitives.split(self._program, loop, factors, tail)

    @primitive
    def partition(self, loop: LoopRV, points: Sequence[ExprLike]) -> list[Copy]:
        """Consecutive loops [begin, p0), [p0, p1), … in place of one, each with a copy of the body.

        The first keeps the handles; `copy[handle]` names the loops and blocks of the others.  Points are
        values of the loop variable.  Bounds and predicates inside are simplified for each range.
        """
        return loop_primitives.partition(self._program, loop, points)

    @primitive
    def decide(self, loop: LoopRV) -> None:
        """Leave out of the blocks in a loop what conditions choose between, where ranges of loops decide
        them.

        After `partition` a part may read less than the whole did.
        """
        deciding.decide(self._program, loop)

    @primitive
    def trim(self, loop: LoopRV) -> None:
        """End a loop that accumulates where the condition of what is combined holds no more.

        What the new end ensures is left out of the condition.  The loop holds one block; where nothing is
        known of its condition it stays.
        """
        trimming.trim(self._program, loop)

    @primitive
    def fuse(self, *loops: LoopRV) -> LoopRV:
        """One loop over the product of directly nested ones, given outer to inner."""
        return loop_primitives.fuse(self._program, loops)

    @primitive
    def reorder(self, *loops: LoopRV) -> None:
        """Put loops of one nest in the given order, outer to inner; loops between them that are not named
        stay."""
        loop_primitives.reorder(self._program, loops)

    @primitive
    def unroll(self, loop: LoopRV) -> None:
        """Replace a loop of constant extent by its iterations, when lowered."""
        loop_primitives.set_kind(self._program, loop, "unrolled")

    @primitive
    def vectorize(self, loop: LoopRV) -> None:
        """Run a loop of constant extent as lanes of vectors."""
        loop_primitives.set_kind(self._program, loop, "vectorized")

    @primitive
    def parallel(self, loop: LoopRV) -> None:
        """Run the iterations on several threads."""
        loop_primitives.set_kind(self._program, loop, "parallel")

    @primitive
    def serial(self, loop: LoopRV) -> None:
        """Run the iterations one after the other."""
        loop_primitives.set_kind(self._program, loop, "serial")

    @primitive
    def bind(self, loop: LoopRV, thread: str) -> None:
        """Bind a loop to a hardware axis of the target, by the target's name for it (`tir/threads.py`).

        Names that begin with "block" are axes of groups of threads, "vthread" gives virtual threads, which
        one thread runs in turn.  A loop that accumulates may be bound to threads of a group where
        `lower_cross_thread_reduction` can let them share the reduction.
        """
        threads.bind(self._program, loop, thread)

    @primitive
    def swizzle(self, outer: LoopRV, inner: LoopRV, group: int, thread: str = "") -> LoopRV:
        """One loop over two nested ones that goes through `group` rows (of the outer one) at a time, column
        by column, so that iterations near in time are near in both dims and find their inputs in a cache.

        Any extents will do.  The loop is bound to `thread`, an axis of groups, or else like the outer one.
        """
        return threads.swizzle(self._program, outer, inner, group, thread)

    @primitive
    def software_pipeline(
        self, loop: LoopRV, stages: Sequence[int], order: Sequence[int] | None = None, spare: int = 0
    ) -> None:
        """Let the parts of a serial loop's body be in different iterations at once, when lowered.

        Parts are the statements in sequence in the body, in order of execution.  One of stage s runs s
        iterations behind those of stage 0; `order` is each part's place in the new body (as it is, by
        default).  Memory between stages is kept as often as there are iterations that need it.  The results
        stay, and ScheduleError says where a part would run too early.

        Shared memory that is read two stages or more after it is filled may be filled by copies that run
        beside the threads; with `spare` it is kept for so many iterations more, in which units that read it
        in place may still do so.
        """
        pipeline.software_pipeline(self._program, loop, stages, order, spare)

    @primitive
    def bulk_copy(
        self, loop: LoopRV, *, dims: int = 5, extent: int = 256, align: int = 16, row: int = 128
    ) -> None:
        """Let one thread have a box of a tensor copied to shared memory, which a nest of loops does.

        The nest copies from a parameter, without gaps; what lies outside of the tensor is zero.  A box has up
        to `dims` dims of up to `extent` elements, its rows up to `row` bytes; strides and rows are multiples
        of `align` bytes.  ScheduleError says what is different.
        """
        tensor_copies.bulk_copy(self._program, loop, Bulk(dims, extent, align, row))

    @primitive
    def double_buffer(self, block: BlockRV) -> LoopRV:
        """Let a block fill its buffer for the next iteration while its readers use the present one.

        It is a software pipeline of two stages over the serial loop that holds the block and its readers,
        which is returned.  What the block depends on there runs ahead with it.
        """
        return pipeline.double_buffer(self._program, block)

    @primitive
    def prefetch(
        self,
        loop: LoopRV,
        buffer: str,
        ahead: int,
        among: Sequence[LoopRV] = (),
        rounds: Sequence[int] = (),
    ) -> None:
        """Ask in each iteration of a loop for memory `ahead` elements behind what it reads of a buffer.

        The distance is one in memory, whatever the buffer's shape, and may lead out of it: hints do no harm.
        Where rounds of the loops `among` around it read the same, each asks for its part of the lines; of
        how many `rounds` each of these loops has some.
        """
        prefetching.prefetch(self._program, loop, buffer, ahead, among, rounds)

    @primitive
    def prefetch_at(
        self, loop: LoopRV, buffer: str, counts: Sequence[LoopRV], places: IndexMap | Callable[..., Any]
    ) -> None:
        """Ask in each iteration of a loop for one place of a parameter, which the loop need not read.

        `places` gives the place from where `counts` are, loops around this one or the loop itself.
        """
        chosen = places if isinstance(places, IndexMap) else IndexMap.of(places)
        prefetching.prefetch_at(self._program, loop, buffer, counts, chosen)
        self._record(loop, buffer, counts, chosen)

    @primitive
    def annotate(self, target: LoopRV | BlockRV, key: str, value: Any) -> None:
        """Attach a value to a loop or block; None takes it away."""
        loop_primitives.annotate(self._program, target, key, value)

    @primitive
    def add_unit_loop(self, target: LoopRV | BlockRV) -> LoopRV:
        """A loop of one iteration around a loop or block."""
        return loop_primitives.add_unit_loop(self._program, target)

    # Where blocks are computed.

    @primitive
    def compute_inline(self, block: BlockRV) -> None:
        """Put the expression of a block without reduction into all its readers; the block and its buffer
        vanish."""
        inline.compute_inline(self._program, block)

    @primitive
    def reverse_compute_inline(self, block: BlockRV) -> None:
        """Put a block that reads one intermediate buffer point by point into that buffer's producer.

        The producer (without reduction) takes the block's name and writes the block's output directly.
        """
        inline.reverse_compute_inline(self._program, block)

    @primitive
    def compute_at(
        self, block: BlockRV, loop: LoopRV, preserve_unit_loops: bool = True, index: int | None = None
    ) -> None:
        """Compute a block inside a loop around its readers, over the region they need in one iteration.

        Readers behind the loop may read what all its iterations make; memory then stays where it is.

        The block gets one fresh loop for each of its axes, in their order, also for those of one point unless
        `preserve_unit_loops` is False; its buffer is allocated inside the loop (`compact_buffers` shrinks it
        to the region).  `index` is the number among the loop's statements that it gets; else it stands right
        before the first reader.
        """
        moving.compute_at(self._program, block, loop, preserve_unit_loops, index)

    @primitive
    def reverse_compute_at(
        self, block: BlockRV, loop: LoopRV, preserve_unit_loops: bool = True, index: int | None = None
    ) -> None:
        """Compute a block inside a loop of its producers, over the region that one iteration completes.

        Options as for `compute_at`; without `index` it stands right after the last producer.
        """
        moving.reverse_compute_at(self._program, block, loop, preserve_unit_loops, index)

    @primitive
    def duplicate(self, block: BlockRV, consumers: Sequence[BlockRV]) -> BlockRV:
        """A second copy of a block, with a buffer of its own, for some of its readers; the others keep the
        first.

        Lets a block be computed at several places, each for its own readers.
        """
        return buffers.duplicate(self._program, block, consumers)

    # Buffers.

    @primitive
    def set_scope(self, block: BlockRV, buffer: int | str, scope: str) -> None:
        """Put an intermediate buffer that the block writes into another memory, such as "local".

        `buffer`, here and below, is its number among the block's writes (or reads), or its name.
        """
        buffers.set_scope(self._program, block, buffer, scope)

    @primitive
    def cache_read(self, block: BlockRV, buffer: int | str, scope: str) -> BlockRV:
        """Let the block read a copy, in `scope`, of one of its inputs; returns the copying block.

        The copy is made in full before the block's loops; `compute_at` moves it to where it is used.
        """
        return buffers.cache_read(self._program, block, buffer, scope)

    @primitive
    def cache_write(self, block: BlockRV, buffer: int | str, scope: str) -> BlockRV:
        """Let the block write to a buffer in `scope` that is copied to its output; returns the copying block.

        The copy is made in full after the block's loops; `reverse_compute_at` moves it, or `compute_at` moves
        the block under the copy's loops.
        """
        return buffers.cache_write(self._program, block, buffer, scope)

    @primitive
    def reindex(self, block: BlockRV, buffer: str | tuple[str, int]) -> BlockRV:
        """Let the block touch a buffer in its own order: a copy whose dims are those of the block's axes that
        index the buffer.

        `buffer` is a name, or ("read", n), ("write", n) among the block's, which touches it at one place.
        Returns the copying block `<buffer>_reindex`, before the block's loops, or after them where the block
        writes the buffer.
        """
        return reindexing.reindex(self._program, block, buffer)

    @primitive
    def storage_align(
        self, block: BlockRV, buffer: int | str, axis: int, factor: int, offset: int = 0
    ) -> None:
        """Give dim `axis` of an intermediate buffer that the block writes a stride, in elements, that is
        `offset` more than a multiple of `factor`.

        Keeps rows apart, such as over the banks of a memory; `compact_buffers` keeps it so.
        """
        alignment.storage_align(self._program, block, buffer, axis, factor, offset)

    @primitive
    def compact_buffers(self) -> None:
        """Shrink every intermediate buffer to what is alive, allocated in the innermost loop around its
        uses."""
        self._program.set_func(compact.compact_buffer_allocation(self._program.func))

    @primitive
    def transform_layout(
        self,
        block: BlockRV,
        buffer: str | tuple[str, int],
        index_map: IndexMap | Callable[..., Any],
        pad_value: float | None = None,
    ) -> None:
        """Store a buffer in another layout: element [i…] becomes element [index_map(i…)].

        `buffer` is a name, or ("read", n), ("write", n) among the block's.  An intermediate buffer is changed
        for all its users; where its producer is a plain assignment with loops of its own, that one then runs
        over the new dims, and with `pad_value` also fills what the layout adds.  A parameter that is only
        read is passed in the new layout from now on: `func.attrs["repack"]` maps the number of the parameter
        to the IndexMap, whose `apply_numpy` repacks an array (with zeros for padding).
        """
        chosen = index_map if isinstance(index_map, IndexMap) else IndexMap.of(index_map)
        layout.transform_layout(self._program, block, buffer, chosen, pad_value)
        options = {} if pad_value is None else {"pad_value": pad_value}
        self._record(block, buffer, chosen, **options)

    # Axes of blocks.

    @primitive
    def reorder_block_axes(self, block: BlockRV, order: Sequence[int]) -> None:
        """Put the axes of a block in another order, given by their numbers; loops stay.

        The order is that of the loops which `compute_at` makes, and of the dims which `reindex` makes.
        """
        block_axes.reorder_block_axes(self._program, block, order)

    @primitive
    def transform_block_layout(self, block: BlockRV, index_map: IndexMap | Callable[..., Any]) -> None:
        """Run a block over other axes: point [axes…] is run as point [index_map(axes…)].

        The block must have one loop for each axis, and gets one for each output, in order.  Outputs are
        digits of axes, in whole tiles.  Axes that stay as they are may have loops that hold more than it.
        """
        chosen = index_map if isinstance(index_map, IndexMap) else IndexMap.of(index_map)
        block_axes.transform_block_layout(self._program, block, chosen)
        self._record(block, chosen)

    @primitive
    def fuse_block_axes(self, block: BlockRV, first: int, count: int) -> None:
        """Run a block over one axis in place of `count` neighbouring ones of a kind, from number `first` on.

        The block must have one loop for each axis, and then has one for each of the new ones, in their order.
        """
        block_axes.fuse_block_axes(self._program, block, first, count)

    # Blocks of blocks.

    @primitive
    def blockize(self, target: LoopRV | BlockRV) -> BlockRV:
        """Make all that a loop runs, which must be one block, a unit: an outer block around an inner one.

        Each axis is divided into tiles, which the outer block `<name>_o` moves, and the points of a tile,
        which run inside it over the loop and those within; a tile may be cut by the block's predicate.  Loops
        inside are moved by primitives as before, but not out of the outer block.  For a block: itself without
        loops.
        """
        return blockizing.blockize(self._program, target)

    @primitive
    def tensorize(self, target: LoopRV | BlockRV, intrin: TensorIntrin | str) -> BlockRV:
        """Let an intrinsic compute what a loop runs, or what a block made by `blockize` does.

        The computation must be the one that the intrinsic describes, up to the order of loops, of operands
        that commute, and of dims that do not move; an initialisation that is not described is done before.
        A name means one of the schedule's `intrins`.  Compact buffers and change layouts before.
        """
        found = self._intrin(intrin)
        result = tensorizing.tensorize(self._program, target, found)
        self._intrins[found.name] = self._used[found.name] = found
        self._record(target, found)
        return result

    def _intrin(self, intrin: TensorIntrin | str) -> TensorIntrin:
        name = intrin if isinstance(intrin, str) else intrin.name
        known = self._intrins.get(name)
        if isinstance(intrin, TensorIntrin):
            if known not in (None, intrin):
                raise ScheduleError(f"the schedule knows another intrinsic {name!r}")
            return intrin
        if known is None:
            names = ", ".join(self._intrins) or "none"
            hint = f"known: {names}; Schedule(func, intrins=…) gives them"
            raise ScheduleError(f"there is no intrinsic {name!r}", hint=hint)
        return known

    @property
    def intrins(self) -> Mapping[str, TensorIntrin]:
        """The tensor intrinsics that are known by name."""
        return MappingProxyType(self._intrins)

    @property
    def externs(self) -> dict[str, Callable[..., Any]]:
        """What the external symbols of the intrinsics in use do, for the interpreter."""
        return {s: f for intrin in self._used.values() for s, f in intrin.functions().items()}

    # Reductions.

    @primitive
    def decompose_reduction(self, block: BlockRV, loop: LoopRV) -> BlockRV:
        """Initialise before `loop` instead of at the first step; returns the initialising block
        `<name>_init`.

        Its loops are copies of those from `loop` inward that move spatial axes, vectorized and unrolled ones
        staying so.  No loop outside of `loop` may accumulate.
        """
        return reduction.decompose_reduction(self._program, block, loop)

    @primitive
    def rfactor(self, loop: LoopRV, axis: int) -> BlockRV:
        """Give every iteration of a loop that accumulates an accumulator of its own.

        The partial results form a new buffer with the loop as dim `axis`; the returned block `<name>_rf`
        computes them, and the old block now combines them.  Sums of floats are reordered.
        """
        return reduction.rfactor(self._program, loop, axis)

    # Padding.

    @primitive
    def decompose_padding(self, block: BlockRV, loop: LoopRV) -> list[BlockRV]:
        """Split a block `B[…] = value where inside else constant` into fills of the border and a plain copy.

        Done inside `loop`, one of the block's own loops; those from it inward are made anew, one for each
        axis.  Returns the filling blocks, then the copying one, which keeps the block's name.
        """
        return padding.decompose_padding(self._program, block, loop)

    @primitive
    def pad_einsum(self, block: BlockRV, padding: Sequence[int]) -> list[BlockRV]:
        """Pad the axes of a sum of products to multiples of the given numbers, one for each axis.

        Operands are copied to buffers `<name>_pad` with zeros around them, the result is cut out of a larger
        one; tiles of those sizes are then whole.  Returns the padding blocks and, where the result was
        padded, the block that cuts it out.
        """
        return einsum.pad_einsum(self._program, block, padding)


__all__ = ["Schedule"]
