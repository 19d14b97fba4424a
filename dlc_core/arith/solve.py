"""Solving for a symbolic dim."""

from __future__ import annotations

from dlc_core.arith.analyzer import Analyzer
from dlc_core.ir.expr import ExprLike, Var, as_expr, const_value


def solve_dim(expr: ExprLike, value: int, var: Var) -> int | None:
    """The integer value of `var` for which `expr == value`, where `expr` is affine in `var` and has no
    other variable.

    None where it is not, where no integer solves it, or where every integer does.

    >>> n = Var("n")
    >>> solve_dim(n * 2 + 1, 7, n)
    3
    """
    analyzer = Analyzer()
    coefficient = analyzer.coefficient_of(expr, var)
    slope = None if coefficient is None else const_value(coefficient)
    if not slope:
        return None
    start = const_value(analyzer.simplify(as_expr(expr) - as_expr(var) * slope))
    if start is None or (value - start) % slope:
        return None
    return (value - start) // slope
