"""`Schedule`: a program and the primitives that transform it without changing its results.

    sch = Schedule(func)
    c = sch.get_block("matmul")
    i, j, k = sch.get_loops(c)
    i0, i1 = sch.split(i, [None, 4])
    sch.parallel(i0)
    sch.func                       # the transformed PrimFunc

Each primitive checks its legality.  An illegal call raises ScheduleError with the loop nest and the reason,
and leaves the program unchanged.  Handles stay valid until a primitive removes or replaces their loop or
block.
"""

from __future__ import annotations

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
    zeros,
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
from dlc_core.schedule import widen as widening
from dlc_core.schedule.copied import Copied
from dlc_core.schedule.handles import BlockRV, Copy, LoopRV, Loops
from dlc_core.schedule.index_map import IndexMap
from dlc_core.schedule.intrin import TensorIntrin
from dlc_core.schedule.traced import primitive
from dlc_core.schedule.tree import Program, prepared
from dlc_core.tir.stmt import Block, For, PrimFunc
from dlc_core.tir.tensor_copy import Bulk


class Schedule(Copied):
    """A PrimFunc, or all PrimFuncs of a module, under transformation.

    Blocks are identified by name; duplicate names in a function get a number.  `seed` seeds the sampling
    primitives.  `intrins` maps names to tensor intrinsics.
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
        super().__init__(programs, module, working, intrins)
        self._random.seed(seed)

    @property
    def func(self) -> PrimFunc:
        """The current function."""
        return self._program.func

    @primitive
    def work_on(self, func: str) -> None:
        """Select the function for `get_block` and for handles that name no function."""
        self._function_name(BlockRV("", func))
        self._working = func

    def show(self) -> str:
        """The loop nest with its blocks, one line each."""
        return "\n".join(self._program.outline())

    # Blocks and loops.

    @primitive
    def get_block(self, name: str, func: str | None = None) -> BlockRV:
        """Return the block of this name, in function `func`; ScheduleError lists the known names."""
        if func is not None:
            self._active = self._function_name(BlockRV(name, func))
        self._program.block(BlockRV(name))
        return BlockRV(name)

    @primitive
    def get_blocks(self) -> list[BlockRV]:
        """All blocks, outer before inner, in order of execution."""
        return [BlockRV(name) for name in self._program.tree.blocks]

    @primitive
    def get_loops(self, block: BlockRV) -> list[LoopRV]:
        """The loops around a block, outer to inner."""
        return query.loops_of(self._program, block)

    @primitive
    def get_child_blocks(self, parent: BlockRV | LoopRV) -> list[BlockRV]:
        """The outermost blocks inside a loop or a block, in order of execution."""
        return query.child_blocks(self._program, parent)

    @primitive
    def get_producers(self, block: BlockRV) -> list[BlockRV]:
        """The blocks that write what the block reads."""
        return query.producers(self._program, block)

    @primitive
    def get_consumers(self, block: BlockRV) -> list[BlockRV]:
        """The blocks that read what the block writes."""
        return query.consumers(self._program, block)

    @primitive
    def get_output_blocks(self) -> list[BlockRV]:
        """The blocks that write a parameter of the function."""
        return query.output_blocks(self._program)

    def get(self, handle: BlockRV) -> Block:
        """The current block of a handle."""
        return self._programs[self._function_of(handle)].block(BlockRV(handle.name))

    def get_for(self, handle: LoopRV) -> For:
        """The current loop of a handle."""
        return self._programs[self._function_of(handle)].loop(handle)

    def extent(self, loop: LoopRV) -> Expr:
        """The number of iterations."""
        return self.get_for(loop).extent

    # Loops.

    @primitive
    def split(self, loop: LoopRV, factors: Sequence[ExprLike | None], tail: str = "predicate") -> Loops:
        """Split a loop into loops with the given extents, outer to inner; a factor None is computed.

        `tail` handles an extent that is not a multiple of the product of the factors.
        - "predicate" guards the blocks inside.
        - "shrink" shortens the inner loops of the last tile to `min(factor, rest)`; a later partition of the
          outer loop makes both extents constant.
        - "balanced" makes tiles of a known extent equal up to one, the larger ones first; a partition after
          these makes the inner extents constant.
        - "partition" runs full tiles only; `.tail` of the result is a copy of the loop for the rest.
        - "exact" refuses.

        Extents and factors may be symbolic.
        """
        return loop_primitives.split(self._program, loop, factors, tail)

    @primitive
    def partition(self, loop: LoopRV, points: Sequence[ExprLike]) -> list[Copy]:
        """Partition a loop into consecutive loops [begin, p0), [p0, p1), …, each with a copy of the body.

        The first loop keeps the handles; `copy[handle]` gives the loops and blocks of the others.  Points are
        values of the loop variable.  Bounds and predicates inside are simplified for each range.
        """
        return loop_primitives.partition(self._program, loop, points)

    @primitive
    def decide(self, loop: LoopRV) -> None:
        """Remove the branches in a loop's blocks that loop ranges exclude.

        A part that `partition` made may then read less than the whole loop did.
        """
        deciding.decide(self._program, loop)

    @primitive
    def trim(self, loop: LoopRV) -> None:
        """Shorten a reduction loop to the iterations in which the condition of its values may be true.

        Conjuncts that the new end ensures are removed.  The loop must contain one block.  A loop whose
        condition is not understood is unchanged.
        """
        trimming.trim(self._program, loop)

    @primitive
    def skip_zeros(self, loop: LoopRV) -> None:
        """Skip the iterations of a reduction loop whose products are zero because of padding.

        A factor must be zero unless a condition holds.  Results differ only if the other is not finite.
        """
        zeros.skip_zeros(self._program, loop)

    @primitive
    def widen(self, loop: LoopRV, extent: int) -> None:
        """Extend a loop by iterations that compute unread elements of an intermediate buffer."""
        widening.widen(self._program, loop, extent)

    def zero_share(self, loop: LoopRV) -> float:
        """The share of the iterations that `skip_zeros` skips; 0 if it is not known."""
        return zeros.zero_share(self._program, loop)

    @primitive
    def fuse(self, *loops: LoopRV) -> LoopRV:
        """Fuse directly nested loops, given outer to inner, into one."""
        return loop_primitives.fuse(self._program, loops)

    @primitive
    def reorder(self, *loops: LoopRV) -> None:
        """Reorder loops of one nest, outer to inner; other loops between them keep their position."""
        loop_primitives.reorder(self._program, loops)

    @primitive
    def unroll(self, loop: LoopRV) -> None:
        """Unroll a loop of constant extent when it is lowered."""
        loop_primitives.set_kind(self._program, loop, "unrolled")

    @primitive
    def vectorize(self, loop: LoopRV) -> None:
        """Vectorise a loop of constant extent: its iterations become lanes."""
        loop_primitives.set_kind(self._program, loop, "vectorized")

    @primitive
    def parallel(self, loop: LoopRV) -> None:
        """Run the iterations on several threads."""
        loop_primitives.set_kind(self._program, loop, "parallel")

    @primitive
    def serial(self, loop: LoopRV) -> None:
        """Run the iterations in order."""
        loop_primitives.set_kind(self._program, loop, "serial")

    @primitive
    def bind(self, loop: LoopRV, thread: str) -> None:
        """Bind a loop to a hardware axis of the target, by the target's name for it (`tir/threads.py`).

        Names that begin with "block" are axes of groups.  "vthread" gives virtual threads, which one thread
        runs in turn.  A reduction loop may be bound to threads of a group if `lower_cross_thread_reduction`
        supports it.
        """
        threads.bind(self._program, loop, thread)

    @primitive
    def swizzle(self, outer: LoopRV, inner: LoopRV, group: int, thread: str = "") -> LoopRV:
        """Fuse two nested loops into one over groups of `group` rows of the outer loop, column by column.

        Iterations that are close in time are then close in both dims and share inputs in a cache.  Any
        extents are allowed.  The loop is bound to `thread`, an axis of groups, or like the outer loop.
        """
        return threads.swizzle(self._program, outer, inner, group, thread)

    @primitive
    def software_pipeline(
        self, loop: LoopRV, stages: Sequence[int], order: Sequence[int] | None = None, spare: int = 0
    ) -> None:
        """Software-pipeline a serial loop: when lowered, its stages work on different iterations.

        Parts are the statements of the body, in order of execution.  A part of stage s runs s iterations
        after stage 0.  `order` is the position of each part in the new body; the default keeps the order.
        Buffers between stages are duplicated as needed.  Results are unchanged; ScheduleError reports a part
        that would run too early.

        Asynchronous copies may fill shared memory that is read at least two stages later.  `spare` keeps
        their buffers for this many more iterations, for units that still read them.
        """
        pipeline.software_pipeline(self._program, loop, stages, order, spare)

    @primitive
    def bulk_copy(
        self, loop: LoopRV, *, dims: int = 5, extent: int = 256, align: int = 16, row: int = 128
    ) -> None:
        """Turn a loop nest into a tensor copy to shared memory, which one thread issues.

        The nest must copy a box of a contiguous parameter; elements outside of the tensor are zero.  The box
        has up to `dims` dims of up to `extent` elements, and rows of up to `row` bytes.  Strides and rows are
        multiples of `align` bytes.  ScheduleError reports a nest that differs.
        """
        tensor_copies.bulk_copy(self._program, loop, Bulk(dims, extent, align, row))

    @primitive
    def double_buffer(self, block: BlockRV) -> LoopRV:
        """Double-buffer a block: it fills one buffer for the next iteration while its readers use another.

        This is a software pipeline of two stages over the serial loop that contains the block and its
        readers; that loop is returned.  The producers of the block in that loop run ahead with it.
        """
        return pipeline.double_buffer(self._program, block)

    @primitive
    def prefetch(
        self,
        loop: LoopRV,
        buffer: str,
        distance: int,
        shared_by: Sequence[LoopRV] = (),
        extents: Sequence[int] = (),
    ) -> None:
        """Prefetch in each iteration of a loop the memory `distance` elements after its reads of a buffer.

        `distance` counts in memory order, whatever the buffer's shape.  It may leave the buffer, because
        prefetches cannot fault.  Surrounding loops `shared_by` of full extents `extents` share its lines.
        """
        prefetching.prefetch(self._program, loop, buffer, distance, shared_by, extents)

    @primitive
    def prefetch_at(
        self, loop: LoopRV, buffer: str, loops: Sequence[LoopRV], index_map: IndexMap | Callable[..., Any]
    ) -> None:
        """Prefetch in each iteration of a loop one element of a parameter, which the loop need not read.

        `index_map` computes the element's index from the variables of `loops`: this loop or loops around it.
        """
        index = index_map if isinstance(index_map, IndexMap) else IndexMap.of(index_map)
        prefetching.prefetch_at(self._program, loop, buffer, loops, index)
        self._record(loop, buffer, loops, index)

    @primitive
    def annotate(self, target: LoopRV | BlockRV, key: str, value: Any) -> None:
        """Attach a value to a loop or block; None removes it."""
        loop_primitives.annotate(self._program, target, key, value)

    @primitive
    def add_unit_loop(self, target: LoopRV | BlockRV) -> LoopRV:
        """Add a loop of one iteration around a loop or block."""
        return loop_primitives.add_unit_loop(self._program, target)

    # Positions of blocks.

    @primitive
    def compute_inline(self, block: BlockRV) -> None:
        """Inline a block without reduction into all its readers; the block and its buffer are removed."""
        inline.compute_inline(self._program, block)

    @primitive
    def reverse_compute_inline(self, block: BlockRV) -> None:
        """Inline a block that reads one intermediate buffer elementwise into the producer of that buffer.

        The producer must not be a reduction.  It takes the block's name and writes the block's output.
        """
        inline.reverse_compute_inline(self._program, block)

    @primitive
    def compute_at(
        self, block: BlockRV, loop: LoopRV, preserve_unit_loops: bool = True, index: int | None = None
    ) -> None:
        """Move a block into a loop around its readers, where it computes the region that one iteration needs.

        Readers after the loop may read what its iterations compute together; the buffer then stays outside.

        The block gets a new loop for each of its axes, in order; `preserve_unit_loops=False` omits loops of
        one iteration.  Its buffer is allocated inside the loop (`compact_buffers` shrinks it to the region).
        `index` is its position among the loop's statements; the default is right before the first reader.
        """
        moving.compute_at(self._program, block, loop, preserve_unit_loops, index)

    @primitive
    def reverse_compute_at(
        self, block: BlockRV, loop: LoopRV, preserve_unit_loops: bool = True, index: int | None = None
    ) -> None:
        """Move a block into a loop of its producers, where it computes what one iteration completes.

        The options are those of `compute_at`; the default of `index` is right after the last producer.
        """
        moving.reverse_compute_at(self._program, block, loop, preserve_unit_loops, index)

    @primitive
    def duplicate(self, block: BlockRV, consumers: Sequence[BlockRV]) -> BlockRV:
        """Duplicate a block, with a buffer of its own, for some of its readers; the others keep the original.

        Then the block can be computed at several positions, each for its own readers.
        """
        return buffers.duplicate(self._program, block, consumers)

    # Buffers.

    @primitive
    def set_scope(self, block: BlockRV, buffer: int | str, scope: str) -> None:
        """Move an intermediate buffer that the block writes to another memory scope, such as "local".

        `buffer`, here and below, is its number among the block's writes (or reads), or its name.
        """
        buffers.set_scope(self._program, block, buffer, scope)

    @primitive
    def cache_read(
        self, block: BlockRV, buffer: int | str, scope: str, others: Sequence[BlockRV] = ()
    ) -> BlockRV:
        """Copy an input to `scope` for the block and other readers; return the copying block. It runs before
        their loops; `compute_at` moves it to its use."""
        return buffers.cache_read(self._program, block, buffer, scope, others)

    @primitive
    def cache_write(self, block: BlockRV, buffer: int | str, scope: str) -> BlockRV:
        """Let the block write to a buffer in `scope` that is copied to its output; return the copying block.

        The copy runs after the block's loops.  `reverse_compute_at` moves it into these, or `compute_at`
        moves the block into the copy's loops.
        """
        return buffers.cache_write(self._program, block, buffer, scope)

    @primitive
    def reindex(self, block: BlockRV, buffer: str | tuple[str, int]) -> BlockRV:
        """Let the block access a buffer through a copy whose dims are the block's axes that index it.

        `buffer` is a name, or ("read", n) or ("write", n) of the block, which must access it at one index.
        Returns the copying block `<buffer>_reindex`; it is before the block's loops, or after them if the
        block writes the buffer.
        """
        return reindexing.reindex(self._program, block, buffer)

    @primitive
    def storage_align(
        self, block: BlockRV, buffer: int | str, axis: int, factor: int, offset: int = 0
    ) -> None:
        """Pad dim `axis` of an intermediate buffer that the block writes.

        Its stride becomes a multiple of `factor` elements plus `offset`.  `compact_buffers` keeps it.
        """
        alignment.storage_align(self._program, block, buffer, axis, factor, offset)

    @primitive
    def compact_buffers(self) -> None:
        """Shrink every intermediate buffer to its live region, in the innermost loop around its uses."""
        self._program.set_func(compact.compact_buffer_allocation(self._program.func))

    @primitive
    def transform_layout(
        self,
        block: BlockRV,
        buffer: str | tuple[str, int],
        index_map: IndexMap | Callable[..., Any],
        pad_value: float | None = None,
    ) -> None:
        """Change the layout of a buffer: element [i…] becomes element [index_map(i…)].

        `buffer` is a name, or ("read", n) or ("write", n) of the block.  An intermediate buffer changes for
        all its users.  If its producer is a plain assignment with loops of its own, the producer runs over
        the new dims, and with `pad_value` it also fills the padding of the layout.  A parameter that is only
        read is then passed in the new layout: `func.attrs["repack"]` maps the number of the parameter to the
        IndexMap, whose `apply_numpy` packs an array (with zeros for padding).
        """
        chosen = index_map if isinstance(index_map, IndexMap) else IndexMap.of(index_map)
        layout.transform_layout(self._program, block, buffer, chosen, pad_value)
        options = {} if pad_value is None else {"pad_value": pad_value}
        self._record(block, buffer, chosen, **options)

    # Axes of blocks.

    @primitive
    def reorder_block_axes(self, block: BlockRV, order: Sequence[int]) -> None:
        """Reorder the axes of a block, given by their numbers; loops are unchanged.

        The order determines the loops that `compute_at` makes, and the dims that `reindex` makes.
        """
        block_axes.reorder_block_axes(self._program, block, order)

    @primitive
    def transform_block_layout(self, block: BlockRV, index_map: IndexMap | Callable[..., Any]) -> None:
        """Run a block over other axes: point [axes…] becomes point [index_map(axes…)].

        The block must have one loop per axis, and gets one per output of the map, in order.  Outputs are
        digits of axes, in whole tiles.  Loops of unchanged axes may contain other statements.
        """
        chosen = index_map if isinstance(index_map, IndexMap) else IndexMap.of(index_map)
        block_axes.transform_block_layout(self._program, block, chosen)
        self._record(block, chosen)

    @primitive
    def fuse_block_axes(self, block: BlockRV, first: int, count: int) -> None:
        """Fuse `count` neighbouring axes of a kind, from number `first` on, into one axis.

        The block must have one loop per axis, and then has one per new axis, in order.
        """
        block_axes.fuse_block_axes(self._program, block, first, count)

    # Blocks of blocks.

    @primitive
    def blockize(self, target: LoopRV | BlockRV) -> BlockRV:
        """Turn the body of a loop, which must be one block, into a unit: an outer block around an inner one.

        Each axis is divided into tiles, over which the outer block `<name>_o` iterates, and points of a tile,
        over which the inner loops iterate.  The block's predicate may cut a tile.  Primitives can still move
        the inner loops, but not out of the outer block.  For a block, the unit is the block without loops.
        """
        return blockizing.blockize(self._program, target)

    @primitive
    def tensorize(self, target: LoopRV | BlockRV, intrin: TensorIntrin | str) -> BlockRV:
        """Replace the body of a loop, or a block made by `blockize`, by a tensor intrinsic.

        The computation must match the intrinsic's description, up to the order of loops, the order of
        commuting operands, and dims that do not vary.  An initialisation that is not part of the description
        runs first.  A name refers to the schedule's `intrins`.  Compact buffers and change layouts before.
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
        """The tensor intrinsics by name."""
        return MappingProxyType(self._intrins)

    @property
    def externs(self) -> dict[str, Callable[..., Any]]:
        """The Python functions of the external symbols in use, for the interpreter."""
        return {s: f for intrin in self._used.values() for s, f in intrin.functions().items()}

    # Reductions.

    @primitive
    def decompose_reduction(self, block: BlockRV, loop: LoopRV) -> BlockRV:
        """Initialise a reduction before `loop` instead of at its first step; return the block `<name>_init`.

        Its loops are copies of the spatial loops from `loop` inward; vectorised and unrolled loops stay so.
        No loop outside of `loop` may be a reduction loop.
        """
        return reduction.decompose_reduction(self._program, block, loop)

    @primitive
    def rfactor(self, loop: LoopRV, axis: int) -> BlockRV:
        """Factor a reduction: every iteration of a reduction loop gets its own accumulator.

        The partial results form a new buffer with the loop as dim `axis`.  The returned block `<name>_rf`
        computes them, and the old block combines them.  This reorders sums of floats.
        """
        return reduction.rfactor(self._program, loop, axis)

    # Padding.

    @primitive
    def decompose_padding(self, block: BlockRV, loop: LoopRV) -> list[BlockRV]:
        """Split a block `B[…] = value where inside else constant` into fills of the padding and a plain copy.

        This happens inside `loop`, one of the block's loops; the loops from it inward are created again, one
        per axis.  Returns the filling blocks, then the copying block, which keeps the name.
        """
        return padding.decompose_padding(self._program, block, loop)

    @primitive
    def pad_einsum(self, block: BlockRV, padding: Sequence[int]) -> list[BlockRV]:
        """Pad the axes of a sum of products to multiples of the given numbers, one per axis.

        Operands are copied to zero-padded buffers `<name>_pad`, and the result is sliced from a larger
        buffer, so that tiles of these sizes are whole.  Returns the padding blocks and, if the result is
        padded, the block that slices it.
        """
        return einsum.pad_einsum(self._program, block, padding)


__all__ = ["Schedule"]
