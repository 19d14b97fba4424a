"""Rounding to low-bit integers, as in quantized models: recognised as a whole, for languages with
instructions for it.

    dlc_clamped_round(x, zero, low, high)            clamp(round(x) + zero, low, high)
    dlc_scaled_round(n, factor, zero, low, high)     the same of x = float32(n) * factor, rounded to float32

x and factor are float32, and n is an int32. zero is an int32 whose size is below 2^16. `low` and `high` are
int32 constants, and the result is an int32. Rounding is to the nearest integer, ties to even. x may be
infinite. The result for NaN is any number in the range, because quantization does not define it
(`op/std/quantization.py`).
"""

from __future__ import annotations

from typing import NamedTuple

from dlc_core.ir.expr import Binary, Call, Cast, Const, Expr, const

CLAMPED_ROUND = "clamped_round"
"""The name of the helper of `Dialect.fixed` for any float32."""
SCALED_ROUND = "scaled_round"
"""The name of the helper for scaled sums, for languages without fast floats."""
WIDEST = 16
"""The bits of the widest zero point: float32 represents its sum with a value that is not clamped."""


class Rounded(NamedTuple):
    """The operands of `clamped_round`. `zero` is None if it is 0."""

    value: Expr
    zero: Expr | None
    low: int
    high: int


def clamped_round(expr: Cast) -> Rounded | None:
    """The operands if a cast to an integer of at most 16 bits rounds and clamps a float32, else None."""
    inner = expr.a
    if not expr.dtype.is_int or expr.dtype.bits > WIDEST or expr.dtype.lanes > 1:
        return None
    if not isinstance(inner, Cast) or inner.dtype.name != "int32" or inner.a.dtype.name != "float32":
        return None
    upper = _limited(inner.a, "min")
    lower = None if upper is None else _limited(upper[0], "max")
    if upper is None or lower is None:
        return None
    value, low, high = lower[0], lower[1], upper[1]
    least, most = expr.dtype.int_range()
    if not least <= low <= high <= most:
        return None
    zero: Expr | None = None
    if isinstance(value, Binary) and value.op == "add":
        zero, value = _point(value.b), value.a
        if zero is None:
            return None
    if not isinstance(value, Call) or value.name != "round":
        return None
    return Rounded(value.args[0], zero, low, high)


def scaled_round(found: Rounded) -> tuple[Expr, Expr] | None:
    """The int32 and the factor if the value is their rounded product, else None."""
    value = found.value
    if not isinstance(value, Call) or value.name != "rounded_mul" or value.dtype.name != "float32":
        return None
    for n, factor in (value.args, value.args[::-1]):
        if isinstance(n, Cast) and n.a.dtype.name == "int32":
            return n.a, factor
    return None


def _limited(expr: Expr, op: str) -> tuple[Expr, int] | None:
    """The operand and the integral constant of a minimum or maximum with a constant."""
    if not isinstance(expr, Binary) or expr.op != op:
        return None
    for one, other in ((expr.a, expr.b), (expr.b, expr.a)):
        limit = _integral(other)
        if limit is not None:
            return one, limit
    return None


def _point(expr: Expr) -> Expr | None:
    """The int32 of a zero point that was cast to a float; None for other floats."""
    known = _integral(expr)
    if known is not None:
        return const(known, "int32")
    wide = expr.a if isinstance(expr, Cast) else None
    if not isinstance(wide, Cast) or wide.dtype.name != "int32":
        return None
    return wide if wide.a.dtype.is_int and wide.a.dtype.bits <= WIDEST else None


def _integral(expr: Expr) -> int | None:
    """The value of a constant float that is an integer below 2^16; None for all else."""
    if not isinstance(expr, Const) or not abs(expr.value) < 1 << WIDEST:
        return None
    return int(expr.value) if expr.value == int(expr.value) else None


__all__ = ["CLAMPED_ROUND", "SCALED_ROUND", "Rounded", "clamped_round", "scaled_round"]
