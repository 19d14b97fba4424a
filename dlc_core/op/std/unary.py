"""Elementwise mathematics of one input: roundings, exponentials, trigonometry, tests, casts."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dlc_core.ir.convert import convert
from dlc_core.ir.dtype import DType
from dlc_core.ir.expr import Expr, cast_to, const, unary
from dlc_core.ir.types import TensorType
from dlc_core.op.declare import (
    ALL,
    FLOATS,
    INTS,
    NARROW,
    NUMBERS,
    STORED,
    Attr,
    ErrorSample,
    NDArray,
    OpDecl,
    Sample,
    Tensor,
    op,
)
from dlc_core.op.infer import Attrs, check_dtype, fail, of_input, same_type
from dlc_core.op.lower import compute, elementwise, to_bool
from dlc_core.op.samples import unary_samples, wrong_dtype
from dlc_core.tir.intrinsics import intrinsic, reinterpret


def _unary(
    name: str,
    doc: str,
    reference: Callable[[Any], Any],
    body: Callable[[Expr], Expr] | None = None,
    dtypes: Sequence[str] = FLOATS,
    *,
    values: str = "normal",
    result: str = "",
) -> OpDecl:
    """Declare an elementwise op. Without a body it is the intrinsic of the same name."""
    refused = next(d for d in (*ALL, "complex64") if d not in dtypes)
    return op(
        name, doc, ["x"], kind="elementwise", infer=same_type(dtypes, result), reference=reference,
        lower=elementwise(name, body or (lambda x: intrinsic(name, x))), dtypes=dtypes,
        samples=unary_samples(values), error_samples=[wrong_dtype(refused)],
    )  # fmt: skip


_erf = np.frompyfunc(math.erf, 1, 1)


def _erf_reference(x: NDArray) -> NDArray:
    return np.asarray(_erf(x.astype(np.float64)), np.float64).astype(x.dtype)


def sigmoid_reference(x: NDArray) -> NDArray:
    """1 / (1 + exp(-x)), without overflow."""
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + small), small / (1 + small)).astype(x.dtype)


NEG = _unary("neg", "-x; unsigned integers wrap around", np.negative, lambda x: unary("neg", x), NUMBERS)
ABS = _unary("abs", "|x|; the smallest integer is unchanged", np.abs, dtypes=NUMBERS)
SIGN = _unary("sign", "-1, 0 or 1; NaN stays NaN", np.sign, dtypes=NUMBERS)
EXP = _unary("exp", "e to the x", np.exp)
EXP2 = _unary("exp2", "2 to the x", np.exp2)
EXPM1 = _unary("expm1", "exp(x) - 1, accurate near 0", np.expm1)
LOG = _unary("log", "natural logarithm", np.log, values="positive")
LOG2 = _unary("log2", "logarithm to base 2", np.log2, values="positive")
LOG10 = _unary("log10", "logarithm to base 10", np.log10, values="positive")
LOG1P = _unary("log1p", "log(1 + x), accurate near 0", np.log1p, values="positive")
SQRT = _unary("sqrt", "square root", np.sqrt, values="positive")
RSQRT = _unary("rsqrt", "1 / sqrt(x)", lambda x: 1 / np.sqrt(x), values="positive")
RECIPROCAL = _unary("reciprocal", "1 / x", lambda x: 1 / x, lambda x: 1.0 / x)
FLOOR = _unary("floor", "largest integer not above x", np.floor)
CEIL = _unary("ceil", "smallest integer not below x", np.ceil)
ROUND = _unary("round", "nearest integer, ties to even", np.rint, values="uniform:-4:4")
TRUNC = _unary("trunc", "integer part", np.trunc)
SIN = _unary("sin", "sine of radians", np.sin)
COS = _unary("cos", "cosine of radians", np.cos)
TAN = _unary("tan", "tangent of radians", np.tan, values="unit")
ASIN = _unary("asin", "arc sine in radians", np.arcsin, values="unit")
ACOS = _unary("acos", "arc cosine in radians", np.arccos, values="unit")
ATAN = _unary("atan", "arc tangent in radians", np.arctan)
SINH = _unary("sinh", "hyperbolic sine", np.sinh)
COSH = _unary("cosh", "hyperbolic cosine", np.cosh)
TANH = _unary("tanh", "hyperbolic tangent", np.tanh)
ASINH = _unary("asinh", "inverse hyperbolic sine", np.arcsinh)
ACOSH = _unary("acosh", "inverse hyperbolic cosine; NaN below 1", np.arccosh, values="uniform:1:4")
ATANH = _unary("atanh", "inverse hyperbolic tangent", np.arctanh, values="uniform:-0.9:0.9")
ERF = _unary("erf", "error function", _erf_reference)
SIGMOID = _unary("sigmoid", "1 / (1 + exp(-x))", sigmoid_reference)
ISNAN = _unary("isnan", "whether x is NaN", np.isnan, result="bool")
LOGICAL_NOT = _unary("logical_not", "not x", np.logical_not, lambda x: unary("not", x), ("bool",))
BITWISE_NOT = _unary("bitwise_not", "all bits flipped", np.invert, lambda x: unary("bitnot", x), INTS)
IDENTITY = _unary("identity", "x itself", lambda x: x, lambda x: x, ALL)


def _isinf_reference(x: NDArray, *, positive: bool, negative: bool) -> NDArray:
    return np.asarray((np.isposinf(x) & positive) | (np.isneginf(x) & negative))


def _isinf(x: Expr, *, positive: bool, negative: bool) -> Expr:
    infinite = intrinsic("isinf", x)
    if positive and negative:
        return infinite
    if not positive and not negative:
        return const(False, "bool")
    return infinite & (x > 0.0 if positive else x < 0.0)


ISINF = op(
    "isinf",
    "whether x is infinite and has one of the given signs",
    ["x"],
    [Attr("positive", "bool", True), Attr("negative", "bool", True)],
    kind="elementwise",
    infer=same_type(FLOATS, "bool"),
    reference=_isinf_reference,
    lower=elementwise("isinf", _isinf),
    samples=(
        *unary_samples(),
        *(Sample((Tensor((24,), "special"),), {"positive": p, "negative": not p}) for p in (True, False)),
        Sample((Tensor((24,), "special"),), {"positive": False, "negative": False}),
    ),
    error_samples=[wrong_dtype("int32")],
)


def _cast_infer(x: TensorType, attrs: Attrs) -> TensorType:
    check_dtype(attrs["to"], STORED, "the result")
    return x.with_dtype(attrs["to"])


def _cast_reference(x: NDArray, *, to: DType) -> NDArray:
    return np.not_equal(x, 0) if to.is_bool else convert(x, to)


def cast_value(x: Expr, *, to: DType) -> Expr:
    """A value as the `cast` op converts it."""
    return to_bool(x) if to.is_bool else cast_to(to, x)


CAST = op(
    "cast",
    "x in another dtype.  Floats are rounded to nearest even; floats to integers toward zero (undefined out"
    " of range); integers wrap around; to bool: x != 0",
    ["x"],
    [Attr("to", "dtype", help="the result's dtype")],
    kind="elementwise",
    infer=of_input(_cast_infer, STORED),
    reference=_cast_reference,
    lower=elementwise("cast", cast_value),
    dtypes=ALL,
    samples=(
        *(
            Sample((Tensor((3, 5), "normal"),), {"to": to}, ("float32", "int32", "bool"))
            for to in ALL
            if to[0] != "u"
        ),
        *(
            Sample((Tensor((3, 5), "positive"),), {"to": to}, ("float32", "int64"))
            for to in ALL
            if to[0] == "u"
        ),
        *(Sample((Tensor((3, 5), "positive"),), {"to": to}) for to in ("float32", "int32")),
        Sample((Tensor((24,), "special"),), {"to": "float16"}, ("float32", "float64")),
        Sample((Tensor((24,), "special"),), {"to": "bfloat16"}, ("float32",)),
        Sample((Tensor((24,), "special"),), {"to": "int8"}, ("int32", "int64")),
        Sample((Tensor((24,), "special"),), {"to": "bool"}, FLOATS),
        *(Sample((Tensor((24,), "special"),), {"to": to}, ("float32",)) for to in NARROW if "float" in to),
        *(Sample((Tensor((9,), "index:4"),), {"to": to}, ("float32", "int32")) for to in NARROW),
        Sample((Tensor((16,), np.arange(16)),), {"to": "float32"}, NARROW),
    ),
    error_samples=[wrong_dtype("complex64", attrs={"to": "float32"})],
)


_BITS = tuple(name for name in STORED if name != "bool")


def _bitcast_infer(x: TensorType, attrs: Attrs) -> TensorType:
    to: DType = attrs["to"]
    check_dtype(to, _BITS, "the result")
    if to.bits != x.dtype.bits:
        raise fail(f"{x.dtype} has {x.dtype.bits} bits, {to} has {to.bits}", "both must have equally many")
    return x.with_dtype(to)


BITCAST = op(
    "bitcast",
    "the bits of x as values of another dtype of the same width",
    ["x"],
    [Attr("to", "dtype", help="the result's dtype")],
    kind="elementwise",
    infer=of_input(_bitcast_infer, _BITS),
    reference=lambda x, *, to: np.ascontiguousarray(x).view(to.numpy).reshape(x.shape),
    lower=lambda type_, attrs, x: compute(type_.shape, lambda *i: reinterpret(type_.dtype, x[i]), "bitcast"),
    dtypes=("float32",),
    raw=True,
    samples=tuple(
        Sample((Tensor(shape, "special"),), {"to": to}, (from_,))
        for from_, to, shape in (
            ("float32", "uint32", (24,)),
            ("int32", "float32", (2, 3)),
            ("float64", "int64", (24,)),
            ("uint64", "int64", ()),
            ("float16", "int16", (24,)),
            ("uint16", "bfloat16", (0, 2)),
            ("float8_e4m3fn", "uint8", (4,)),
            ("uint8", "float8_e8m0fnu", (24,)),
            ("int4", "uint4", (6,)),
        )
    ),
    error_samples=[
        ErrorSample((Tensor((2,)),), {"to": "int16"}, "equally many"),
        ErrorSample((Tensor((2,)),), {"to": "bool"}, "dtype bool"),
        wrong_dtype("bool", attrs={"to": "int8"}),
    ],
)


OPS = (
    NEG, ABS, SIGN, EXP, EXP2, EXPM1, LOG, LOG2, LOG10, LOG1P, SQRT, RSQRT, RECIPROCAL, FLOOR, CEIL, ROUND,
    TRUNC, SIN, COS, TAN, ASIN, ACOS, ATAN, SINH, COSH, TANH, ASINH, ACOSH, ATANH, ERF, SIGMOID, ISNAN,
    LOGICAL_NOT, BITWISE_NOT, IDENTITY, ISINF, CAST, BITCAST,
)  # fmt: skip
