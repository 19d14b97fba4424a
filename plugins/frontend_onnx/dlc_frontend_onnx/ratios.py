"""Floats that are a dim times a rational number, for example half a height, as models compute sizes for
Resize.

An element of a float tensor is a Python float or a `Ratio`: an integer expression over dims divided by a
positive integer. Decimal factors are read as exact fractions: 0.1 is 1/10.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from dlc_core.ir.expr import Const, Expr, as_expr

MAX_DENOMINATOR = 1 << 16


class NoRatio(Exception):
    """The result is not a rational multiple of a dim."""


@dataclass(frozen=True)
class Ratio:
    """`numerator / denominator`."""

    numerator: Expr
    denominator: int = 1


def fraction(value: Any) -> Fraction:
    """The fraction that a float approximates; exact for integers."""
    number = float(value)
    if not abs(number) < 2.0**53:
        raise NoRatio
    near = Fraction(number).limit_denominator(MAX_DENOMINATOR)
    if abs(float(near) - number) > 1e-6 * max(abs(number), 1e-6):
        raise NoRatio
    return near


def _parts(value: Any) -> tuple[Expr, int]:
    if isinstance(value, Ratio):
        return value.numerator, value.denominator
    if isinstance(value, Expr):
        raise NoRatio
    near = fraction(value)
    return as_expr(near.numerator), near.denominator


def _made(numerator: Expr, denominator: int) -> Ratio:
    if denominator > MAX_DENOMINATOR:
        raise NoRatio
    return Ratio(numerator, denominator)


def add(a: Any, b: Any) -> Any:
    (x, p), (y, q) = _parts(a), _parts(b)
    return _made(x * q + y * p, p * q)


def subtract(a: Any, b: Any) -> Any:
    (x, p), (y, q) = _parts(a), _parts(b)
    return _made(x * q - y * p, p * q)


def multiply(a: Any, b: Any) -> Any:
    (x, p), (y, q) = _parts(a), _parts(b)
    return _made(x * y, p * q)


def divide(a: Any, b: Any) -> Any:
    """Supports only constant divisors."""
    x, p = _parts(a)
    y, q = _parts(b)
    if not isinstance(y, Const) or y.value == 0:
        raise NoRatio
    number = int(y.value)
    numerator, denominator = x * q, p * abs(number)
    return _made(numerator if number > 0 else as_expr(0) - numerator, denominator)


def floor(a: Any) -> Any:
    x, p = _parts(a)
    return Ratio(x // p)


def ceil(a: Any) -> Any:
    x, p = _parts(a)
    return Ratio((x + (p - 1)) // p)


def negative(a: Any) -> Any:
    x, p = _parts(a)
    return Ratio(as_expr(0) - x, p)


RULES: dict[str, Callable[..., Any]] = {
    "add": add,
    "sub": subtract,
    "mul": multiply,
    "div": divide,
    "floor": floor,
    "ceil": ceil,
    "neg": negative,
}
"""Elementwise ops on these elements."""

__all__ = ["MAX_DENOMINATOR", "RULES", "NoRatio", "Ratio", "fraction"]
