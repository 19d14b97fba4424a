"""Scalar functions and names for expressions in computes, as `te.exp(A[i])`.

A name for which the tensor IR has a function is that function. Functions of floats return the dtype of their
argument. `dlc_core.tir.intrinsics` defines their results for special values.
"""

from __future__ import annotations

from dlc_core.ir.dtype import BOOL, INDEX, DTypeLike, dtype
from dlc_core.ir.expr import (
    Expr,
    ExprLike,
    Var,
    as_expr,
    binary,
    cast_to,
    const,
    logical_and,
)
from dlc_core.te.reducers import highest, lowest
from dlc_core.tir.intrinsics import intrinsic


def var(name: str = "n", dtype_: DTypeLike = INDEX) -> Var:
    """A symbolic dim, or another by-value parameter of a program."""
    return Var(name, dtype_)


def size_var(name: str = "n") -> Var:
    """A symbolic dim that is known to be non-negative."""
    return Var(name)


def min_value(dtype_: DTypeLike) -> Expr:
    """The lowest value of a dtype, -inf for floats."""
    return const(lowest(dtype(dtype_)), dtype_)


def max_value(dtype_: DTypeLike) -> Expr:
    """The highest value of a dtype, inf for floats."""
    return const(highest(dtype(dtype_)), dtype_)


def cast(value: ExprLike, dtype_: DTypeLike) -> Expr:
    """The value in another dtype."""
    return cast_to(dtype_, value)


def all(*conds: ExprLike) -> Expr:
    """Whether all conditions hold."""
    return logical_and(*conds)


def any(*conds: ExprLike) -> Expr:
    """Whether one of the conditions holds."""
    result: Expr = const(False, BOOL)
    for cond in conds:
        result = binary("or", result, as_expr(cond))
    return result


def div(a: ExprLike, b: ExprLike) -> Expr:
    """a / b of floats; of integers, truncated toward zero."""
    return binary("div", a, b)


def floordiv(a: ExprLike, b: ExprLike) -> Expr:
    """Integer quotient rounded down."""
    return binary("floordiv", a, b)


def floormod(a: ExprLike, b: ExprLike) -> Expr:
    """Remainder with the divisor's sign."""
    return binary("floormod", a, b)


def truncdiv(a: ExprLike, b: ExprLike) -> Expr:
    """Integer quotient truncated toward zero."""
    return binary("truncdiv", a, b)


def truncmod(a: ExprLike, b: ExprLike) -> Expr:
    """Remainder with the dividend's sign."""
    return binary("truncmod", a, b)


def exp2(x: Expr) -> Expr:
    """2 ** x."""
    return intrinsic("exp2", x)


def expm1(x: Expr) -> Expr:
    """e ** x - 1, accurate near 0."""
    return intrinsic("expm1", x)


def log2(x: Expr) -> Expr:
    """Logarithm to base 2."""
    return intrinsic("log2", x)


def log10(x: Expr) -> Expr:
    """Logarithm to base 10."""
    return intrinsic("log10", x)


def log1p(x: Expr) -> Expr:
    """log(1 + x), accurate near 0."""
    return intrinsic("log1p", x)


def sin(x: Expr) -> Expr:
    """Sine of radians."""
    return intrinsic("sin", x)


def cos(x: Expr) -> Expr:
    """Cosine of radians."""
    return intrinsic("cos", x)


def tan(x: Expr) -> Expr:
    """Tangent of radians."""
    return intrinsic("tan", x)


def asin(x: Expr) -> Expr:
    """Inverse sine."""
    return intrinsic("asin", x)


def acos(x: Expr) -> Expr:
    """Inverse cosine."""
    return intrinsic("acos", x)


def atan(x: Expr) -> Expr:
    """Inverse tangent."""
    return intrinsic("atan", x)


def atan2(y: ExprLike, x: ExprLike) -> Expr:
    """The angle of the point (x, y)."""
    return intrinsic("atan2", y, x)


def sinh(x: Expr) -> Expr:
    """Hyperbolic sine."""
    return intrinsic("sinh", x)


def cosh(x: Expr) -> Expr:
    """Hyperbolic cosine."""
    return intrinsic("cosh", x)


def asinh(x: Expr) -> Expr:
    """Inverse hyperbolic sine."""
    return intrinsic("asinh", x)


def acosh(x: Expr) -> Expr:
    """Inverse hyperbolic cosine."""
    return intrinsic("acosh", x)


def atanh(x: Expr) -> Expr:
    """Inverse hyperbolic tangent."""
    return intrinsic("atanh", x)


def fmod(a: ExprLike, b: ExprLike) -> Expr:
    """Remainder of floats with the dividend's sign."""
    return intrinsic("fmod", a, b)


def sign(x: Expr) -> Expr:
    """-1, 0 or 1; NaN for NaN."""
    return intrinsic("sign", x)


def copysign(x: ExprLike, y: ExprLike) -> Expr:
    """The magnitude of x with the sign of y."""
    return intrinsic("copysign", x, y)


def isnan(x: Expr) -> Expr:
    """Whether a float is NaN."""
    return intrinsic("isnan", x)


def isinf(x: Expr) -> Expr:
    """Whether a float is infinite."""
    return intrinsic("isinf", x)


def popcount(x: Expr) -> Expr:
    """The number of set bits of an integer."""
    return intrinsic("popcount", x)
