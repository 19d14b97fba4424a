"""Floats that are data, and quotients of dims that `ratios` does not support: expressions in a tensor's
precision.

    floor(height * scale)        where the scale is fed

Sizes are made of them by `cut`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dlc_core.ir.dtype import INDEX, DType
from dlc_core.ir.expr import Expr, cast_to, const, logical_and, select
from dlc_frontend_onnx.ratios import Ratio

FLOATS = ("float32", "float64")
"""The dtypes of such expressions; elements of narrower ones are float32."""

_LARGE = 2.0**62


def in_floats(value: Any, dtype: DType) -> Expr:
    """An element as an expression of the dtype."""
    if isinstance(value, Ratio):
        above = in_floats(value.above, dtype)
        return above if value.below == 1 else above / const(float(value.below), dtype)
    if isinstance(value, Expr):
        return value if value.dtype is dtype else cast_to(dtype, value)
    return const(float(value), dtype)


def cut(value: Expr) -> Expr:
    """The integer toward zero; one far below zero where there is none, or none of 63 bits."""
    bound = const(_LARGE, value.dtype)
    inside = logical_and(value > -bound, value < bound)
    return cast_to(INDEX, select(inside, value, -bound))


def floor(value: Expr) -> Expr:
    whole = cast_to(value.dtype, cut(value))
    one = const(1.0, value.dtype)
    return _where_fractions(value, select(whole > value, whole - one, whole))


def ceil(value: Expr) -> Expr:
    whole = cast_to(value.dtype, cut(value))
    one = const(1.0, value.dtype)
    return _where_fractions(value, select(whole < value, whole + one, whole))


def _where_fractions(value: Expr, rounded: Expr) -> Expr:
    """Floats that are large, infinite or none are what they were."""
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


__all__ = ["FLOATS", "RULES", "ceil", "cut", "in_floats"]
