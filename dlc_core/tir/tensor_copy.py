"""Tensor copies: asynchronous copies of part of a tensor from global to shared memory, issued by one thread
for its group.

    T.bulk_copy(to, source, rank, first…, box…, dims…, strides…)

copies the elements `first + [0, box)` of the tensor at `source`, with the given dims and strides, to
contiguous memory at `to`. Elements outside of the tensor are zero. Like all writes to shared memory, it may
be part of a group of copies.
"""

from __future__ import annotations

from dlc_core.ir.buffer import Buffer
from dlc_core.ir.expr import Call, Expr, ExprLike, Load, as_expr, const_value
from dlc_core.support.record import record
from dlc_core.tir.functor import stmts_of
from dlc_core.tir.intrinsics import BULK, address_of, intrinsic
from dlc_core.tir.stmt import Eval, Stmt


@record(frozen=True)
class Bulk:
    """The tensor copies that a machine supports."""

    dims: int = 5
    """Dims of a tensor, at most."""
    extent: int = 256
    """Elements of a box along a dim, at most."""
    align: int = 16
    """Strides, and rows of a box, are multiples of this number of bytes."""
    row: int = 128
    """The maximum bytes of a row of a box; swizzled rows have exactly this length."""


@record(frozen=True)
class TensorCopy:
    """One tensor copy. Sizes are in elements, outer dims first."""

    to: Buffer
    at: tuple[Expr, ...]
    """Indices of the box's first element in `to`."""
    source: Buffer
    first: tuple[Expr, ...]
    box: tuple[int, ...]
    dims: tuple[Expr, ...]
    strides: tuple[Expr, ...]
    conditions: tuple[Expr, ...] = ()
    """The copy is issued if all of these hold."""

    @property
    def tensor(self) -> tuple[object, ...]:
        """The part of the descriptor that all copies of a tensor share."""
        return self.source, self.box, self.dims, self.strides, self.to.scope


def bulk_copy(one: TensorCopy) -> Expr:
    """The call of a tensor copy. Use it under `Eval`."""
    numbers: list[ExprLike] = [len(one.box), *one.first, *one.box, *one.dims, *one.strides]
    start = address_of(one.source, *[0] * one.source.ndim)
    return intrinsic(BULK, address_of(one.to, *one.at), start, *map(as_expr, numbers))


def tensor_copy_of(call: Call) -> TensorCopy:
    """The tensor copy that a call describes."""
    to, source = (arg.args[0] for arg in call.args[:2] if isinstance(arg, Call))
    assert isinstance(to, Load)
    assert isinstance(source, Load)
    rank = int(const_value(call.args[2]) or 0)
    first, box, dims, strides = (call.args[3 + i * rank : 3 + (i + 1) * rank] for i in range(4))
    sizes = tuple(int(const_value(size) or 0) for size in box)
    return TensorCopy(to.buffer, to.indices, source.buffer, first, sizes, dims, strides)


def bulk_copies(root: Stmt) -> list[Call]:
    """The tensor copies in a program."""
    found = (s.value for s in stmts_of(root, Eval))
    return [e for e in found if isinstance(e, Call) and e.name == BULK]


__all__ = ["Bulk", "TensorCopy", "bulk_copies", "bulk_copy", "tensor_copy_of"]
