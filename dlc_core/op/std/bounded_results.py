"""Native forms of ops with a data-dependent number of results: the largest possible results, and their
number.

The actual results come first, zeros after them.  `first_of` slices them, which is a view on the host.  So the
memory of a call is bounded before it runs.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dlc_core import te
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.dtype import DType
from dlc_core.ir.expr import (
    Expr,
    Var,
    as_expr,
    cast_to,
    const,
    load,
    ne,
)
from dlc_core.ir.types import TensorType, TupleType, Type
from dlc_core.op.declare import ALL, Attr, ErrorSample, NDArray, Sample, Tensor, op, tensor_types
from dlc_core.op.infer import Attrs, axis_of, check_dtype, check_rank, of_input, product
from dlc_core.op.lower import compute_type, nest
from dlc_core.tir.stmt import If, Stmt, loop, seq, store

INT64 = DType("int64")
_ZERO = const(0, "int64")
_TOTAL = TensorType((1,), INT64)


def _first_infer(types: Sequence[Type], attrs: Attrs) -> Type:
    x, total = tensor_types(types)
    check_dtype(total.dtype, ("int64",), "the number")
    check_rank(x, 1)
    axis = axis_of(attrs["axis"], x.ndim)
    return TensorType((*x.shape[:axis], attrs["count"], *x.shape[axis + 1 :]), x.dtype)


def _first_reference(x: NDArray, total: NDArray, *, axis: int) -> NDArray:
    return x[(slice(None),) * (axis % x.ndim) + (slice(int(total[0])),)]


FIRST_OF = op(
    "first_of", "the first `total[0]` elements along an axis", ["x", "total"],
    [Attr("count", "fresh"), Attr("axis", "int", 0)], kind="opaque", infer=_first_infer,
    reference=_first_reference, dtypes=("float32", "int64"),
    samples=(
        Sample((Tensor((4, 2)), Tensor((1,), [3], "int64")), {"count": Var("n")}),
        Sample((Tensor((2, 4)), Tensor((1,), [0], "int64")), {"count": Var("n"), "axis": 1}),
    ),
    error_samples=[ErrorSample((Tensor((4,)), Tensor((1,))), {"count": Var("n")}, "the number")],
)  # fmt: skip


def _nonzero_infer(x: TensorType, attrs: Attrs) -> Type:
    return TupleType((TensorType((x.ndim, product(x.shape)), INT64), _TOTAL))


def nonzero_indices(x: NDArray) -> NDArray:
    """The indices of nonzero elements, [rank, count]."""
    if x.ndim == 0:
        return np.zeros((0, int(x.item() != 0)), np.int64)
    return np.array(np.nonzero(x), np.int64).reshape(x.ndim, -1)


def _nonzero_reference(x: NDArray) -> tuple[NDArray, NDArray]:
    found = nonzero_indices(x)
    made = np.zeros((x.ndim, x.size), np.int64)
    made[:, : found.shape[1]] = found
    return made, np.array([found.shape[1]], np.int64)


def _nonzero_lower(type_: TupleType, attrs: Attrs, x: te.Tensor) -> tuple[te.Tensor, ...]:
    indices, total = tensor_types(type_.fields)
    wide = compute_type(x.dtype)
    size = as_expr(indices.shape[1])

    def body(ins: list[Buffer], outs: list[Buffer]) -> Stmt:
        (x_buffer,), (made, count) = ins, outs
        now = load(count, [0])

        def visit(at: list[Expr]) -> Stmt:
            value = cast_to(wide, load(x_buffer, at))
            found = value if wide.name == "bool" else ne(value, const(0, wide))
            written = [store(made, [const(axis), now], i) for axis, i in enumerate(at)]
            return If(found, seq(*written, store(count, [0], now + 1)))

        def cleared(axis: int) -> Stmt:
            rest = Var("rest", "int64")
            return loop(rest, size - now, store(made, [const(axis), rest], _ZERO), begin=now)

        tails = [cleared(axis) for axis in range(len(x.shape))]
        return seq(store(count, [0], _ZERO), nest(x.shape, visit), *tails)

    made: tuple[te.Tensor, ...] = te.extern(
        [indices.shape, total.shape], [x], body, "places", dtype_=["int64", "int64"]
    )
    return made


BOUNDED_NONZERO = op(
    "bounded_nonzero",
    "the indices of elements that are not 0 as the first columns, in row-major order, and zeros after them;"
    " the number of these elements",
    ["x"],
    kind="opaque",
    infer=of_input(_nonzero_infer, ALL),
    reference=_nonzero_reference,
    lower=_nonzero_lower,
    dtypes=("float32", "int32", "bool", "bfloat16"),
    samples=(
        Sample((Tensor((3, 4), [[0, 1, 0, 2], [0, 0, 0, 0], [3, 0, 0, 1]]),)),
        Sample((Tensor((5,), [0, 0, 0, 0, 0]),)),
        Sample((Tensor((2, 2, 2), "bool"),)),
        Sample((Tensor((2, 30), "special"),)),
        Sample((Tensor((0, 3)),)),
    ),
    error_samples=[ErrorSample((Tensor((2,), dtype="complex64"),), {}, "dtype")],
)

OPS = (FIRST_OF, BOUNDED_NONZERO)
