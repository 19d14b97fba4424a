"""Data-dependent floats, and quotients of dims that `ratios` does not support, as expressions in a tensor's
precision.

    floor(height * scale)        where the scale is an input

`truncated` converts them to integers, of which sizes are made.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dlc_core.ir.dtype import INDEX, DType
from dlc_core.ir.expr import Expr, cast_to, const, logical_and, select
from dlc_frontend_onnx.ratios import Ratio

FLOATS = ("float32", "float64")
"""The dtypes of these expressions; elements of narrower dtypes are float32."""

_LARGE = 2.0**62


def in_floats(value: Any, dtype: DType) -> Expr:
    """An element as an expression of the dtype."""
    if isinstance(value, Ratio):
        numerator = in_floats(value.numerator, dtype)
        return numerator if value.denominator == 1 else numerator / const(float(value.denominator), dtype)
    if isinstance(value, Expr):
        return value if value.dtype is dtype else cast_to(dtype, value)
    return const(float(value), dtype)


def truncated(value: Expr) -> Expr:
    """The value truncated toward zero as an int64. NaN, infinities and values outside int64 become a large
    negative integer, which no size may be.
    """
    bound = const(_LARGE, value.dtype)
    inside = logical_and(value > -bound, value < bound)
    return cast_to(INDEX, select(inside, value, -bound))


def floor(value: Expr) -> Expr:
    whole = cast_to(value.dtype, truncated(value))
    one = const(1.0, value.dtype)
    return _where_fractions(value, select(whole > value, whole - one, whole))


def ceil(value: Expr) -> Expr:
    whole = cast_to(value.dtype, truncated(value))
    one = const(1.0, value.dtype)
    return _where_fractions(value, select(whole < value, whole + one, whole))


def _where_fractions(value: Expr, rounded: Expr) -> Expr:
    """The rounded value, if the value is small enough to have a fraction; else the value, including NaN and
    infinities.
    """
    bound = const(2.0**53, value.dtype)
    return select(logical_and(value > -bound, value < bound), rounded, value)


RULES: dict[str, Callable[..., Expr]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "neg": lambda a: -a,
    "floor": floor,
    "ceil": ceil,
    "relu": lambda a: select(a > 0.0, a, const(0.0, a.dtype)),
}
"""Elementwise ops on expressions of one dtype."""


__all__ = ["FLOATS", "RULES", "ceil", "in_floats", "truncated"]
