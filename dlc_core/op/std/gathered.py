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

MOST_TERMS = 64
"""Rows of a sum: it is written out."""


def _infer(types: Sequence[Type], attrs: Attrs) -> Type:
    x, places, weights = tensor_types(types)
    check_rank(x, 3, 3, "the rows")
    check_rank(places, 3, 3, "the indices")
    check_dtype(x.dtype, FLOATS)
    check_dtype(places.dtype, ("int64",), "the indices")
    check_dtype(weights.dtype, FLOATS, "the weights")
    if weights.shape != places.shape:
        raise fail(f"places are {places}, weights {weights}", "there must be one for each place")
    terms = places.shape[0]
    if not isinstance(terms, int) or not 1 <= terms <= MOST_TERMS:
        raise fail(f"sums of {terms} rows", f"1 to {MOST_TERMS} are needed")
    batch = merge_dims(x.shape[0], places.shape[1], "the batches")
    return TensorType((batch, places.shape[2], x.shape[2]), x.dtype)


def _reference(x: NDArray, places: NDArray, weights: NDArray) -> NDArray:
    _, batches, count = places.shape
    held = np.float64 if x.dtype == np.float64 else np.float32
    made = np.zeros((batches, count, x.shape[2]), held)
    if not x.shape[1]:
        return made.astype(x.dtype)
    batch = np.arange(batches)[:, None]
    for place, weight in zip(places, weights, strict=True):
        rows = x[batch, place.clip(0, x.shape[1] - 1)].astype(held) * weight[..., None].astype(held)
        made += np.where(place[..., None] < 0, 0, rows)
    return made.astype(x.dtype)


def _lower(type_: TensorType, attrs: Attrs, x: te.Tensor, places: te.Tensor, weights: te.Tensor) -> te.Tensor:
    held = compute_type(x.dtype)
    zero, last = const(0, "int64"), x.shape[1] - 1
    if 0 in type_.shape or const_value(x.shape[1]) == 0:
        return compute(type_.shape, lambda *at: const(0, type_.dtype), "gather_sum")

    def value(batch: Expr, q: Expr, channel: Expr) -> Expr:
        total: Expr | None = None
        for term in range(const_value(places.shape[0]) or 0):
            place = places[term, batch, q]
            row = x[batch, maximum(minimum(place, last), zero), channel]
            weighted = cast_to(held, row) * cast_to(held, weights[term, batch, q])
            part = select(place < zero, const(0, held), weighted)
            total = part if total is None else total + part
        assert total is not None
        return cast_to(type_.dtype, total)

    return compute(type_.shape, value, "gather_sum")


def _sample(terms: int, batches: int, count: int, rows: int, columns: int) -> tuple[Tensor, ...]:
    shape = (terms, batches, count)
    places = Tensor(shape, f"uniform:-1:{rows}", "int64")
    return Tensor((batches, rows, columns)), places, Tensor(shape)


_FEW = _sample(4, 2, 3, 5, 8)

GATHER_SUM = op(
    "gather_sum",
    "sums of rows times weights: out[b, q] = the sum over t of x[b, indices[t, b, q]] * weights[t, b, q]."
    "  A negative place has zeros, whatever the weight; others outside are the last row",
    ["x", "places", "weights"],
    kind="opaque",
    infer=_infer,
    reference=_reference,
    lower=_lower,
    samples=(
        Sample(_FEW),
        Sample(_sample(1, 3, 4, 6, 1)),
        Sample(_sample(16, 1, 5, 7, 33)),
        Sample(
            (
                Tensor((1, 2, 3), [[[1, 2, 3], [np.inf, np.nan, 4]]]),
                Tensor((2, 1, 2), [[[0, 0]], [[-7, 9]]], "int64"),
                Tensor((2, 1, 2), [[[0.5, 2]], [[np.inf, 1]]]),
            ),
            dtypes=("float32",),
            note="places outside, values that are no numbers",
        ),
        Sample(_sample(2, 2, 0, 5, 8), dtypes=("float32",), note="no sum"),
    ),
    error_samples=[
        ErrorSample((*_FEW[:2], Tensor((4, 2, 2))), {}, "one for each place"),
        ErrorSample((Tensor((3, 5, 8)), *_FEW[1:]), {}, "the batches"),
        ErrorSample(_sample(65, 1, 1, 2, 2), {}, "1 to 64"),
    ],
)

OPS = (GATHER_SUM,)
