"""Contractions in normal form: C[b…, m, n] += A[b…, k, m] * B[b…, k, n].

Axes with the same role are fused into one, in the order of the nest. Operands become buffers over the fused
axes. These buffers are never allocated: their producers (padding, strides, convolution windows, casts) are
inlined into the copies to shared memory.
"""

from __future__ import annotations

from collections.abc import Sequence

from dlc_core.diag import ScheduleError
from dlc_core.ir.expr import Binary, Cast, Expr, ExprLike, Load, Var, as_expr, const_value
from dlc_core.schedule.handles import BlockRV
from dlc_core.schedule.index_map import IndexMap
from dlc_core.schedule.rules.analysis import Contraction, Operand, extent_of, loop_of, points_of, update_of
from dlc_core.schedule.rules.gpu.epilogue import epilogue_order
from dlc_core.schedule.schedule import Schedule
from dlc_core.support.record import record
from dlc_core.tir.stmt import Block, IterVar, Store


@record(frozen=True)
class Side:
    """An operand in normal form."""

    buffer: str
    along_k: bool
    """Whether the operand is contiguous along k, else along its other axis."""
    both: bool
    """Whether the operand has both axes; an axis of extent 1 is omitted."""
    run: int
    """The minimum number of contiguous elements."""
    bits: int


@record(frozen=True)
class Normal:
    """The block and its epilogue, both over (b…, m, n), the operands, and sizes; None if symbolic."""

    block: BlockRV
    out: BlockRV
    batch: int
    """The number of batch axes."""
    a: Side
    b: Side
    batches: int | None
    """The product of all batch axes."""
    m: int | None
    n: int | None
    k: int | None
    bits: int
    """Bits of an accumulator."""


def is_product(block: Block) -> bool:
    """Whether the source of a reduction is a product of two elements, with optional casts."""
    update = update_of(block)

    def element(e: Expr) -> bool:
        while isinstance(e, Cast):
            e = e.a
        return isinstance(e, Load)

    return isinstance(update, Binary) and update.op == "mul" and element(update.a) and element(update.b)


def normalise(s: Schedule, found: Contraction, out: BlockRV) -> Normal:
    """Bring a contraction to normal form; raise ScheduleError if it has none."""
    block = BlockRV(found.block.name)
    body = found.block.body
    assert isinstance(body, Store)
    if not found.m or found.lhs.load.buffer is found.rhs.load.buffer:
        raise ScheduleError("the contraction has no rows, or one operand")
    order = [*found.shared, *found.m, found.n, *found.k]
    if not all(isinstance(i, Var) for i in body.indices) or len(set(body.indices)) != len(body.indices):
        raise ScheduleError(f"{body.buffer.name} is not indexed by axes")
    a = _side(s, block, found, found.lhs, found.m)
    b = _side(s, block, found, found.rhs, (found.n,))
    numbers = {axis: number for number, axis in enumerate(s.get(block).axes)}
    positions = {axis.var: number for number, axis in enumerate(order)}
    s.reorder_block_axes(block, [numbers[axis] for axis in order])
    dims = [positions[i] for i in body.indices if isinstance(i, Var)]
    sizes = [axis.dom.extent for axis in order]
    first, rows = len(found.shared), len(found.m)
    plan = epilogue_order(s, out, body, order)
    _transform_buffer(
        s,
        block,
        body.buffer.name,
        dims,
        sizes,
        [(i,) for i in range(first)] + [tuple(range(first, first + rows)), (first + rows,)],
    )
    if len(found.k) > 1:
        s.fuse_block_axes(block, first + rows + 1, len(found.k))
    s.reorder_block_axes(out, plan)
    if rows > 1:
        s.fuse_block_axes(block, first, rows)
        s.fuse_block_axes(out, first, rows)
    for handle in (block, out):
        if len(s.get(handle).axes) > 1:
            s.reorder(*(loop_of(s, handle, axis) for axis in range(len(s.get(handle).axes))))
    return Normal(
        block,
        out,
        first,
        a,
        b,
        points_of(found.shared),
        points_of(found.m),
        extent_of(found.n),
        points_of(found.k),
        body.buffer.dtype.bits,
    )


def _side(s: Schedule, block: BlockRV, found: Contraction, operand: Operand, own: Sequence[IterVar]) -> Side:
    """Reindex an operand as a buffer over (b…, k, its own axis)."""
    missing = [a for a in (*own, *found.k) if const_value(a.dom.extent) != 1 and not operand.uses(a)]
    if missing:
        raise ScheduleError(f"{operand.load.buffer.name} has no axis {missing[0].var.name}")
    along_k, run = contiguity(operand, own[-1], found.k[-1])
    copy = s.reindex(block, operand.load.buffer.name)
    wide = [a for a in s.get(block).axes if const_value(a.dom.extent) != 1 and operand.uses(a)]
    groups: list[tuple[int, ...]] = []
    for part in (*((a,) for a in found.shared), found.k, own):
        positions = tuple(wide.index(a) for a in part if a in wide)
        groups += [positions] if positions else []
    buffer = s.get(copy).writes[0].buffer
    _transform_buffer(s, block, buffer.name, list(range(len(wide))), [a.dom.extent for a in wide], groups)
    if any(len(group) > 1 for group in groups):
        s.reorder_block_axes(copy, [axis for group in groups for axis in group])
        for number, group in enumerate(groups):
            if len(group) > 1:
                s.fuse_block_axes(copy, number, len(group))
    both = all(any(const_value(a.dom.extent) != 1 for a in axes) for axes in (found.k, own))
    return Side(buffer.name, along_k, both, run, buffer.dtype.bits)


def contiguity(operand: Operand, own: IterVar, k: IterVar) -> tuple[bool, int]:
    """Return whether an operand is contiguous along k, else along its own axis, and the least number of
    contiguous elements.
    """
    along_k, along_own = (const_value(operand.factors[axis.var]) == 1 for axis in (k, own))
    inner = k if along_k or not along_own else own
    run = const_value(inner.dom.extent) if along_k or along_own else 1
    return along_k or not along_own, run if isinstance(run, int) else 1


def _transform_buffer(
    s: Schedule,
    block: BlockRV,
    buffer: str,
    dims: Sequence[int],
    sizes: Sequence[ExprLike],
    groups: Sequence[tuple[int, ...]],
) -> None:
    """Change the layout of a buffer to one dim for each group of axes; `dims` are the axes of its dims."""
    if [(d,) for d in dims] == list(groups):
        return

    def fused(*indices: Expr) -> list[Expr]:
        at = dict(zip(dims, indices, strict=True))
        made = []
        for group in groups:
            total: Expr = at[group[0]]
            for axis in group[1:]:
                total = total * as_expr(sizes[axis]) + at[axis]
            made.append(total)
        return made

    s.transform_layout(block, buffer, IndexMap.of(fused, len(dims)))


__all__ = ["Normal", "Side", "contiguity", "is_product", "normalise"]
