"""Weighted sums of rows at data-dependent indices, for sampling an image between its pixels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dlc_core import te
from dlc_core.ir.expr import Expr, cast_to, const, const_value, maximum, minimum, select
from dlc_core.ir.types import TensorType, Type
from dlc_core.op.declare import FLOATS, ErrorSample, NDArray, Sample, Tensor, op, tensor_types
from dlc_core.op.infer import Attrs, check_dtype, check_rank, fail, merge_dims
from dlc_core.op.lower import compute, compute_type

MAX_TERMS = 64
"""The largest number of rows of a sum, because all terms are expanded."""


def _infer(types: Sequence[Type], attrs: Attrs) -> Type:
    x, indices, weights = tensor_types(types)
    check_rank(x, 3, 3, "the rows")
    check_rank(indices, 3, 3, "the indices")
    check_dtype(x.dtype, FLOATS)
    check_dtype(indices.dtype, ("int64",), "the indices")
    check_dtype(weights.dtype, FLOATS, "the weights")
    if weights.shape != indices.shape:
        raise fail(f"the indices are {indices}, the weights {weights}", "give one weight for each index")
    terms = indices.shape[0]
    if not isinstance(terms, int) or not 1 <= terms <= MAX_TERMS:
        raise fail(f"sums of {terms} rows", f"1 to {MAX_TERMS} are needed")
    batch = merge_dims(x.shape[0], indices.shape[1], "the batches")
    return TensorType((batch, indices.shape[2], x.shape[2]), x.dtype)


def _reference(x: NDArray, indices: NDArray, weights: NDArray) -> NDArray:
    _, batches, count = indices.shape
    wide = np.float64 if x.dtype == np.float64 else np.float32
    result = np.zeros((batches, count, x.shape[2]), wide)
    if not x.shape[1]:
        return result.astype(x.dtype)
    batch = np.arange(batches)[:, None]
    for index, weight in zip(indices, weights, strict=True):
        rows = x[batch, index.clip(0, x.shape[1] - 1)].astype(wide) * weight[..., None].astype(wide)
        result += np.where(index[..., None] < 0, 0, rows)
    return result.astype(x.dtype)


def _lower(
    type_: TensorType, attrs: Attrs, x: te.Tensor, indices: te.Tensor, weights: te.Tensor
) -> te.Tensor:
    wide = compute_type(x.dtype)
    zero, last = const(0, "int64"), x.shape[1] - 1
    if 0 in type_.shape or const_value(x.shape[1]) == 0:
        return compute(type_.shape, lambda *at: const(0, type_.dtype), "gather_sum")

    def value(batch: Expr, q: Expr, channel: Expr) -> Expr:
        total: Expr | None = None
        for term in range(const_value(indices.shape[0]) or 0):
            index = indices[term, batch, q]
            row = x[batch, maximum(minimum(index, last), zero), channel]
            weighted = cast_to(wide, row) * cast_to(wide, weights[term, batch, q])
            part = select(index < zero, const(0, wide), weighted)
            total = part if total is None else total + part
        assert total is not None
        return cast_to(type_.dtype, total)

    return compute(type_.shape, value, "gather_sum")


def _sample(terms: int, batches: int, count: int, rows: int, columns: int) -> tuple[Tensor, ...]:
    shape = (terms, batches, count)
    indices = Tensor(shape, f"uniform:-1:{rows}", "int64")
    return Tensor((batches, rows, columns)), indices, Tensor(shape)


_SAMPLE = _sample(4, 2, 3, 5, 8)

GATHER_SUM = op(
    "gather_sum",
    "sums of rows times weights: out[b, q] = the sum over t of x[b, indices[t, b, q]] * weights[t, b, q]."
    "  Negative indices add zeros, whatever the weight; those beyond the last row take it",
    ["x", "indices", "weights"],
    kind="opaque",
    infer=_infer,
    reference=_reference,
    lower=_lower,
    samples=(
        Sample(_SAMPLE),
        Sample(_sample(1, 3, 4, 6, 1)),
        Sample(_sample(16, 1, 5, 7, 33)),
        Sample(
            (
                Tensor((1, 2, 3), [[[1, 2, 3], [np.inf, np.nan, 4]]]),
                Tensor((2, 1, 2), [[[0, 0]], [[-7, 9]]], "int64"),
                Tensor((2, 1, 2), [[[0.5, 2]], [[np.inf, 1]]]),
            ),
            dtypes=("float32",),
            note="indices out of range, infinities and NaN",
        ),
        Sample(_sample(2, 2, 0, 5, 8), dtypes=("float32",), note="no sum"),
    ),
    error_samples=[
        ErrorSample((*_SAMPLE[:2], Tensor((4, 2, 2))), {}, "one weight for each index"),
        ErrorSample((Tensor((3, 5, 8)), *_SAMPLE[1:]), {}, "the batches"),
        ErrorSample(_sample(65, 1, 1, 2, 2), {}, "1 to 64"),
    ],
)

OPS = (GATHER_SUM,)
