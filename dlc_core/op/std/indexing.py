"""Ops with data-dependent indices: gather, one_hot; `scatter` has those that write.

Indices are integers; negative ones count from the end.  The reference refuses indices out of range.  Native
code never accesses memory out of bounds: gathers clamp such indices.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dlc_core import te
from dlc_core.diag import RuntimeFailure
from dlc_core.ir.conditions import AT_LEAST
from dlc_core.ir.convert import convert
from dlc_core.ir.dtype import DType
from dlc_core.ir.expr import Expr, as_expr, cast_to, const, const_value, eq, select
from dlc_core.ir.types import TensorType, Type
from dlc_core.op.assume import assume
from dlc_core.op.declare import (
    ALL,
    INTS,
    MOVED,
    NARROW,
    Attr,
    ErrorSample,
    NDArray,
    Sample,
    Tensor,
    op,
    tensor_types,
)
from dlc_core.op.infer import (
    Attrs,
    axis_of,
    check_dtype,
    check_rank,
    dims_text,
    fail,
    merge_dims,
)
from dlc_core.op.lower import clamped_index, compute, replaced


def inside(indices: NDArray, size: int) -> NDArray:
    """Convert indices to non-negative ones. Raises RuntimeFailure if one is out of range."""
    wide = indices.astype(np.int64)
    if wide.size and (wide.min() < -size or wide.max() >= size):
        raise RuntimeFailure(f"index {int(wide.min())} to {int(wide.max())} of a dim of {size}")
    return np.where(wide < 0, wide + size, wide)


def _gather_infer(types: Sequence[Type], attrs: Attrs) -> Type:
    x, indices = tensor_types(types)
    check_dtype(indices.dtype, INTS, "the indices")
    check_dtype(x.dtype, MOVED)
    axis = axis_of(attrs["axis"], x.ndim)
    check_rank(x, 1)
    return TensorType((*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]), x.dtype)


def _gather_reference(x: NDArray, indices: NDArray, *, axis: int) -> NDArray:
    return np.take(x, inside(indices, x.shape[axis]), axis)


def _gather_lower(type_: TensorType, attrs: Attrs, x: te.Tensor, indices: te.Tensor) -> te.Tensor:
    axis = axis_of(attrs["axis"], x.ndim)

    def body(*i: Expr) -> Expr:
        index = clamped_index(indices[i[axis : axis + indices.ndim]], x.shape[axis])
        where = (*i[:axis], index, *i[axis + indices.ndim :])
        return x[where]

    return compute(type_.shape, body, "gather")


def index_sample(shape: tuple[int, ...], size: int, dtype: str = "int64") -> Tensor:
    """Indices in [-size, size)."""
    return Tensor(shape, f"wrap:{size}", dtype)


GATHER = op(
    "gather",
    "x at the indices along an axis, which is replaced by the dims of the indices",
    ["x", "indices"],
    [Attr("axis", "int", 0)],
    kind="injective",
    infer=_gather_infer,
    reference=_gather_reference,
    lower=_gather_lower,
    dtypes=ALL,
    samples=(
        Sample((Tensor((4, 3)), index_sample((2, 5), 4))),
        Sample((Tensor((4, 3), "special"), index_sample((2,), 3, "int32")), {"axis": -1}),
        Sample((Tensor((4, 3)), index_sample((), 4)), {"axis": 0}),
        Sample((Tensor((4,)), Tensor((3,), "index:4", "uint8"))),
        Sample((Tensor((4,)), Tensor((3,), "index:4", "uint8")), {}, NARROW),
    ),
    error_samples=[
        ErrorSample((Tensor((4,)), Tensor((2,))), {}, "indices has dtype float32"),
        ErrorSample((Tensor((4,)), index_sample((2,), 4)), {"axis": 1}, "out of range"),
        ErrorSample((Tensor(()), index_sample((2,), 4)), {}, "out of range"),
    ],
)


def gather_elements_infer(types: Sequence[Type], attrs: Attrs) -> Type:
    x, indices = tensor_types(types)
    check_dtype(indices.dtype, INTS, "the indices")
    check_dtype(x.dtype, MOVED)
    check_rank(indices, x.ndim, x.ndim, "the indices")
    axis = axis_of(attrs["axis"], x.ndim)
    for i, (size, count) in enumerate(zip(x.shape, indices.shape, strict=True)):
        if i != axis and isinstance(size, int) and isinstance(count, int) and count > size:
            raise fail(f"dim {i} of the indices is {count}, of the input only {size}")
        if i != axis:
            assume(AT_LEAST, size, count, f"dim {i} of the indices is {count}")
    return TensorType(indices.shape, x.dtype)


def _gather_elements_reference(x: NDArray, indices: NDArray, *, axis: int) -> NDArray:
    own = tuple(slice(n) if i != axis % x.ndim else slice(None) for i, n in enumerate(indices.shape))
    return np.take_along_axis(x[own], inside(indices, x.shape[axis]), axis)


def _gather_elements_lower(type_: TensorType, attrs: Attrs, x: te.Tensor, indices: te.Tensor) -> te.Tensor:
    axis = axis_of(attrs["axis"], x.ndim)
    return compute(
        type_.shape,
        lambda *i: x[replaced(i, axis, clamped_index(indices[i], x.shape[axis]))],
        "gather_elements",
    )


GATHER_ELEMENTS = op(
    "gather_elements",
    "x[i0, …, indices[i0, …, ik], …, in] with the index at `axis`",
    ["x", "indices"],
    [Attr("axis", "int", 0)],
    kind="injective",
    infer=gather_elements_infer,
    reference=_gather_elements_reference,
    lower=_gather_elements_lower,
    dtypes=ALL,
    samples=(
        Sample((Tensor((4, 3)), index_sample((2, 3), 4))),
        Sample((Tensor((4, 3)), index_sample((2, 5), 3, "int32")), {"axis": -1}),
        Sample((Tensor((4, 5)), index_sample((3, 2), 5)), {"axis": -1}),
    ),
    error_samples=[
        ErrorSample((Tensor((4, 3)), index_sample((2,), 4)), {}, "rank"),
        ErrorSample((Tensor((4, 3)), index_sample((2, 4), 4)), {}, "only 3"),
        ErrorSample((Tensor((4,)), Tensor((2,))), {}, "indices has dtype float32"),
    ],
)


def last_dim(indices: TensorType) -> int:
    """The number of axes that the last dim of the indices indexes."""
    check_rank(indices, 1, None, "the indices")
    depth = indices.shape[-1]
    if not isinstance(depth, int):
        raise fail(f"the last dim of the indices is {depth}", "it must be a number: how many axes they index")
    return depth


def _gather_nd_infer(types: Sequence[Type], attrs: Attrs) -> Type:
    x, indices = tensor_types(types)
    check_dtype(indices.dtype, INTS, "the indices")
    check_dtype(x.dtype, MOVED)
    depth, batch = last_dim(indices), attrs["batch_dims"]
    if batch < 0 or batch + 1 > indices.ndim or batch + depth > x.ndim:
        raise fail(
            f"{batch} batch dims and {depth} indices do not fit {dims_text(x.shape)}",
            f"the indices are {dims_text(indices.shape)}",
        )
    shared = tuple(merge_dims(x.shape[i], indices.shape[i], f"dims {i}") for i in range(batch))
    return TensorType((*shared, *indices.shape[batch:-1], *x.shape[batch + depth :]), x.dtype)


def _gather_nd_reference(x: NDArray, indices: NDArray, *, batch_dims: int) -> NDArray:
    depth = indices.shape[-1]
    middle = indices.shape[batch_dims:-1]
    index: list[Any] = []
    for k in range(batch_dims):
        shape = [1] * (batch_dims + len(middle))
        shape[k] = x.shape[k]
        index.append(np.arange(x.shape[k]).reshape(shape))
    index += [inside(indices[..., k], x.shape[batch_dims + k]) for k in range(depth)]
    return x[tuple(index)] if index else np.broadcast_to(x, (*middle, *x.shape))


def _gather_nd_lower(type_: TensorType, attrs: Attrs, x: te.Tensor, indices: te.Tensor) -> te.Tensor:
    batch = attrs["batch_dims"]
    middle = indices.ndim - 1
    depth = const_value(indices.shape[-1]) or 0

    def body(*i: Expr) -> Expr:
        rows = [(*i[:middle], const(k)) for k in range(depth)]
        found = [clamped_index(indices[row], x.shape[batch + k]) for k, row in enumerate(rows)]
        where = (*i[:batch], *found, *i[middle:])
        return x[where]

    return compute(type_.shape, body, "gather_nd")


GATHER_ND = op(
    "gather_nd",
    "slices of x: the last dim of the indices has an index for each of as many axes, after the batch dims",
    ["x", "indices"],
    [Attr("batch_dims", "int", 0)],
    kind="injective",
    infer=_gather_nd_infer,
    reference=_gather_nd_reference,
    lower=_gather_nd_lower,
    dtypes=ALL,
    samples=(
        Sample((Tensor((4, 3)), index_sample((5, 2), 3))),
        Sample((Tensor((4, 3, 2)), index_sample((2, 2, 1), 4))),
        Sample((Tensor((5, 3, 4)), index_sample((6, 2), 3))),
        Sample((Tensor((2, 3, 4)), index_sample((2, 5, 1), 3, "int32")), {"batch_dims": 1}),
    ),
    error_samples=[
        ErrorSample((Tensor((4,)), index_sample((5, 2), 3)), {}, "do not fit"),
        ErrorSample((Tensor((4,)), index_sample((), 3)), {}, "rank"),
        ErrorSample((Tensor((2, 4)), index_sample((3, 1), 3)), {"batch_dims": 1}, "must be equal"),
    ],
)


def _one_hot_infer(types: Sequence[Type], attrs: Attrs) -> Type:
    (indices,) = tensor_types(types)
    check_dtype(indices.dtype, INTS, "the indices")
    check_dtype(attrs["dtype"], ALL, "the result")
    axis = axis_of(attrs["axis"], indices.ndim + 1)
    return TensorType((*indices.shape[:axis], attrs["depth"], *indices.shape[axis:]), attrs["dtype"])


def _one_hot_reference(indices: NDArray, *, depth: int, axis: int, dtype: DType) -> NDArray:
    wide = np.expand_dims(indices.astype(np.int64), axis)
    shape = [1] * wide.ndim
    shape[axis] = depth
    positions = np.arange(depth).reshape(shape)
    hot: NDArray = (wide == positions) | (wide + depth == positions)
    return convert(hot, dtype)


def _one_hot_lower(type_: TensorType, attrs: Attrs, indices: te.Tensor) -> te.Tensor:
    axis = axis_of(attrs["axis"], type_.ndim)
    depth = as_expr(attrs["depth"])

    def body(*i: Expr) -> Expr:
        others = (*i[:axis], *i[axis + 1 :])
        index = cast_to("int64", indices[others])
        hot = eq(select(index < 0, index + depth, index), i[axis])
        return cast_to(attrs["dtype"], hot)

    return compute(type_.shape, body, "one_hot")


ONE_HOT = op(
    "one_hot",
    "1 where the index equals the position along a new axis of `depth`, else 0; all 0 for an index out of"
    " range",
    ["indices"],
    [Attr("depth", "dim"), Attr("axis", "int", -1), Attr("dtype", "dtype", DType("float32"))],
    kind="injective",
    infer=_one_hot_infer,
    reference=_one_hot_reference,
    lower=_one_hot_lower,
    dtypes=INTS,
    samples=(
        Sample((Tensor((2, 3), "index:7"),), {"depth": 5}),
        Sample((Tensor((4,), "wrap:6"),), {"depth": 4, "axis": 0, "dtype": "bool"}, ("int32", "int64")),
        Sample((Tensor((4,), "index:6"),), {"depth": 6, "axis": 1, "dtype": "float16"}, ("int64",)),
    ),
    error_samples=[
        ErrorSample((Tensor((2,)),), {"depth": 3}, "dtype"),
        ErrorSample((Tensor((2,), dtype="int64"),), {"depth": 3, "axis": 2}, "out of range"),
    ],
)

OPS = (GATHER, GATHER_ELEMENTS, GATHER_ND, ONE_HOT)
