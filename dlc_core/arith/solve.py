"""Solving for a variable: a symbolic dim from a size, and the values for which conditions hold."""

from __future__ import annotations

from dlc_core.arith.analyzer import Analyzer
from dlc_core.arith.sets import EVERYTHING, IntSet, intersection
from dlc_core.ir.dtype import INDEX
from dlc_core.ir.expr import Binary, Const, Expr, ExprLike, Var, as_expr, const_value, eq, logical_and
from dlc_core.support.record import record


def solve_dim(expr: ExprLike, value: int, var: Var) -> int | None:
    """Solve `expr == value` for an integer `var`, if `expr` is affine in `var` and has no other variable.

    None if it is not, if no integer is a solution, or if every integer is.

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


def is_solvable(expr: ExprLike, var: Var) -> bool:
    """Whether `solve_dim` can compute `var` from the value of an expression without other variables.

    >>> n = Var("n")
    >>> is_solvable(n * 2 + 1, n), is_solvable(n // 2, n)
    (True, False)
    """
    if expr is var:
        return True
    slope = Analyzer().coefficient_of(expr, var)
    return bool(slope is not None and const_value(slope))


@record(frozen=True)
class Solution:
    """A condition holds if and only if the variable is in `values` and `rest` holds. `rest` may mention
    it."""

    values: IntSet
    rest: Expr


def solve_condition(analyzer: Analyzer, cond: ExprLike, var: Var) -> Solution:
    """The values of an index variable for which a conjunction of comparisons holds.

    A comparison is solved if it is affine in `var` and the sign of the coefficient is known. Other
    comparisons are returned as the rest.

    >>> i, n = Var("i"), Var("n")
    >>> solved = solve_condition(Analyzer(), (i * 4 + 3 < n) & (i * 2 > 7), i)
    >>> print(solved.values, solved.rest)
    [4, n // 4 - 1] True
    """
    sets: list[IntSet] = [EVERYTHING]
    rest: list[Expr] = []
    stack = [analyzer.simplify(cond)]
    while stack:
        e = stack.pop()
        if isinstance(e, Binary) and e.op == "and":
            stack += (e.b, e.a)
            continue
        found = _solve(analyzer, e, var)
        if found is None:
            rest.append(e)
        else:
            sets.append(found[0])
            rest += found[1]
    return Solution(intersection(analyzer, sets), analyzer.simplify(logical_and(*rest)))


def _solve(analyzer: Analyzer, e: Expr, var: Var) -> tuple[IntSet, tuple[Expr, ...]] | None:
    """The solutions of a comparison, and the condition that remains."""
    if (
        isinstance(e, Const)
        or not isinstance(e, Binary)
        or e.op not in ("lt", "eq")
        or e.a.dtype is not INDEX
    ):
        return None
    # factor * var + start < 0, or == 0
    factor = analyzer.coefficient_of(e.a - e.b, var)
    if factor is None:
        return None
    start = analyzer.simplify(e.a - e.b - factor * var)
    positive = analyzer.prove(factor > 0)
    if not positive and not analyzer.prove(factor < 0):
        return None
    size = factor if positive else analyzer.simplify(-factor)
    if e.op == "lt":
        if positive:
            return IntSet(None, analyzer.simplify((-start - 1) // size)), ()
        return IntSet(analyzer.simplify(start // size + 1), None), ()
    numerator = analyzer.simplify(-start if positive else start)
    return IntSet.point(analyzer.simplify(numerator // size)), (eq(numerator % size, 0),)
