"""Reductions over axes: sums, means, extremes, norms, logic, argmax.

`axes` None means all axes.  With `keepdims` reduced axes stay as dims of 1.  Floats of 16 bits accumulate in
float32; integers keep their dtype and wrap around.  Over no elements a sum is 0, a product 1, a maximum the
lowest value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dlc_core import te
from dlc_core.ir.conditions import AT_LEAST
from dlc_core.ir.dtype import DType
from dlc_core.ir.expr import Expr, as_expr, binary, cast_to, const, const_value, eq, minimum, select
from dlc_core.ir.types import Dim, TensorType
from dlc_core.op.assume import assume
from dlc_core.op.declare import (
    FLOATS,
    NUMBERS,
    SIGNED,
    Attr,
    ErrorSample,
    NDArray,
    OpDecl,
    Sample,
    Tensor,
    op,
)
from dlc_core.op.infer import Attrs, axes_of, axis_of, dims_text, fail, of_input, product
from dlc_core.op.lower import compute, compute_type, narrow, rounded, truncate_div, widen
from dlc_core.op.samples import wrong_dtype
from dlc_core.tir.intrinsics import intrinsic

AXES = (
    Attr("axes", "ints", None, "None: all axes"),
    Attr("keepdims", "bool", False, "keep reduced axes as dims of 1"),
)


def reduced_axes(attrs: Attrs, rank: int) -> tuple[int, ...]:
    """The axes of a reduction as sorted non-negative ints."""
    return tuple(range(rank)) if attrs["axes"] is None else tuple(sorted(axes_of(attrs["axes"], rank)))


def _reduce_infer(x: TensorType, attrs: Attrs) -> TensorType:
    axes = reduced_axes(attrs, x.ndim)
    if attrs["keepdims"]:
        return TensorType(tuple(1 if i in axes else d for i, d in enumerate(x.shape)), x.dtype)
    return TensorType(tuple(d for i, d in enumerate(x.shape) if i not in axes), x.dtype)


def point_maker(
    rank: int, axes: Sequence[int], keepdims: bool
) -> Callable[[Sequence[Any], Sequence[Any]], tuple[Any, ...]]:
    """Return a function that maps result indices and reduction indices to an input index."""

    def point(indices: Sequence[Any], reduced: Sequence[Any]) -> tuple[Any, ...]:
        inner = iter(reduced)
        outer = iter([v for k, v in enumerate(indices) if not keepdims or k not in axes])
        return tuple(next(inner) if k in axes else next(outer) for k in range(rank))

    return point


def reduce_stage(
    x: te.Tensor,
    axes: Sequence[int],
    keepdims: bool,
    combine: Callable[..., te.tensor.Reduction],
    name: str,
    value: Callable[[Expr], Expr] = lambda v: v,
) -> te.Tensor:
    """Reduce `value(element)` over axes with `combine`, such as te.sum. It runs in the computing dtype."""
    shape = [d for k, d in enumerate(x.shape) if k not in axes]
    if keepdims:
        shape = [const(1) if k in axes else d for k, d in enumerate(x.shape)]
    reduced = [te.reduce_axis(x.shape[k], f"k{k}") for k in axes]
    point = point_maker(x.ndim, axes, keepdims)
    if not axes:
        return compute(shape, lambda *i: value(widen(x[i])), name)
    return compute(shape, lambda *i: combine(value(widen(x[point(i, reduced)])), axis=reduced), name)


def _reduction(
    name: str,
    doc: str,
    reference: Callable[..., Any],
    combine: Callable[..., te.tensor.Reduction],
    dtypes: Sequence[str] = NUMBERS,
    *,
    value: Callable[[Expr], Expr] = lambda v: v,
    finish: Callable[[Expr, Dim], Expr] | None = None,
    values: str = "normal",
    special: bool = True,
    accumulate: Callable[[DType], DType] = compute_type,
) -> OpDecl:
    """Declare a reduction: reduce `value(x)` by `combine`, then apply `finish(result, element count)`."""

    def lower(type_: TensorType, attrs: Attrs, x: te.Tensor) -> te.Tensor:
        axes = reduced_axes(attrs, x.ndim)
        wide = accumulate(x.dtype)
        total = reduce_stage(x, axes, attrs["keepdims"], combine, name, lambda v: value(cast_to(wide, v)))
        if finish is None:
            return rounded(total, type_.dtype, f"{name}_end")
        count = product([x.shape[k] for k in axes])
        return compute(type_.shape, lambda *i: narrow(finish(total[i], count), type_.dtype), f"{name}_end")

    def evaluate(x: NDArray, *, axes: tuple[int, ...] | None, keepdims: bool) -> Any:
        return reference(x, axis=axes, keepdims=keepdims)

    some = [
        Sample((Tensor((3, 4, 5), values),)),
        Sample((Tensor((3, 4, 5), values),), {"axes": (1,)}),
        Sample((Tensor((3, 4, 5), values),), {"axes": (-1, 0), "keepdims": True}),
        Sample((Tensor((3, 4), values),), {"axes": (), "keepdims": True}),
        Sample((Tensor((), values),)),
    ]
    if special:
        some.append(Sample((Tensor((24, 2), "special"),), {"axes": (1,)}))
    refused = next(d for d in ("bool", "int8", "uint8", "float32") if d not in dtypes)
    return op(
        name,
        doc,
        ["x"],
        AXES,
        kind="reduction",
        infer=of_input(_reduce_infer, dtypes),
        reference=evaluate,
        lower=lower,
        samples=some,
        dtypes=dtypes,
        error_samples=[
            wrong_dtype(refused),
            ErrorSample((Tensor((2, 3)),), {"axes": (2,)}, "out of range", dtypes[0]),
            ErrorSample((Tensor((2, 3)),), {"axes": (1, -1)}, "twice", dtypes[0]),
        ],
    )


def lowest(x: NDArray) -> Any:
    """The identity of maxima in an array's dtype."""
    return -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min


def _highest(x: NDArray) -> Any:
    return np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).max


def _sum(x: NDArray, axis: Any, keepdims: bool) -> NDArray:
    return np.asarray(np.sum(x, axis=axis, keepdims=keepdims, dtype=x.dtype))


def _mean(x: NDArray, axis: Any, keepdims: bool) -> NDArray:
    if x.dtype.kind == "f":
        return np.asarray(np.mean(x, axis=axis, keepdims=keepdims))
    total = np.sum(x.astype(np.int64), axis=axis, keepdims=keepdims)
    count = x.size // max(total.size, 1)
    return np.asarray(np.sign(total) * (np.abs(total) // count)).astype(x.dtype)


def _divide(total: Expr, count: Dim) -> Expr:
    divisor = cast_to(total.dtype, const(count) if isinstance(count, int) else count)
    return total / divisor if total.dtype.is_float else truncate_div(total, divisor)


def _log_sum_exp(x: NDArray, axis: Any, keepdims: bool) -> NDArray:
    top = np.max(x, axis=axis, keepdims=True, initial=-np.inf)
    finite = np.where(np.isfinite(top), top, 0)
    result = np.log(np.sum(np.exp(x - finite), axis=axis, keepdims=True)) + finite
    return np.asarray(result if keepdims else np.squeeze(result, None if axis is None else axis))


def _square(v: Expr) -> Expr:
    return v * v


def _mean_type(type_: DType) -> DType:
    return DType("int64") if type_.is_int else compute_type(type_)


def _logic(name: str) -> te.Combiner:
    return te.Combiner(
        name,
        lambda a, b: (binary(name, a[0], b[0]),),
        lambda dtypes: (const(name == "and", "bool"),),
    )


_ANY, _ALL = _logic("or"), _logic("and")

REDUCE_SUM = _reduction("reduce_sum", "sum", _sum, te.sum)
REDUCE_MEAN = _reduction(
    "reduce_mean",
    "arithmetic mean; integers are summed in int64, and the quotient is truncated",
    _mean,
    te.sum,
    ("float32", "float64", "float16", "bfloat16", *SIGNED),
    finish=_divide,
    accumulate=_mean_type,
)
REDUCE_MAX = _reduction(
    "reduce_max", "largest element; NaN where any is NaN",
    lambda x, axis, keepdims: np.max(x, axis=axis, keepdims=keepdims, initial=lowest(x)), te.max,
)  # fmt: skip
REDUCE_MIN = _reduction(
    "reduce_min", "smallest element; NaN where any is NaN",
    lambda x, axis, keepdims: np.min(x, axis=axis, keepdims=keepdims, initial=_highest(x)), te.min,
)  # fmt: skip
REDUCE_PROD = _reduction(
    "reduce_prod",
    "product",
    lambda x, axis, keepdims: np.prod(x, axis=axis, keepdims=keepdims, dtype=x.dtype),
    te.prod,
    values="uniform:1:2",
)
REDUCE_L1 = _reduction(
    "reduce_l1", "sum of absolute values", lambda x, axis, keepdims: _sum(np.abs(x), axis, keepdims), te.sum,
    value=lambda v: intrinsic("abs", v),
)  # fmt: skip
REDUCE_L2 = _reduction(
    "reduce_l2", "square root of the sum of squares",
    lambda x, axis, keepdims: np.sqrt(_sum(x * x, axis, keepdims)), te.sum, FLOATS,
    value=_square, finish=lambda v, count: intrinsic("sqrt", v),
)  # fmt: skip
REDUCE_SUMSQUARE = _reduction(
    "reduce_sumsquare",
    "sum of squares",
    lambda x, axis, keepdims: _sum(x * x, axis, keepdims),
    te.sum,
    value=_square,
)
REDUCE_LOGSUM = _reduction(
    "reduce_logsum",
    "logarithm of the sum",
    lambda x, axis, keepdims: np.log(_sum(x, axis, keepdims)),
    te.sum,
    FLOATS,
    finish=lambda v, count: intrinsic("log", v),
    values="positive",
)
REDUCE_ANY = _reduction(
    "reduce_any", "whether any element is true", np.any,
    lambda v, axis: te.reduce(_ANY, (v,), axis), ("bool",), special=False,
)  # fmt: skip
REDUCE_ALL = _reduction(
    "reduce_all", "whether all elements are true", np.all,
    lambda v, axis: te.reduce(_ALL, (v,), axis), ("bool",), special=False,
)  # fmt: skip


def _log_sum_exp_lower(type_: TensorType, attrs: Attrs, x: te.Tensor) -> te.Tensor:
    axes = reduced_axes(attrs, x.ndim)
    top = reduce_stage(x, axes, True, te.max, "logsumexp_max")

    def shift(i: Sequence[Any]) -> Expr:
        value = top[tuple(const(0) if k in axes else v for k, v in enumerate(i))]
        infinite = intrinsic("isinf", value)
        return select(infinite, const(0, value.dtype), value)

    shifted = compute(x.shape, lambda *i: intrinsic("exp", widen(x[i]) - shift(i)), "logsumexp_exp")
    total = reduce_stage(shifted, axes, attrs["keepdims"], te.sum, "logsumexp_sum")
    point = point_maker(x.ndim, axes, attrs["keepdims"])
    zeros = [const(0)] * len(axes)
    return compute(
        type_.shape,
        lambda *i: narrow(intrinsic("log", total[i]) + shift(point(i, zeros)), type_.dtype),
        "logsumexp",
    )


REDUCE_LOGSUMEXP = op(
    "reduce_logsumexp",
    "logarithm of the sum of exponentials, without overflow",
    ["x"],
    AXES,
    kind="reduction",
    infer=of_input(_reduce_infer, FLOATS),
    reference=lambda x, *, axes, keepdims: _log_sum_exp(x, axes, keepdims),
    lower=_log_sum_exp_lower,
    samples=REDUCE_L2.samples,
    error_samples=REDUCE_L2.error_samples,
)


def _arg_infer(x: TensorType, attrs: Attrs) -> TensorType:
    axis = axis_of(attrs["axis"], x.ndim)
    kept = (1,) if attrs["keepdims"] else ()
    others = (*x.shape[:axis], *x.shape[axis + 1 :])
    if x.shape[axis] == 0 and 0 not in others:
        raise fail(f"dim {axis} of {dims_text(x.shape)} has no elements, so there is no extreme one")
    if not isinstance(x.shape[axis], int) and 0 not in others:
        least = minimum(as_expr(product(others)), 1)
        assume(AT_LEAST, x.shape[axis], least, f"dim {axis} has an extreme element")
    return TensorType((*x.shape[:axis], *kept, *x.shape[axis + 1 :]), DType("int64"))


def _arg(largest: bool) -> OpDecl:
    name = "argmax" if largest else "argmin"
    numpy_arg = np.argmax if largest else np.argmin

    def reference(x: NDArray, *, axis: int, keepdims: bool, select_last: bool) -> NDArray:
        if x.size == 0:
            return np.asarray(np.zeros_like(x, np.int64).sum(axis, keepdims=keepdims))
        if not select_last:
            return np.asarray(numpy_arg(x, axis, keepdims=keepdims))
        return np.asarray(x.shape[axis] - 1 - numpy_arg(np.flip(x, axis), axis, keepdims=keepdims))

    def lower(type_: TensorType, attrs: Attrs, x: te.Tensor) -> te.Tensor:
        axis = axis_of(attrs["axis"], x.ndim)
        size = x.shape[axis]
        point = point_maker(x.ndim, (axis,), attrs["keepdims"])
        extreme, outermost = (te.max if largest else te.min), (te.max if attrs["select_last"] else te.min)
        static = const_value(size)
        index_dtype = "int32" if static is not None and static < 1 << 31 else "int64"
        no_match = te.min_value(index_dtype) if attrs["select_last"] else te.max_value(index_dtype)
        k, candidate = te.reduce_axis(size, "k"), te.reduce_axis(size, "place")
        best = te.compute(type_.shape, lambda *i: extreme(widen(x[point(i, (k.var,))]), k), f"{name}_best")

        def hit(*i: Expr) -> Expr:
            value = widen(x[point(i, (candidate.var,))])
            same = eq(value, best[i])
            return binary("or", same, intrinsic("isnan", value)) if value.dtype.is_float else same

        # Two reductions of single values can be vectorised. One reduction of pairs would be a chain of
        # selects.
        found: te.Tensor = te.compute(
            type_.shape,
            lambda *i: outermost(select(hit(*i), cast_to(index_dtype, candidate.var), no_match), candidate),
            f"{name}_place",
        )
        result: te.Tensor = te.compute(type_.shape, lambda *i: cast_to("int64", found[i]), name)
        return result

    return op(
        name,
        f"index of the {'largest' if largest else 'smallest'} element along an axis, the first or the last;"
        " NaN wins",
        ["x"],
        [Attr("axis", "int", 0), Attr("keepdims", "bool", False), Attr("select_last", "bool", False)],
        kind="reduction",
        infer=of_input(_arg_infer, NUMBERS),
        reference=reference,
        lower=lower,
        dtypes=NUMBERS,
        samples=(
            Sample((Tensor((3, 4, 5)),), {"axis": 1}),
            Sample((Tensor((3, 7)),), {"axis": -1, "keepdims": True}),
            Sample((Tensor((2, 9), "uniform:0:3"),), {"axis": 1, "select_last": True}),
            Sample((Tensor((2, 12), "special"),), {"axis": 1}),
            Sample((Tensor((12, 2), "special"),), {"axis": 0, "select_last": True}),
            Sample((Tensor((0, 3, 0)),), {"axis": 0, "keepdims": True}),
        ),
        error_samples=[
            wrong_dtype("bool"),
            ErrorSample((Tensor((2,)),), {"axis": 1}, "out of range"),
            ErrorSample((Tensor((2, 0)),), {"axis": 1}, "has no elements"),
        ],
    )


ARGMAX, ARGMIN = _arg(True), _arg(False)


OPS = (
    REDUCE_SUM, REDUCE_MEAN, REDUCE_MAX, REDUCE_MIN, REDUCE_PROD, REDUCE_L1, REDUCE_L2, REDUCE_SUMSQUARE,
    REDUCE_LOGSUM, REDUCE_LOGSUMEXP, REDUCE_ANY, REDUCE_ALL, ARGMAX, ARGMIN,
)  # fmt: skip
