"""Casts between element types."""

from __future__ import annotations

import ml_dtypes

from dlc_core.graph.node import Node
from dlc_core.ir.dtype import STRING, DType
from dlc_core.op import std
from dlc_core.op.declare import ALL
from dlc_frontend_onnx.converters.base import Call, converter

_ROUNDS = ("up", "down", "nearest")
_GREATEST = 254


def saturated(c: Call, x: Node, to: DType) -> Node:
    """x as 8-bit floats. Values out of range are saturated, NaN stays."""
    greatest = float(ml_dtypes.finfo(to.numpy).max)  # type: ignore[no-untyped-call]
    wide = x if x.dtype.is_float and x.dtype.bits >= 16 else c.cast(x, "float32")
    return c.cast(std.clip(wide, min=-greatest, max=greatest), to)


def _exponents(c: Call, x: Node, to: DType, *, saturate: bool, mode: str) -> Node:
    """The exponents of floats (float8e8m0), rounded by the mantissa; signs are ignored.

    Infinities and NaN become NaN.
    """
    bits = std.bitcast(c.cast(x, "float32"), to="uint32")

    def number(value: int) -> Node:
        return c.const(value, "uint32")

    exponent = std.bitwise_and(std.shift_right(bits, number(23)), number(0xFF))
    mantissa = std.bitwise_and(bits, number(0x7FFFFF))
    special = std.equal(exponent, number(0xFF))
    code = exponent
    if mode == "up":
        code = std.add(exponent, c.cast(std.greater(mantissa, number(0)), "uint32"))
    elif mode == "nearest":
        # A tie rounds up, except at the smallest exponent.
        above = std.greater(mantissa, number(0x400000))
        half = std.logical_and(std.equal(mantissa, number(0x400000)), std.greater(exponent, number(0)))
        code = std.add(exponent, c.cast(std.logical_or(above, half), "uint32"))
    if saturate:
        code = std.minimum(code, number(_GREATEST))
    code = std.where(special, number(0xFF), code)
    return std.bitcast(c.cast(code, "uint8"), to=to)


def converted(c: Call, x: Node, to: DType) -> Node:
    """x in another dtype, by the rules of the node's attributes."""
    saturate, mode = c.flag("saturate", True), c.choice("round_mode", "up", _ROUNDS)
    if x.dtype is to:
        return x
    if to is STRING:
        return std.to_text(x if x.dtype.name in ALL else c.cast(x, "float32"))
    if x.dtype is STRING:
        if to.name in ALL:
            return std.parse_text(x, to=to)
        x = std.parse_text(x, to="float32")
    if to.name == "float8_e8m0fnu":
        return _exponents(c, x, to, saturate=saturate, mode=mode)
    if saturate and to.is_float and to.bits == 8:
        return saturated(c, x, to)
    return c.cast(x, to)


@converter("Cast", 6)
def cast(c: Call, x: Node) -> Node:
    return converted(c, x, c.dtype("to"))


@converter("CastLike", 15)
def cast_like(c: Call, x: Node, like: Node) -> Node:
    return converted(c, x, like.dtype)


@converter("BitCast", 26)
def bit_cast(c: Call, x: Node) -> Node:
    to = c.dtype("to")
    if to.bits != x.dtype.bits:
        raise c.error(f"the bits of {x.dtype} are not those of {to}")
    if to is x.dtype:
        return x
    # A bool is stored as a byte; any nonzero byte is true.
    given = c.cast(x, "uint8") if x.dtype.is_bool else x
    return c.cast(given, "bool") if to.is_bool else std.bitcast(given, to=to)
