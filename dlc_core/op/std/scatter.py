"""Ops that write at data-dependent indices.

Indices are integers; negative ones count from the end.  The reference refuses indices out of range; native
code skips their updates.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from dlc_core import te
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.expr import Expr, Var, cast_to, const_value, load, logical_and, maximum, minimum
from dlc_core.ir.types import TensorType, Type
from dlc_core.op.declare import (
    ALL,
    INTS,
    NUMBERS,
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
    common_dtype,
    dims_text,
    fail,
    merge_dims,
)
from dlc_core.op.lower import block_nest, checked_index, compute_type, region, replaced, rounded
from dlc_core.op.std.indexing import gather_elements_infer, index_sample, inside, last_dim
from dlc_core.tir.stmt import If, Let, Region, Stmt, store

_COMBINE: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "mul": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
}
_REDUCTION = Attr("reduction", "str", "none", choices=("none", *_COMBINE))


def _scatter(x: NDArray, indices: tuple[Any, ...], updates: NDArray, reduction: str) -> NDArray:
    result = np.array(x)
    if reduction == "none":
        result[indices] = updates
    else:
        _COMBINE[reduction].at(result, indices, updates)  # type: ignore[attr-defined]
    return result


_APPLY: dict[str, Callable[[Expr, Expr], Expr]] = {
    "none": lambda old, new: new,
    "add": lambda old, new: old + new,
    "mul": lambda old, new: old * new,
    "min": minimum,
    "max": maximum,
}


def _scattered(
    type_: TensorType,
    reduction: str,
    tensors: Sequence[te.Tensor],
    outer: int,
    ordered: Collection[int],
    target: Callable[[Buffer, Sequence[Expr]], tuple[list[Expr], list[Expr | None]]],
    index_axes: Sequence[int] | None = None,
) -> te.Tensor:
    """Copy x, then apply the updates.

    `target(indices, i)` returns the result index of update i, and for each of its components the size below
    which it is in range, or None if it always is. `i` are the first `outer` indices of the update; its other
    indices are also the last ones of the result. An update reads the indices at its own first indices, or at
    those of `index_axes`.

    Updates that differ only in one of the `ordered` dims may write the same element, so they run in order.
    Other updates write different elements and can run in parallel. Sums and products of narrow floats are
    rounded once, at the end.
    """
    wide = type_.dtype if reduction in ("none", "min", "max") else compute_type(type_.dtype)

    def body(ins: list[Buffer], outs: list[Buffer]) -> list[Stmt]:
        x, indices, updates = ins
        (out,) = outs

        def copy_element(i: list[Expr]) -> Stmt:
            return store(out, i, cast_to(wide, load(x, i)))

        def update(point: list[Expr]) -> Stmt:
            i, rest = point[:outer], point[outer:]
            found, sizes = target(indices, i)
            target_vars = [Var(f"at{axis}", "int64") for axis in range(len(found))]
            where = [*target_vars, *rest]
            new = cast_to(wide, load(updates, point))
            written: Stmt = store(out, where, _APPLY[reduction](load(out, where), new))
            checked = [(var, size) for var, size in zip(target_vars, sizes, strict=True) if size is not None]
            if checked:  # of the variables, so that the ranges of the accesses are known
                conditions = [condition for var, size in checked for condition in (var >= 0, var < size)]
                written = If(logical_and(*conditions), written)
            for var, value in zip(reversed(target_vars), reversed(found), strict=True):
                written = Let(var, value, written)
            return written

        def fixed_indices(point: list[Expr]) -> list[Expr | None]:
            """The part of an update's target that does not depend on the indices."""
            free = len(out.shape) - len(point[outer:])
            kept = [None if axis in ordered else i for axis, i in enumerate(point[:outer])]
            return [*(kept if len(kept) == free else [None] * free), *point[outer:]]

        def regions_of_update(point: list[Expr]) -> tuple[list[Region], list[Region]]:
            target_region = region(out, fixed_indices(point))
            at = point[:outer] if index_axes is None else [point[axis] for axis in index_axes]
            read = region(indices, [*at, *[None] * (indices.ndim - len(at))])
            return [target_region, read, region(updates, point)], [target_region]

        return [
            block_nest("copy", x.shape, copy_element, lambda i: ([region(x, i)], [region(out, i)])),
            block_nest("update", updates.shape, update, regions_of_update, ordered),
        ]

    made = te.extern(type_.shape, tensors, body, "scatter", dtype_=wide, blocks=True)
    return rounded(made, type_.dtype, "scatter_end")


def _scatter_elements_lower(type_: TensorType, attrs: Attrs, *tensors: te.Tensor) -> te.Tensor:
    axis = axis_of(attrs["axis"], type_.ndim)
    size = tensors[0].shape[axis]

    def target(indices: Buffer, i: Sequence[Expr]) -> tuple[list[Expr], list[Expr | None]]:
        index = checked_index(load(indices, i), size)
        return list(replaced(tuple(i), axis, index)), [size if k == axis else None for k in range(len(i))]

    return _scattered(type_, attrs["reduction"], tensors, type_.ndim, {axis}, target)


def _scatter_nd_lower(type_: TensorType, attrs: Attrs, *tensors: te.Tensor) -> te.Tensor:
    x, indices, _ = tensors
    outer, depth = indices.ndim - 1, const_value(indices.shape[-1]) or 0

    def target(indices: Buffer, i: Sequence[Expr]) -> tuple[list[Expr], list[Expr | None]]:
        found = [checked_index(load(indices, [*i, k]), x.shape[k]) for k in range(depth)]
        return found, list(x.shape[:depth])

    return _scattered(type_, attrs["reduction"], tensors, outer, range(outer), target)


def _scatter_elements_infer(types: Sequence[Type], attrs: Attrs) -> Type:
    x, indices, updates = tensor_types(types)
    gather_elements_infer((x, indices), attrs)
    common_dtype((x, updates), ALL if attrs["reduction"] == "none" else NUMBERS)
    check_rank(updates, x.ndim, x.ndim, "the updates")
    for i, (a, b) in enumerate(zip(indices.shape, updates.shape, strict=True)):
        merge_dims(a, b, f"dims {i} of indices and updates")
    return x


def _scatter_elements_reference(
    x: NDArray, indices: NDArray, updates: NDArray, *, axis: int, reduction: str
) -> NDArray:
    target: list[Any] = list(np.indices(indices.shape, sparse=True))
    target[axis] = inside(indices, x.shape[axis])
    return _scatter(x, tuple(target), updates, reduction)


SCATTER_ELEMENTS = op(
    "scatter_elements",
    "x with updates at [i0, …, indices[i0, …, ik], …, in], stored or combined.  If indices repeat without a"
    " reduction, the last update wins",
    ["x", "indices", "updates"],
    [Attr("axis", "int", 0), _REDUCTION],
    kind="opaque",
    infer=_scatter_elements_infer,
    reference=_scatter_elements_reference,
    lower=_scatter_elements_lower,
    dtypes=ALL,
    samples=(
        Sample((Tensor((4, 3)), Tensor((1, 3), "wrap:4", "int64"), Tensor((1, 3)))),
        Sample((Tensor((2, 5)), Tensor((2, 2), [[1, -1], [0, 3]], "int32"), Tensor((2, 2))), {"axis": -1}),
        *(
            Sample(
                (Tensor((4, 3)), index_sample((6, 3), 4), Tensor((6, 3))), {"reduction": reduction}, NUMBERS
            )
            for reduction in _COMBINE
        ),
    ),
    error_samples=[
        ErrorSample((Tensor((4, 3)), index_sample((1, 3), 4), Tensor((2, 3))), {}, "must be equal"),
        ErrorSample((Tensor((4, 3)), index_sample((1, 3), 4), Tensor((1, 3), dtype="int8")), {}, "dtypes"),
        ErrorSample((Tensor((4, 3)), index_sample((1, 3), 4), Tensor((3,))), {}, "rank"),
    ],
)


def _scatter_nd_infer(types: Sequence[Type], attrs: Attrs) -> Type:
    x, indices, updates = tensor_types(types)
    check_dtype(indices.dtype, INTS, "the indices")
    common_dtype((x, updates), ALL if attrs["reduction"] == "none" else NUMBERS)
    depth = last_dim(indices)
    if depth > x.ndim:
        raise fail(f"{depth} indices for rank {x.ndim}")
    wanted = (*indices.shape[:-1], *x.shape[depth:])
    if len(wanted) != updates.ndim:
        raise fail(f"the updates are {dims_text(updates.shape)}, but {dims_text(wanted)} is needed")
    for i, (a, b) in enumerate(zip(wanted, updates.shape, strict=True)):
        merge_dims(a, b, f"dims {i} of the updates")
    return x


def _scatter_nd_reference(x: NDArray, indices: NDArray, updates: NDArray, *, reduction: str) -> NDArray:
    target = tuple(inside(indices[..., k], x.shape[k]) for k in range(indices.shape[-1]))
    return _scatter(x, target, updates, reduction)


SCATTER_ND = op(
    "scatter_nd",
    "x with slices of updates at the indices in the last dim of `indices`, stored or combined.  Where"
    " indices repeat without a reduction, the last update wins",
    ["x", "indices", "updates"],
    [_REDUCTION],
    kind="opaque",
    infer=_scatter_nd_infer,
    reference=_scatter_nd_reference,
    lower=_scatter_nd_lower,
    dtypes=ALL,
    samples=(
        Sample((Tensor((4, 3)), Tensor((2, 1), [[2], [-4]], "int64"), Tensor((2, 3)))),
        Sample((Tensor((4, 3)), Tensor((2, 2), [[2, 1], [0, -1]], "int64"), Tensor((2,)))),
        *(
            Sample(
                (Tensor((4, 3)), index_sample((6, 1), 4), Tensor((6, 3))), {"reduction": reduction}, NUMBERS
            )
            for reduction in _COMBINE
        ),
    ),
    error_samples=[
        ErrorSample((Tensor((4,)), index_sample((2, 2), 4), Tensor((2,))), {}, "2 indices for rank 1"),
        ErrorSample((Tensor((4, 3)), index_sample((2, 1), 4), Tensor((2,))), {}, "is needed"),
        ErrorSample((Tensor((4,)), Tensor((2, 1)), Tensor((2,))), {}, "indices has dtype"),
    ],
)


def _scatter_slices_lower(type_: TensorType, attrs: Attrs, *tensors: te.Tensor) -> te.Tensor:
    axis = axis_of(attrs["axis"], type_.ndim)
    size = tensors[0].shape[axis]

    def target(indices: Buffer, i: Sequence[Expr]) -> tuple[list[Expr], list[Expr | None]]:
        index = checked_index(load(indices, [i[axis]]), size)
        return [*i[:axis], index], [*[None] * axis, size]

    return _scattered(type_, attrs["reduction"], tensors, axis + 1, {axis}, target, (axis,))


def _scatter_slices_infer(types: Sequence[Type], attrs: Attrs) -> Type:
    x, indices, updates = tensor_types(types)
    check_dtype(indices.dtype, INTS, "the indices")
    check_rank(indices, 1, 1, "the indices")
    common_dtype((x, updates), ALL if attrs["reduction"] == "none" else NUMBERS)
    check_rank(updates, x.ndim, x.ndim, "the updates")
    axis = axis_of(attrs["axis"], x.ndim)
    for i, (a, b) in enumerate(zip(x.shape, updates.shape, strict=True)):
        merge_dims(indices.shape[0] if i == axis else a, b, f"dims {i} of the updates")
    return x


def _scatter_slices_reference(
    x: NDArray, indices: NDArray, updates: NDArray, *, axis: int, reduction: str
) -> NDArray:
    at = axis_of(axis, x.ndim)
    return _scatter(x, (*[slice(None)] * at, inside(indices, x.shape[at])), updates, reduction)


SCATTER_SLICES = op(
    "scatter_slices",
    "x with the slices of updates along an axis at the indices, stored or combined.  Where indices repeat"
    " without a reduction, the last update wins",
    ["x", "indices", "updates"],
    [Attr("axis", "int", 0), _REDUCTION],
    kind="opaque",
    infer=_scatter_slices_infer,
    reference=_scatter_slices_reference,
    lower=_scatter_slices_lower,
    dtypes=ALL,
    samples=(
        Sample((Tensor((4, 3)), Tensor((2,), [2, -4], "int64"), Tensor((2, 3)))),
        Sample((Tensor((2, 4, 3)), Tensor((1,), [3], "int32"), Tensor((2, 1, 3))), {"axis": 1}),
        *(
            Sample(
                (Tensor((3, 4)), index_sample((6,), 4), Tensor((3, 6))),
                {"axis": -1, "reduction": reduction},
                NUMBERS,
            )
            for reduction in _COMBINE
        ),
    ),
    error_samples=[
        ErrorSample((Tensor((4,)), index_sample((2, 1), 4), Tensor((2,))), {}, "rank"),
        ErrorSample((Tensor((4, 3)), index_sample((2,), 4), Tensor((2, 2))), {}, "must be equal"),
        ErrorSample((Tensor((4, 3)), index_sample((2,), 4), Tensor((1, 3))), {}, "must be equal"),
        ErrorSample((Tensor((4,)), Tensor((2,)), Tensor((2,))), {}, "indices has dtype"),
    ],
)

OPS = (SCATTER_ELEMENTS, SCATTER_ND, SCATTER_SLICES)
