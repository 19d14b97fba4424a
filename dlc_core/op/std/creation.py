"""Ops without inputs, and triangles of matrices: full, arange, eye, dims_tensor, trilu."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dlc_core import te
from dlc_core.ir.convert import convert
from dlc_core.ir.dtype import DType
from dlc_core.ir.expr import Expr, as_expr, cast_to, const, eq, maximum, minimum, select
from dlc_core.ir.types import Dim, TensorType, Type
from dlc_core.op.declare import ALL, FLOATS, NUMBERS, Attr, ErrorSample, NDArray, Sample, Tensor, op
from dlc_core.op.infer import Attrs, ceil_div, check_dtype, check_rank, dim_max, fail, of_input, simplify
from dlc_core.op.lower import compute, narrow

_FLOAT32 = DType("float32")
_NO_DIAGONAL = 1 << 60
"""Larger diagonals are clamped to this number, so that index arithmetic does not overflow."""


def _clamped(k: Dim) -> Expr:
    return minimum(maximum(as_expr(k), -_NO_DIAGONAL), _NO_DIAGONAL)


def _sizes(shape: Sequence[Dim]) -> tuple[Dim, ...]:
    if any(isinstance(d, int) and d < 0 for d in shape):
        raise fail(f"the shape {tuple(shape)} has a negative dim")
    return tuple(shape)


def _full_infer(types: Sequence[Type], attrs: Attrs) -> Type:
    check_dtype(attrs["dtype"], ALL, "the result")
    return TensorType(_sizes(attrs["shape"]), attrs["dtype"])


def _full_reference(*, shape: tuple[int, ...], value: float, dtype: DType) -> NDArray:
    return np.full(shape, convert(value, dtype))


def _full_lower(type_: TensorType, attrs: Attrs) -> te.Tensor:
    return compute(type_.shape, lambda *i: const(attrs["value"], type_.dtype), "full")


FULL = op(
    "full",
    "a tensor of one value",
    [],
    [Attr("shape", "dims"), Attr("value", "float"), Attr("dtype", "dtype", _FLOAT32)],
    kind="injective",
    infer=_full_infer,
    reference=_full_reference,
    lower=_full_lower,
    dtypes=("float32",),
    samples=tuple(
        Sample((), {"shape": shape, "value": value, "dtype": dtype})
        for shape, value, dtype in (
            ((2, 3), 1.5, "float32"),
            ((), -2.0, "int64"),
            ((4,), 1.0, "bool"),
            ((0,), 0.0, "float16"),
        )
    ),
    error_samples=[ErrorSample((), {"shape": (-1,), "value": 0.0}, "negative")],
)


def _arange_infer(types: Sequence[Type], attrs: Attrs) -> Type:
    check_dtype(attrs["dtype"], NUMBERS, "the result")
    step = attrs["step"]
    if step == 0:
        raise fail("the step is 0")
    start, stop = attrs["start"], attrs["stop"]
    distance = simplify(stop - start if step > 0 else start - stop)
    return TensorType((dim_max(ceil_div(distance, abs(step)), 0),), attrs["dtype"])


def _arange_reference(*, start: int, stop: int, step: int, dtype: DType) -> NDArray:
    return convert(np.arange(start, stop, step), dtype)


def _arange_lower(type_: TensorType, attrs: Attrs) -> te.Tensor:
    return compute(type_.shape, lambda i: cast_to(type_.dtype, i * attrs["step"] + attrs["start"]), "arange")


ARANGE = op(
    "arange",
    "start, start + step, … before stop",
    [],
    [
        Attr("start", "dim", 0),
        Attr("stop", "dim"),
        Attr("step", "int", 1),
        Attr("dtype", "dtype", DType("int64")),
    ],
    kind="injective",
    infer=_arange_infer,
    reference=_arange_reference,
    lower=_arange_lower,
    dtypes=("int64",),
    samples=tuple(
        Sample((), attrs)
        for attrs in (
            {"stop": 5},
            {"start": 2, "stop": 9, "step": 3},
            {"start": 3, "stop": -4, "step": -2, "dtype": "float32"},
            {"start": 3, "stop": 1},
        )
    ),
    error_samples=[
        ErrorSample((), {"stop": 4, "step": 0}, "step is 0"),
        ErrorSample((), {"stop": 4, "dtype": "bool"}, "dtype"),
    ],
)


def _eye_infer(types: Sequence[Type], attrs: Attrs) -> Type:
    check_dtype(attrs["dtype"], ALL, "the result")
    return TensorType(_sizes((attrs["rows"], attrs["columns"])), attrs["dtype"])


def _eye_reference(*, rows: int, columns: int, k: int, dtype: DType) -> NDArray:
    return convert(np.eye(rows, columns, min(max(k, -_NO_DIAGONAL), _NO_DIAGONAL)), dtype)


def _eye_lower(type_: TensorType, attrs: Attrs) -> te.Tensor:
    k = _clamped(attrs["k"])
    return compute(type_.shape, lambda i, j: cast_to(type_.dtype, eq(i + k, j)), "eye")


EYE = op(
    "eye", "1 on the k-th diagonal of a matrix (above the main one for k > 0), else 0", [],
    [Attr("rows", "dim"), Attr("columns", "dim"), Attr("k", "dim", 0), Attr("dtype", "dtype", _FLOAT32)],
    kind="injective", infer=_eye_infer, reference=_eye_reference, lower=_eye_lower, dtypes=("float32",),
    samples=tuple(
        Sample((), attrs)
        for attrs in ({"rows": 3, "columns": 4}, {"rows": 3, "columns": 3, "k": -1, "dtype": "int32"},
                      {"rows": 2, "columns": 5, "k": 2, "dtype": "bool"})
    ),
    error_samples=[ErrorSample((), {"rows": -1, "columns": 2}, "negative")],
)  # fmt: skip


def _dims_infer(types: Sequence[Type], attrs: Attrs) -> Type:
    return TensorType((len(attrs["dims"]),), DType("int64"))


def _dims_reference(*, dims: tuple[int, ...]) -> NDArray:
    return np.array(dims, np.int64)


def _dims_lower(type_: TensorType, attrs: Attrs) -> te.Tensor:
    dims = [as_expr(d) for d in attrs["dims"]]

    def body(i: Expr) -> Expr:
        value: Expr = const(0)
        for position, dim in reversed(list(enumerate(dims))):
            value = dim if position == len(dims) - 1 else select(eq(i, position), dim, value)
        return value

    return compute(type_.shape, body, "dims_tensor")


DIMS_TENSOR = op(
    "dims_tensor", "symbolic dims as a vector of int64", [], [Attr("dims", "dims")], kind="injective",
    infer=_dims_infer, reference=_dims_reference, lower=_dims_lower, dtypes=("int64",),
    samples=tuple(Sample((), {"dims": dims}) for dims in ((3, 5, 7), (4,), ())),
    error_samples=[ErrorSample((), {"dims": (1.5,)}, "must be dims")],
)  # fmt: skip


def _trilu_infer(x: TensorType, attrs: Attrs) -> TensorType:
    check_rank(x, 2)
    return x


def _trilu_reference(x: NDArray, *, upper: bool, k: int) -> NDArray:
    k = min(max(k, -_NO_DIAGONAL), _NO_DIAGONAL)
    return np.triu(x, k) if upper else np.tril(x, k)


def _trilu_lower(type_: TensorType, attrs: Attrs, x: te.Tensor) -> te.Tensor:
    def body(*i: Expr) -> Expr:
        diagonal = i[-2] + _clamped(attrs["k"])
        kept = i[-1] >= diagonal if attrs["upper"] else i[-1] <= diagonal
        return narrow(select(kept, x[i], const(0, x.dtype)), type_.dtype)

    return compute(type_.shape, body, "trilu")


TRILU = op(
    "trilu", "the upper or lower triangle of matrices from the k-th diagonal on, 0 elsewhere", ["x"],
    [Attr("upper", "bool", True), Attr("k", "dim", 0)], kind="injective", infer=of_input(_trilu_infer, ALL),
    reference=_trilu_reference, lower=_trilu_lower, dtypes=ALL,
    samples=(
        Sample((Tensor((3, 4)),)),
        Sample((Tensor((2, 4, 3)),), {"upper": False, "k": 1}),
        Sample((Tensor((4, 4), "special"),), {"upper": False, "k": -1}, FLOATS),
    ),
    error_samples=[ErrorSample((Tensor((3,)),), {}, "rank")],
)  # fmt: skip

OPS = (FULL, ARANGE, EYE, DIMS_TENSOR, TRILU)
