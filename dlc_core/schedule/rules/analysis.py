"""The kind of computation of a kernel, from the axes and access patterns of its blocks, never from names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise

from dlc_core.arith import Analyzer
from dlc_core.diag import ScheduleError
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.expr import Binary, Cast, Expr, Load, Var, const_value, post_order
from dlc_core.schedule.handles import BlockRV, LoopRV
from dlc_core.schedule.schedule import Schedule
from dlc_core.support.record import record
from dlc_core.tir.functor import block_list, child_stmts
from dlc_core.tir.stmt import Block, For, IterVar, PrimFunc, Stmt, Store


def extent_of(axis: IterVar) -> int | None:
    return const_value(axis.dom.extent)


def points_of(axes: Iterable[IterVar]) -> int | None:
    """Return the product of the extents of axes; None if one is symbolic."""
    return _product(map(extent_of, axes))


def count_of(s: Schedule, loops: Iterable[LoopRV]) -> int | None:
    """Return the iterations of nested loops; None if they are symbolic."""
    return _product(const_value(s.extent(loop)) for loop in loops)


def _product(sizes: Iterable[int | None]) -> int | None:
    total = 1
    for size in sizes:
        if size is None:
            return None
        total *= size
    return total


def spatial(block: Block) -> list[IterVar]:
    return [a for a in block.axes if a.kind == "spatial"]


def reduced(block: Block) -> list[IterVar]:
    return [a for a in block.axes if a.kind == "reduce"]


def coefficients(buffer: Buffer, indices: Iterable[Expr], axes: Iterable[Var]) -> dict[Var, Expr] | None:
    """Return the factor of each axis in the element offset of an access; None if the offset is not affine."""
    analyzer = Analyzer()
    offset = buffer.linear_index(list(indices))
    found: dict[Var, Expr] = {}
    for axis in axes:
        factor = analyzer.coefficient_of(offset, axis)
        if factor is None:
            return None
        found[axis] = factor
    return found


@record(frozen=True)
class Operand:
    """A load in the source of a reduction, with the factors of the block's axes in its offset.

    `other_factors` are the factors in other loads of the operand, such as scales.
    """

    load: Load
    factors: Mapping[Var, Expr]
    other_factors: tuple[Mapping[Var, Expr], ...] = ()

    def uses(self, axis: IterVar) -> bool:
        return any(const_value(factors[axis.var]) != 0 for factors in (self.factors, *self.other_factors))


@record(frozen=True)
class Contraction:
    """out[m…, n] += lhs[m…, k…] * rhs[n, k…].

    `n` is an axis that only rhs has. `contraction_of` finds the one that is contiguous in the output.
    """

    block: Block
    lhs: Operand
    rhs: Operand
    n: IterVar
    shared: tuple[IterVar, ...]
    """Spatial axes of both operands: batches and groups."""
    m: tuple[IterVar, ...]
    """Spatial axes of lhs only, outer to inner."""
    k: tuple[IterVar, ...]


def _without_casts(expr: Expr) -> Expr:
    while isinstance(expr, Cast):
        expr = expr.a
    return expr


def update_of(block: Block) -> Expr | None:
    """Return the value of `acc = acc + value`, or None for any other body."""
    body = block.body
    if block.init is None or not isinstance(body, Store) or not isinstance(body.value, Binary):
        return None
    value = body.value
    if value.op != "add" or not isinstance(value.a, Load) or value.a.buffer is not body.buffer:
        return None
    return value.b


def _operand(value: Expr, axes: Sequence[Var]) -> Operand | None:
    """Match an operand of a product: a load, or narrow numbers that arithmetic widens."""
    loads = [e for e in post_order(value) if isinstance(e, Load)]
    if not loads or (value is not loads[0] and min(load.dtype.bits for load in loads) > 8):
        return None
    found = [coefficients(load.buffer, load.indices, axes) for load in loads]
    factors = [each for each in found if each is not None]
    if len(factors) < len(found):
        return None
    # Quantized numbers have more axes than their zero points.
    narrow = [i for i, load in enumerate(loads) if load is value or load.dtype.bits <= 8]
    main = max(narrow, key=lambda i: sum(const_value(factor) != 0 for factor in factors[i].values()))
    return Operand(loads[main], factors[main], tuple(factors[:main] + factors[main + 1 :]))


def contraction_of(block: Block) -> Contraction | None:
    """Return the block as a contraction, or None."""
    update = update_of(block)
    if not isinstance(update, Binary) or update.op != "mul" or not isinstance(block.body, Store):
        return None
    axes = [a.var for a in block.axes]
    operands = []
    for value in (update.a, update.b):
        operand = _operand(_without_casts(value), axes)
        if operand is None:
            return None
        operands.append(operand)
    out = coefficients(block.body.buffer, block.body.indices, axes)
    if out is None:
        return None
    n = next(
        (a for a in reversed(spatial(block)) if const_value(out[a.var]) == 1 and extent_of(a) != 1), None
    )
    return None if n is None else _with_columns(block, operands, n)


def with_columns(found: Contraction, n: IterVar) -> Contraction | None:
    """Return a contraction with other columns: `n` is an axis of one operand. None if it is one of both."""
    return _with_columns(found.block, (found.lhs, found.rhs), n)


def _with_columns(block: Block, operands: Sequence[Operand], n: IterVar) -> Contraction | None:
    users = [o for o in operands if o.uses(n)]
    if len(users) != 1:
        return None
    rhs = users[0]
    lhs = operands[1] if rhs is operands[0] else operands[0]
    others = [a for a in spatial(block) if a is not n]
    shared = tuple(a for a in others if rhs.uses(a))
    m = tuple(a for a in others if not rhs.uses(a))
    k = tuple(reduced(block))
    if not any(lhs.uses(a) and rhs.uses(a) for a in k):
        return None
    return Contraction(block, lhs, rhs, n, shared, m, k)


def anchor(func: PrimFunc) -> Contraction | None:
    """Return the contraction of a kernel, if it is its only reduction."""
    blocks = reductions(func)
    return contraction_of(blocks[0]) if len(blocks) == 1 else None


def reductions(func: PrimFunc) -> list[Block]:
    return [b for b in block_list(func.body) if b.init is not None]


def is_pointwise(block: Block) -> bool:
    """Whether a block has only spatial axes and one store."""
    return block.init is None and not reduced(block) and isinstance(block.body, Store)


def bytes_of(buffer: Buffer) -> int | None:
    """Bytes of a buffer; None if they are symbolic."""
    count = const_value(buffer.num_elements())
    return None if count is None else count * buffer.dtype.itemsize


def loads_of(block: Block) -> list[Load]:
    return (
        [e for e in post_order(block.body.value) if isinstance(e, Load)]
        if isinstance(block.body, Store)
        else []
    )


def accesses_of(block: Block) -> list[tuple[Buffer, Sequence[Expr]]]:
    """Return the buffer and the indices of the only store of a block, then those of its loads."""
    assert isinstance(block.body, Store)
    return [(block.body.buffer, block.body.indices), *((e.buffer, e.indices) for e in loads_of(block))]


def contiguous_over(block: Block, axis: Var) -> bool:
    """Whether every load of a block is contiguous along an axis, or does not depend on it."""
    for load in loads_of(block):
        factors = coefficients(load.buffer, load.indices, [axis])
        if factors is None or const_value(factors[axis]) not in (0, 1):
            return False
    return True


def work_of(func: PrimFunc) -> int | None:
    """Return the iterations of the largest block, with its inner loops; None if an extent is symbolic."""
    most = 0
    for block in block_list(func.body):
        total = _iterations(block.body)
        for axis in block.axes:
            size = extent_of(axis)
            if size is None or total is None:
                return None
            total *= size
        most = max(most, total or 0)
    return most


def _iterations(stmt: Stmt) -> int | None:
    """Return the iterations of the innermost statement of nested loops: 1 without loops, None if symbolic."""
    inner = [_iterations(child) for child in child_stmts(stmt)]
    known = [count for count in inner if count is not None]
    extent = const_value(stmt.extent) if isinstance(stmt, For) else 1
    if extent is None or len(known) < len(inner):
        return None
    return extent * max(known, default=1)


def inline_pointwise(schedule: Schedule) -> BlockRV:
    """Inline pointwise blocks into their readers, except reductions; return the output block."""
    outputs = {b.name for b in schedule.get_output_blocks()}
    for handle in schedule.get_blocks():
        block = schedule.get(handle)
        if not is_pointwise(block) or handle.name in outputs:
            continue
        consumers = [schedule.get(c) for c in schedule.get_consumers(handle)]
        if consumers and all(c.init is None for c in consumers):
            schedule.compute_inline(handle)
    return schedule.get_output_blocks()[0]


def inline_producers(
    schedule: Schedule, block: BlockRV, accepts: Callable[[Block], bool] = is_pointwise
) -> None:
    """Inline the producers of a block that `accepts` selects, by default all pointwise ones."""
    while found := [p for p in schedule.get_producers(block) if accepts(schedule.get(p))]:
        for producer in found:
            schedule.compute_inline(producer)


def epilogue_of(schedule: Schedule, block: BlockRV) -> BlockRV:
    """Return the block that stores the result of a reduction: its pointwise consumer, or a copy.

    Raises ScheduleError for a program with other results.
    """
    outputs = schedule.get_output_blocks()
    if len(outputs) != 1:
        names = ", ".join(each.name for each in outputs)
        raise ScheduleError("the program has several results", details=[f"blocks that store them: {names}"])
    return schedule.cache_write(block, 0, "local") if outputs == [block] else inline_pointwise(schedule)


def inline_epilogue(schedule: Schedule, stages: Iterable[BlockRV], results: BlockRV) -> BlockRV:
    """Inline `results` and all other pointwise blocks that are not in `stages`; return the output block."""
    (out,) = schedule.get_output_blocks()
    kept = {*stages, out} - {results}
    for handle in schedule.get_blocks():
        if is_pointwise(schedule.get(handle)) and handle not in kept and handle != out:
            schedule.compute_inline(handle)
    return out


def pad_rows(schedule: Schedule, block: BlockRV, axis: int, cache_line: int) -> None:
    """Put the rows of a block's result an odd number of cache lines apart, so that they are in all sets of a
    cache.  `axis` is the dim of rows.
    """
    line = cache_line // schedule.get(block).writes[0].buffer.dtype.itemsize
    schedule.storage_align(block, 0, axis, 2 * line, line)


def loop_of(schedule: Schedule, block: BlockRV, axis: int) -> LoopRV:
    """Return the loop of block axis number `axis`; bindings must be plain variables."""
    value = schedule.get(block).values[axis]
    for loop in schedule.get_loops(block):
        if loop.var is value:
            return loop
    raise AssertionError(f"axis {axis} of block {block.name} is bound to {value}, not to a loop")


def same(a: Expr, b: Expr) -> bool:
    """Whether two index expressions are equal without analysis."""
    x, y = const_value(a), const_value(b)
    return a is b or (x is not None and x == y)


def parallelize(schedule: Schedule, loops: Sequence[LoopRV]) -> None:
    """Parallelise the outermost of these loops with several iterations, unless one is parallel already."""
    if any(schedule.get_for(loop).kind == "parallel" for loop in loops):
        return
    for loop in loops:
        if const_value(schedule.extent(loop)) != 1:
            schedule.parallel(loop)
            return


def is_plain(block: Block, loops: list[LoopRV]) -> bool:
    """Whether the loops are the block's axes one to one."""
    axes = spatial(block)
    return len(axes) == len(loops) and all(v is loop.var for v, loop in zip(block.values, loops, strict=True))


def mergeable_tail(block: Block, loops: list[LoopRV]) -> int:
    """Return how many innermost loops form one contiguous axis in every access of a pointwise block."""
    return mergeable_axes(spatial(block), accesses_of(block)) if is_plain(block, loops) else 1


def mergeable_axes(axes: Sequence[IterVar], accesses: Iterable[tuple[Buffer, Sequence[Expr]]]) -> int:
    """Return how many of the innermost `axes` form one contiguous axis in every access."""
    factors = [coefficients(buffer, indices, [a.var for a in axes]) for buffer, indices in accesses]
    for count, (inner, outer) in enumerate(pairwise(reversed(axes)), 1):
        for each in factors:
            if each is None or not same(each[outer.var], each[inner.var] * inner.dom.extent):
                return count
    return max(1, len(axes))
