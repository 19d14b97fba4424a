"""Quantized numbers: the low-bit integer q represents (q - zero) scale.

Scales and zero points broadcast to the tensor: one number, `[c, 1, 1]` for one per channel, or one for each
element. Quotients and products are rounded separately, in the dtype of the scale,
and values are rounded to the nearest integer, ties to even. So every target returns the same bits. The result
for NaN is undefined.

    quantize(x, s, z)         clamp(round(x / s) + z)             x / s, rounded, if the result is a float
    dequantize(q, s, z)       (q - z) s
    requantize(n, m, z)       clamp(round(n m) + z)           n, the sums of products, in int32
    requantize_fixed(n, …)    the same of the exact product, in integers alone

Source: ONNX QuantizeLinear, DequantizeLinear, QLinearConv and QLinearMatMul.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dlc_core.ir.convert import convert, widened
from dlc_core.ir.dtype import DType
from dlc_core.ir.expr import Expr, as_expr, cast_to, const, maximum, minimum
from dlc_core.ir.types import TensorType, Type
from dlc_core.op.declare import (
    FLOATS,
    NARROW,
    Attr,
    ErrorSample,
    NDArray,
    Sample,
    Tensor,
    op,
    tensor_types,
)
from dlc_core.op.infer import Attrs, broadcast_dims, broadcast_into, check_dtype, fail
from dlc_core.op.lower import elementwise, widen
from dlc_core.tir.intrinsics import intrinsic, rounded_mul

QUANTIZED = ("int8", "uint8", "int16", "uint16", "int4", "uint4", "int2", "uint2")
"""The dtypes of quantized tensors."""
SUMS = ("int32",)
TO = Attr("to", "dtype", help="the result's dtype, an integer of at most 16 bits")


def _broadcast_to(x: TensorType, others: Sequence[TensorType], dtype: DType) -> TensorType:
    """The type of x with another dtype. The shapes of the others must broadcast to its shape."""
    for other in others:
        broadcast_into(other.shape, x.shape, "the parameter")
    broadcast_dims(x.shape, *(t.shape for t in others))
    return TensorType(x.shape, dtype)


QUANTIZED_FLOATS = tuple(name for name in NARROW if name.startswith("float"))
"""Floats of at most 8 bits, which are quantized by a scale alone."""


def _check_quantized(found: DType, allowed: Sequence[str], what: str) -> None:
    """Check the dtype of quantized numbers: an integer, or a float for storage."""
    check_dtype(found, (*allowed, *QUANTIZED_FLOATS), what)


def _check_zero(types: Sequence[TensorType], wanted: DType) -> None:
    for zero in types:
        if wanted.is_float:
            raise fail(f"a zero point for {wanted}", "quantized floats have none")
        if zero.dtype is not wanted:
            raise fail(f"the zero point has dtype {zero.dtype}, {wanted} is needed")


def _clamped(value: Expr, zero: Sequence[Expr], to: DType) -> Expr:
    """Add the zero point to an integral float, and clamp the sum to the range of `to`."""
    for point in zero:
        value = value + cast_to(value.dtype, cast_to("int32", point))
    low, high = to.int_range()
    limited = minimum(maximum(value, const(low, value.dtype)), const(high, value.dtype))
    return cast_to(to, cast_to("int32", limited))


def _saturated(value: NDArray, zero: Sequence[NDArray], to: DType) -> NDArray:
    low, high = to.int_range()
    for point in zero:
        value = value + widened(point).astype(value.dtype)
    return convert(np.clip(value, low, high), to)


def _quantize_infer(types: Sequence[Type], attrs: Attrs) -> Type:
    x, *others = tensor_types(types)
    check_dtype(x.dtype, FLOATS)
    _check_quantized(attrs["to"], QUANTIZED, "the result")
    if others[0].dtype is not x.dtype:
        raise fail(f"the scale has dtype {others[0].dtype}, {x.dtype} is needed")
    _check_zero(others[1:], attrs["to"])
    return _broadcast_to(x, others, attrs["to"])


def _wide(value: NDArray) -> NDArray:
    narrow = DType.of(value.dtype)
    return value.astype(np.float32) if narrow.is_float and narrow.bits < 32 else value


def _number(value: NDArray) -> NDArray:
    """A quantized number or a zero point in int32; a number of a declared float dtype in float32."""
    wide = widened(value)
    return wide if wide.dtype.kind == "f" else wide.astype(np.int32)


def _quantize_reference(x: NDArray, scale: NDArray, *zero: NDArray, to: DType) -> NDArray:
    quotient = convert(widened(x) / widened(scale), x.dtype)
    if to.is_float:
        return convert(quotient, to)
    return _saturated(np.rint(_wide(widened(quotient))), zero, to)


def _quantize(x: Expr, scale: Expr, *zero: Expr, to: DType, own: DType) -> Expr:
    quotient = widen(cast_to(own, x / scale))
    if to.is_float:
        return cast_to(to, quotient)
    return _clamped(intrinsic("round", quotient), zero, to)


def _quantize_lower(type_: TensorType, attrs: Attrs, x: Any, *others: Any) -> Any:
    own: DType = x.dtype
    return elementwise("quantize", lambda *e, to: _quantize(*e, to=to, own=own))(
        type_, dict(attrs), x, *others
    )


def _per_channel(rank: int, values: str = "positive", dtype: str = "") -> Tensor:
    return Tensor((3, *(1,) * (rank - 2)), values, dtype)


QUANTIZE = op(
    "quantize",
    "x / scale rounded to the nearest integer, ties to even, plus the zero point, limited to the range of"
    " the result",
    ["x", "scale", "zero?"],
    [TO],
    kind="broadcast",
    infer=_quantize_infer,
    reference=_quantize_reference,
    lower=_quantize_lower,
    dtypes=FLOATS,
    raw=True,
    samples=(
        *(
            Sample((Tensor((2, 3, 4, 5), "uniform:-90:90"), Tensor((), np.float32(0.37))), {"to": to})
            for to in ("int8", "uint8")
        ),
        *(
            Sample(
                (Tensor((2, 3, 4, 5), "uniform:-9:9"), _per_channel(4), Tensor((), np.array(3), to)),
                {"to": to},
                ("float32",),
            )
            for to in QUANTIZED
            if to != "int2"
        ),
        Sample((Tensor((2, 3), "uniform:-9:9"), Tensor((2, 3), "positive")), {"to": "int4"}, ("float32",)),
        Sample(
            (
                Tensor((40,), np.arange(-20, 20) / 2),
                Tensor((), np.array(1.0)),
                Tensor((), np.array(1), "int8"),
            ),
            {"to": "int8"},
            ("float32", "float64"),
            note="ties go to the even number before the zero point is added",
        ),
        Sample(
            (Tensor((5,), np.array([np.inf, -np.inf, 1e30, -1e30, -0.0])), Tensor((), np.array(1e-3))),
            {"to": "uint8"},
            ("float32", "float64"),
        ),
        Sample((Tensor((0, 3)), Tensor(())), {"to": "int8"}, ("float32",), note="empty"),
    ),
    error_samples=[
        ErrorSample((Tensor((2,)), Tensor(())), {"to": "int32"}, "dtype int32"),
        ErrorSample((Tensor((2,)), Tensor((), dtype="float16")), {"to": "int8"}, "the scale has dtype"),
        ErrorSample((Tensor((2,)), Tensor(()), Tensor((), dtype="uint8")), {"to": "int8"}, "the zero point"),
        ErrorSample((Tensor((2, 1)), Tensor((2, 3))), {"to": "int8"}, "does not broadcast to"),
        ErrorSample((Tensor((2,)), Tensor(())), {"to": "int8"}, "dtype int32", "int32"),
    ],
)


def _dequantize_infer(types: Sequence[Type], attrs: Attrs) -> Type:
    q, scale, *zero = tensor_types(types)
    _check_quantized(q.dtype, (*QUANTIZED, *SUMS), "input")
    check_dtype(scale.dtype, FLOATS, "the scale")
    _check_zero(zero, q.dtype)
    return _broadcast_to(q, (scale, *zero), scale.dtype)


def _dequantize_reference(q: NDArray, scale: NDArray, *zero: NDArray) -> NDArray:
    wide = _number(q)
    for point in zero:
        wide = wide - _number(point)
    step = _wide(widened(scale))
    return convert(wide.astype(step.dtype) * step, scale.dtype)


def _dequantize(q: Expr, scale: Expr, *zero: Expr) -> Expr:
    wide = q if q.dtype.is_float else cast_to("int32", q)
    for point in zero:
        wide = wide - cast_to("int32", point)
    return rounded_mul(cast_to(scale.dtype, wide), scale)


DEQUANTIZE = op(
    "dequantize",
    "(q - zero) scale, in the dtype of the scale",
    ["q", "scale", "zero?"],
    kind="broadcast",
    infer=_dequantize_infer,
    reference=_dequantize_reference,
    lower=elementwise("dequantize", _dequantize),
    dtypes=QUANTIZED,
    raw=True,
    samples=(
        Sample((Tensor((2, 3, 4, 5), "special"), Tensor((), np.float32(0.37), "float32"))),
        Sample((Tensor((2, 3, 4, 5)), _per_channel(4, dtype="float32"), Tensor((), "special")), {}),
        Sample((Tensor((2, 3)), Tensor((2, 3), dtype="float64"), Tensor((3,)))),
        Sample((Tensor((2, 3)), Tensor((), "positive", "float16"), Tensor(())), {}, ("int8", "uint8")),
        Sample((Tensor((2, 3)), Tensor((), "positive", "bfloat16")), {}, ("int8",)),
        Sample((Tensor((24,), "special"), Tensor((), "positive", "float32")), {}, SUMS),
        Sample((Tensor((0, 3)), Tensor((), dtype="float32")), {}, ("int8",), note="empty"),
    ),
    error_samples=[
        ErrorSample((Tensor((2,)), Tensor((), dtype="float32")), {}, "dtype float32", "float32"),
        ErrorSample((Tensor((2,)), Tensor((), dtype="int8")), {}, "the scale has dtype", "int8"),
        ErrorSample(
            (Tensor((2,)), Tensor((), dtype="float32"), Tensor((), dtype="int8")),
            {},
            "the zero point",
            "uint8",
        ),
        ErrorSample((Tensor((2,)), Tensor((3, 2), dtype="float32")), {}, "does not broadcast to", "uint8"),
    ],
)


def _requantize_infer(types: Sequence[Type], attrs: Attrs) -> Type:
    n, factor, *zero = tensor_types(types)
    check_dtype(n.dtype, SUMS)
    check_dtype(factor.dtype, ("float32",), "the factor")
    check_dtype(attrs["to"], QUANTIZED, "the result")
    _check_zero(zero, attrs["to"])
    return _broadcast_to(n, (factor, *zero), attrs["to"])


def _requantize_reference(n: NDArray, factor: NDArray, *zero: NDArray, to: DType) -> NDArray:
    return _saturated(np.rint(n.astype(np.float32) * factor), zero, to)


def _requantize(n: Expr, factor: Expr, *zero: Expr, to: DType) -> Expr:
    return _clamped(intrinsic("round", rounded_mul(cast_to("float32", n), factor)), zero, to)


_SUM = Tensor((2, 3, 4, 5), "uniform:-70000:70000")

REQUANTIZE = op(
    "requantize",
    "a sum of products times a factor, in float32, rounded to the nearest integer, ties to even, plus the"
    " zero point, limited to the range of the result",
    ["n", "factor", "zero?"],
    [TO],
    kind="broadcast",
    infer=_requantize_infer,
    reference=_requantize_reference,
    lower=elementwise("requantize", _requantize),
    dtypes=SUMS,
    raw=True,
    samples=(
        Sample((_SUM, Tensor((), np.float32(0.0017), "float32")), {"to": "int8"}),
        Sample(
            (_SUM, _per_channel(4, "uniform:0:0.003", "float32"), Tensor((), np.array(7), "uint8")),
            {"to": "uint8"},
        ),
        Sample((Tensor((24,), "special"), Tensor((), np.float32(0.5), "float32")), {"to": "int16"}),
        Sample((Tensor((21,), np.arange(-10, 11)), Tensor((), np.float32(0.5), "float32")), {"to": "int4"}),
    ),
    error_samples=[
        ErrorSample((Tensor((2,)), Tensor((), dtype="float32")), {"to": "int8"}, "dtype int8", "int8"),
        ErrorSample((Tensor((2,)), Tensor((), dtype="float64")), {"to": "int8"}, "the factor", "int32"),
    ],
)


def fixed_point(factors: NDArray) -> tuple[NDArray, NDArray]:
    """Split float32 numbers in [0, 2^31) into (mantissa, shift) in int32, with number = mantissa * 2^-shift
    exactly.

    Only numbers below 2^-38 lose digits. Their product with any int32 is below 2^-7 and rounds to 0.
    """
    fraction, exponent = np.frexp(factors.astype(np.float64))
    mantissa, shift = np.rint(fraction * 2.0**24), 24 - exponent.astype(np.int64)
    lost = np.maximum(shift - 62, 0)
    mantissa, shift = np.rint(np.ldexp(mantissa, -lost)), shift - lost
    # Shifts must not be negative: lengthen the mantissa instead.
    left = np.maximum(-shift, 0)
    mantissa, shift = np.ldexp(mantissa, left), shift + left
    return mantissa.astype(np.int32), shift.astype(np.int32)


def fixed_point_product(n: Expr, mantissa: Expr, shift: Expr) -> Expr:
    """Round n * mantissa * 2^-shift to the nearest integer, ties to even. Inputs are int32, the result is
    int64.

    The mantissa is at least 0 and the shift is in [0, 62]. The product has at most 62 bits, so it cannot
    overflow.
    """
    one = as_expr(const(1, "int64"))
    product = cast_to("int64", n) * cast_to("int64", mantissa)
    by = cast_to("int64", shift)
    floor = product >> by
    rest = product - (floor << by)
    # Compare twice the remainder with the divisor. On a tie, odd quotients round up.
    twice = rest + rest + (floor & one)
    return floor + cast_to("int64", twice > (one << by))


def _fixed_infer(types: Sequence[Type], attrs: Attrs) -> Type:
    n, mantissa, shift, *zero = tensor_types(types)
    for value, what in ((n, "the sum"), (mantissa, "the mantissa"), (shift, "the shift")):
        check_dtype(value.dtype, SUMS, what)
    check_dtype(attrs["to"], QUANTIZED, "the result")
    _check_zero(zero, attrs["to"])
    return _broadcast_to(n, (mantissa, shift, *zero), attrs["to"])


def _fixed_reference(n: NDArray, mantissa: NDArray, shift: NDArray, *zero: NDArray, to: DType) -> NDArray:
    product, by = n.astype(np.int64) * mantissa.astype(np.int64), shift.astype(np.int64)
    floor = product >> by
    twice = 2 * (product - (floor << by)) + (floor & 1)
    return _saturated(floor + (twice > (np.int64(1) << by)), zero, to)


def _requantize_fixed(n: Expr, mantissa: Expr, shift: Expr, *zero: Expr, to: DType) -> Expr:
    value = fixed_point_product(n, mantissa, shift)
    for point in zero:
        value = value + cast_to("int64", point)
    low, high = to.int_range()
    return cast_to(to, minimum(maximum(value, const(low, "int64")), const(high, "int64")))


_SHIFT = Tensor((), np.array(33), "int32")

REQUANTIZE_FIXED = op(
    "requantize_fixed",
    "a sum of products times mantissa 2^-shift, exactly, rounded to the nearest integer, ties to even, plus"
    " the zero point, limited to the range of the result; 0 <= mantissa, 0 <= shift <= 62",
    ["n", "mantissa", "shift", "zero?"],
    [TO],
    kind="broadcast",
    infer=_fixed_infer,
    reference=_fixed_reference,
    lower=elementwise("requantize_fixed", _requantize_fixed),
    dtypes=SUMS,
    raw=True,
    samples=(
        Sample((_SUM, Tensor((), np.array(14260634), "int32"), _SHIFT), {"to": "int8"}),
        Sample(
            (_SUM, _per_channel(4, "index:16777216", "int32"), _SHIFT, Tensor((), np.array(7), "uint8")),
            {"to": "uint8"},
        ),
        Sample(
            (
                Tensor((24,), "special"),
                Tensor((), np.array((1 << 31) - 1), "int32"),
                Tensor((), np.array(62), "int32"),
            ),
            {"to": "int16"},
            note="the largest numbers",
        ),
        Sample(
            (
                Tensor((21,), np.arange(-10, 11)),
                Tensor((), np.array(1), "int32"),
                Tensor((), np.array(1), "int32"),
            ),
            {"to": "int4"},
            note="ties",
        ),
    ),
    error_samples=[
        ErrorSample(
            (Tensor((2,)), Tensor(()), Tensor((), dtype="int64")), {"to": "int8"}, "the shift", "int32"
        ),
    ],
)

OPS = (QUANTIZE, DEQUANTIZE, REQUANTIZE, REQUANTIZE_FIXED)
