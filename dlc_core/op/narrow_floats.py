"""Floats of 4 to 16 bits, expressed by operations on float32 and integers: decoding, encoding and rounding.

Multiplication by a power of two changes the exponent exactly, also for subnormal values. Addition of a
constant whose unit in the last place is the smallest subnormal value rounds to that value. Rounding is to
nearest, ties to even.
"""

from __future__ import annotations

from dlc_core.ir.dtype import DType, dtype
from dlc_core.ir.expr import Expr, const, eq, select
from dlc_core.support.record import record
from dlc_core.tir.intrinsics import isnan, reinterpret

_F32, _U32 = dtype("float32"), dtype("uint32")
_SIGN, _INF = 0x80000000, 0x7F800000


@record(frozen=True)
class Format:
    """The bits of a float type: a sign, `exponent` bits with a bias, `mantissa` bits.

    `greatest` has the bits of the greatest finite value. `overflow` and `nan` are the bits that are stored
    for larger values and for NaN. If `signed_zero` is false, the bit pattern of the negative zero is NaN.
    """

    exponent: int
    mantissa: int
    bias: int
    greatest: int
    overflow: int
    nan: int
    signed_zero: bool = True

    @property
    def sign(self) -> int:
        return 1 << (self.exponent + self.mantissa)


FORMATS = {
    "bfloat16": Format(8, 7, 127, 0x7F7F, 0x7F80, 0x7FC0),
    "float16": Format(5, 10, 15, 0x7BFF, 0x7C00, 0x7E00),
    "float8_e4m3fn": Format(4, 3, 7, 0x7E, 0x7F, 0x7F),
    "float8_e5m2": Format(5, 2, 15, 0x7B, 0x7C, 0x7E),
    "float8_e4m3fnuz": Format(4, 3, 8, 0x7F, 0x80, 0x80, signed_zero=False),
    "float8_e5m2fnuz": Format(5, 2, 16, 0x7F, 0x80, 0x80, signed_zero=False),
    "float4_e2m1fn": Format(2, 1, 1, 0x7, 0x7, 0x8),
}


EXPONENTS = "float8_e8m0fnu"
"""The type of exponents alone: its bits less 127; all ones are NaN, there is neither sign nor zero."""

NARROW_FLOATS = (*FORMATS, EXPONENTS)


def _power(exponent: int) -> float:
    return 2.0**exponent


def decoded(bits: Expr, type_: DType) -> Expr:
    """Convert bits (unsigned integers of the type's bytes) to float32 values."""
    wide = bits.astype(_U32.with_lanes(bits.dtype.lanes))
    if type_.name == EXPONENTS:
        value = select(eq(wide, 0), (wide & 0) | 0x00400000, wide << 23)
        return reinterpret(_F32, select(eq(wide, 0xFF), (wide & 0) | 0x7FC00000, value))
    f = FORMATS[type_.name]
    if type_.name == "bfloat16":
        return reinterpret(_F32, wide << 16)
    magnitude = wide & (f.sign - 1)
    shifted = magnitude << (23 - f.mantissa)
    value = reinterpret(_F32, shifted) * _power(127 - f.bias)
    sign = (wide & f.sign) << (31 - f.exponent - f.mantissa)
    special = reinterpret(_F32, shifted | _INF)
    if not f.signed_zero:
        value = reinterpret(_F32, reinterpret(_U32, value) | sign)
        return select(eq(wide, f.nan), reinterpret(_F32, (wide & 0) | 0x7FC00000), value)
    if f.greatest < f.sign - 1:
        value = select(magnitude > f.greatest, special, value)
    return reinterpret(_F32, reinterpret(_U32, value) | sign)


def encoded(value: Expr, type_: DType) -> Expr:
    """Round float32 values to a type, and return its bits (unsigned integers of the type's bytes)."""
    lanes = value.dtype.lanes
    if type_.name == EXPONENTS:
        return _exponents(reinterpret(_U32, value)).astype(dtype("uint8").with_lanes(lanes))
    f = FORMATS[type_.name]
    spare = 23 - f.mantissa
    wide = reinterpret(_U32, value)
    magnitude = wide & (_SIGN - 1)
    sign = (wide >> (31 - f.exponent - f.mantissa)) & f.sign
    last = (magnitude >> spare) & 1
    normal = magnitude + last + ((1 << (spare - 1)) - 1)
    if type_.name == "bfloat16":
        code = normal >> spare
    else:
        normal = (normal - ((127 - f.bias) << 23)) >> spare
        step = const(_power(1 - f.bias - f.mantissa + 23), _F32)
        base = (1 - f.bias - f.mantissa + 23 + 127) << 23
        small = reinterpret(_U32, reinterpret(_F32, magnitude) + step) - base
        smallest = (1 - f.bias + 127) << 23
        code = select(magnitude < smallest, small, normal)
        beyond = (code > f.greatest) & (magnitude >= smallest)
        code = select(beyond | (magnitude >= _INF), (magnitude & 0) | f.overflow, code)
    if f.signed_zero:
        code = code | sign
    else:
        code = select(eq(code, 0) | eq(code, f.nan), code, code | sign)
    code = select(isnan(value), (magnitude & 0) | f.nan, code)
    return code.astype(dtype(f"uint{8 * type_.itemsize}").with_lanes(lanes))


def _exponents(bits: Expr) -> Expr:
    """Round float32 values, given by their bits, to powers of two; ties round up. Return the exponents."""
    subnormal = select(bits >= 0x00600000, (bits & 0) | 1, bits & 0)
    code = select(bits < 0x00800000, subnormal, (bits + 0x00400000) >> 23)
    return select((bits >= _INF) | eq(bits, 0), (bits & 0) | 0xFF, code)


def rounded(value: Expr, type_: DType) -> Expr:
    """Round float32 values to those of a narrower type."""
    return decoded(encoded(value, type_), type_)


__all__ = ["FORMATS", "NARROW_FLOATS", "Format", "decoded", "encoded", "rounded"]
