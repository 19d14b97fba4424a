"""LLVM types of dtypes in memory and in registers, and literals.

In memory bool is `i8` and bfloat16 is `i16`. In registers bool is `i1`, and float16 and bfloat16 are `float`s
with values that are representable in the narrow dtype. Each operation computes in float32 and rounds once,
like the interpreter.
"""

from __future__ import annotations

import struct
from functools import cache

from dlc_core.diag import CodegenError
from dlc_core.ir.dtype import DType

_MEMORY = {
    "bool": "i8", "float16": "half", "bfloat16": "i16", "float32": "float", "float64": "double",
    "handle": "ptr",
}  # fmt: skip
_REGISTER = {**_MEMORY, "bool": "i1", "float16": "float", "bfloat16": "float"}

NARROW_FLOATS = ("float16", "bfloat16")


def _scalar(type_: DType, table: dict[str, str]) -> str:
    name = type_.scalar.name
    if name in table:
        return table[name]
    if (table is _MEMORY and type_.bits < 8) or (table is _MEMORY and name.startswith("float8")):
        return "i8"
    if type_.is_int and type_.bits >= 8:
        return f"i{type_.bits}"
    raise CodegenError(
        f"this backend does not support the dtype {name}", hint="cast it to float32 or int32 first"
    )


def vector(scalar: str, lanes: int) -> str:
    """The vector type, or the scalar itself for one lane."""
    return scalar if lanes == 1 else f"<{lanes} x {scalar}>"


@cache
def memory_type(type_: DType) -> str:
    return vector(_scalar(type_, _MEMORY), type_.lanes)


@cache
def register_type(type_: DType) -> str:
    return vector(_scalar(type_, _REGISTER), type_.lanes)


def suffix(type_: DType) -> str:
    """The overload suffix of LLVM intrinsics, such as `v8f32`, `f64`, `i32`."""
    scalar = _scalar(type_, _REGISTER)
    short = {"float": "f32", "double": "f64"}.get(scalar, scalar)
    return short if type_.lanes == 1 else f"v{type_.lanes}{short}"


def literal(value: float, type_: DType) -> str:
    """A scalar literal in LLVM's syntax. Floats are written by their bits, which is exact."""
    if type_.is_float:
        bits = struct.unpack("<Q", struct.pack("<d", float(value)))[0]
        return f"0x{bits:016X}"
    if type_.is_bool:
        return "true" if value else "false"
    low, high = type_.int_range()
    wrapped = int(value)
    if type_.kind == "uint" and wrapped > high // 2:
        wrapped -= high + 1
    assert low - high - 1 <= wrapped <= high
    return str(wrapped)
