"""Scalar arithmetic of the interpreter on Python numbers, with IEEE results for every input.

Floats of every width are Python floats whose value the dtype can represent. Each operation computes in
float64, and the result is rounded to the dtype. For +, -, *, / and sqrt of the narrower types this equals one
rounding.
"""

from __future__ import annotations

import math
import operator
import struct
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from dlc_core.ir.convert import convert, widened
from dlc_core.ir.dtype import DType, dtype
from dlc_core.ir.fold import round_to
from dlc_core.tir.intrinsics import evaluate_intrinsic, fused_multiply_add

_F32 = dtype("float32")
INF, NAN = math.inf, math.nan
_pack32, _pack16 = struct.Struct("<f").pack, struct.Struct("<e").pack
_unpack_u32, _unpack_u16 = struct.Struct("<I").unpack, struct.Struct("<H").unpack


def float_div(a: float, b: float) -> float:
    if b:
        return a / b
    if a != a or a == 0 or b != b:
        return NAN
    return math.copysign(INF, a) * math.copysign(1.0, b)


def floor_div(a: int, b: int) -> int:
    """The quotient rounded down; 0 for a divisor of zero, as all integer divisions here."""
    return a // b if b else 0


def floor_mod(a: int, b: int) -> int:
    return a % b if b else 0


def trunc_div(a: int, b: int) -> int:
    if not b:
        return 0
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def trunc_mod(a: int, b: int) -> int:
    return a - trunc_div(a, b) * b if b else 0


def float_floor_div(a: float, b: float) -> float:
    return float(np.floor_divide(np.float64(a), np.float64(b)))


def float_trunc(a: float, b: float) -> float:
    return UNARY["trunc"](float_div(a, b))  # type: ignore[no-any-return]


def float_floor_mod(a: float, b: float) -> float:
    return float(np.mod(np.float64(a), np.float64(b)))


def fmod(a: float, b: float) -> float:
    try:
        return math.fmod(a, b)
    except ValueError:
        return NAN


def nan_min(a: float, b: float) -> float:
    return a if a < b or a != a else b


def nan_max(a: float, b: float) -> float:
    return a if a > b or a != a else b


def shift_left(a: int, b: int) -> int:
    return a << b if 0 <= b < 64 else 0


def shift_right(a: int, b: int) -> int:
    return a >> b if 0 <= b < 64 else (-1 if a < 0 else 0)


def int_pow(a: int, b: int) -> int:
    if b >= 0:
        return pow(a, b, 1 << 64) if a >= 0 else (-1 if b & 1 else 1) * pow(-a, b, 1 << 64)
    return 1 if a == 1 else ((-1 if b & 1 else 1) if a == -1 else 0)


def float_pow(a: float, b: float) -> float:
    try:
        return math.pow(a, b)
    except (ValueError, OverflowError):
        return float(np.power(np.float64(a), np.float64(b)))


def float_to_int(a: float) -> int:
    """Truncate toward zero. Huge values saturate at 2**64 before they wrap to the type's width, and NaN gives
    0. Both are unspecified in the language.
    """
    if a != a:
        return 0
    return int(max(-(2.0**63), min(a, 2.0**64 - 2048)))


def int_to_float(a: int, type_: DType) -> float:
    """Round once, even if the integer has more digits than float64."""
    if -(1 << 53) <= a <= 1 << 53:
        return round_to(float(a), type_)
    wide = np.int64(a) if a < 1 << 63 else np.uint64(a)
    return float(wide.astype(type_.numpy)) if type_.bits in (32, 64) else round_to(float(a), type_)


def fma(a: float, b: float, c: float, type_: DType) -> float:
    if type_.bits == 64:
        return fused_multiply_add(a, b, c)
    if type_.decl is not None:
        return round_to(fma(a, b, c, _F32), type_)
    product = a * b
    total = product + c
    if not math.isfinite(total):
        return total
    # The product is exact. The sum is rounded to odd, so that rounding it again to the narrow type is right.
    back = total - product
    error = (product - (total - back)) + (c - back)
    if error and not _odd(total):
        total = math.nextafter(total, INF if error > 0 else -INF)
    return round_to(total, type_)


def _odd(value: float) -> bool:
    return bool(struct.pack("<d", value)[0] & 1)


def _guard(function: Callable[[float], float], name: str) -> Callable[[float], float]:
    """Call NumPy where `math` raises an error, because IEEE defines an infinity or NaN there."""

    def guarded(x: float) -> float:
        try:
            return function(x)
        except (ValueError, OverflowError):
            return float(evaluate_intrinsic(name, (np.float64(x),), "float64"))

    return guarded


def _integral(function: Callable[[float], int]) -> Callable[[float], float]:
    return lambda x: math.copysign(float(function(x)), x) if math.isfinite(x) else x


def _sigmoid(x: float) -> float:
    if x >= 0:
        return 1.0 / (1.0 + math.exp(-x))
    e = math.exp(x)
    return e / (1.0 + e)


def _sign(x: Any) -> Any:
    return x if x != x else type(x)((x > 0) - (x < 0))


UNARY: dict[str, Callable[[float], Any]] = {
    "exp": _guard(math.exp, "exp"),
    "exp2": _guard(lambda x: 2.0**x, "exp2"),
    "expm1": _guard(math.expm1, "expm1"),
    "log": _guard(math.log, "log"),
    "log2": _guard(math.log2, "log2"),
    "log10": _guard(math.log10, "log10"),
    "log1p": _guard(math.log1p, "log1p"),
    "sqrt": _guard(math.sqrt, "sqrt"),
    "rsqrt": lambda x: float_div(1.0, UNARY["sqrt"](x)),
    "sin": _guard(math.sin, "sin"),
    "cos": _guard(math.cos, "cos"),
    "tan": _guard(math.tan, "tan"),
    "asin": _guard(math.asin, "asin"),
    "acos": _guard(math.acos, "acos"),
    "atan": math.atan,
    "sinh": _guard(math.sinh, "sinh"),
    "cosh": _guard(math.cosh, "cosh"),
    "tanh": math.tanh,
    "asinh": math.asinh,
    "acosh": _guard(math.acosh, "acosh"),
    "atanh": _guard(math.atanh, "atanh"),
    "erf": math.erf,
    "sigmoid": _sigmoid,
    "floor": _integral(math.floor),
    "ceil": _integral(math.ceil),
    "round": _integral(round),
    "trunc": _integral(math.trunc),
    "abs": abs,
    "sign": _sign,
    "isnan": math.isnan,
    "isinf": math.isinf,
}
BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "atan2": math.atan2, "fmod": fmod, "copysign": math.copysign, "rounded_mul": operator.mul,
}  # fmt: skip
EXACT = frozenset({"floor", "ceil", "round", "trunc", "abs", "sign", "fmod", "copysign", "nextafter"})
"""Float intrinsics whose value the operands' dtype can represent, so that no rounding is needed."""


def nextafter(a: float, b: float, type_: DType) -> float:
    if type_.decl is not None:
        return round_to(nextafter(a, b, _F32), type_)
    kind = type_.numpy.type
    return float(np.nextafter(kind(a), kind(b)))


def reinterpret(value: Any, source: DType, to: DType) -> Any:
    bits = widened(convert([value], source).view(to.numpy))
    return bits.astype(np.float64).item() if to.is_float else int(bits[0])


# The memory format of elements: the memoryview format, or encoders and decoders if Python has none.
FORMATS = {
    "bool": "?", "int8": "b", "uint8": "B", "int16": "h", "uint16": "H", "int32": "i", "uint32": "I",
    "int64": "q", "uint64": "Q", "float32": "f", "float64": "d",
}  # fmt: skip


def memory_format(type_: DType) -> str | None:
    """The memoryview format of an element; None for dtypes that the interpreter does not support (complex,
    handle).
    """
    if type_.name in FORMATS:
        return FORMATS[type_.name]
    if type_.kind not in ("float", "int", "uint"):
        return None
    return "H" if type_.numpy.itemsize == 2 else "B"


@lru_cache(maxsize=32)
def decoder(type_: DType) -> list[Any] | None:
    """Values by bit pattern, for dtypes without a memoryview format."""
    if type_.name in FORMATS:
        return None
    bits = np.arange(1 << (8 * type_.numpy.itemsize), dtype=f"uint{8 * type_.numpy.itemsize}")
    wide: type = np.float64 if type_.is_float else np.int64
    with np.errstate(all="ignore"):
        values: list[Any] = widened(bits.view(type_.numpy)).astype(wide).tolist()
    return values


def encoder(type_: DType) -> Callable[[Any], int] | None:
    """Convert a representable value to its bit pattern."""
    if type_.name in FORMATS:
        return None
    if type_.name == "float16":
        return lambda x: int(_unpack_u16(_pack16(x))[0])
    if type_.name == "bfloat16":
        return lambda x: int(_unpack_u32(_pack32(x))[0]) >> 16
    unsigned = f"uint{8 * type_.numpy.itemsize}"
    return lambda x: int(convert([x], type_).view(unsigned)[0])


def rounder(type_: DType) -> Callable[[float], float]:
    type_ = dtype(type_)
    return lambda x: round_to(x, type_)


def add_lanes(values: list[Any], finish: Callable[[Any], Any]) -> Any:
    total = values[0]
    for value in values[1:]:
        total = finish(total + value)
    return total


def dot(acc: list[Any], a: list[Any], b: list[Any], lane: int, finish: Callable[[Any], Any]) -> Any:
    """Lane `lane` of an accumulator plus the products of its group, rounded once."""
    group = len(b) // len(acc)
    first = lane * group if len(a) == len(b) else 0
    products = (a[first + i] * b[lane * group + i] for i in range(group))
    return finish(sum(products, acc[lane]))
