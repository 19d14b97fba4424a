"""Solving for a variable: a symbolic dim from a size, and the values for which conditions hold."""

from __future__ import annotations

from collections.abc import Iterable

from dlc_core.arith.analyzer import Analyzer
from dlc_core.arith.sets import EVERYTHING, IntSet, intersection
from dlc_core.ir.dtype import INDEX
from dlc_core.ir.expr import (
    Binary,
    Const,
    Expr,
    ExprLike,
    Var,
    as_expr,
    const_value,
    eq,
    free_vars,
    logical_and,
    substitute,
)
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


def solve_dims(pairs: Iterable[tuple[Expr, Expr]]) -> dict[Var, Expr]:
    """The variables of formal dims that sizes determine; `pairs` are (formal, size).

    A formal dim that is a variable is solved first, then formulas that are affine in one unknown variable. A
    size that does not fit a formula is not noticed: substitute the result to check.

    >>> n, m = Var("n"), Var("m")
    >>> {v.name: str(e) for v, e in solve_dims([(n * 2, m), (m, n + 1)]).items()}
    {'n': 'm // 2', 'm': 'n + 1'}
    """
    given = list(pairs)
    # In a recursive call the formal dims may also occur in the sizes.
    own = {v: Var(v.name, v.dtype) for formal, _ in given for v in free_vars(formal)}
    renamed = [(substitute(formal, own), size) for formal, size in given]
    known: dict[Var, Expr] = {}
    for formal, size in renamed:
        if isinstance(formal, Var):
            known.setdefault(formal, size)
    for formal, size in renamed:
        formula = substitute(formal, known)
        unknown = [v for v in own.values() if v in free_vars(formula)]
        if len(unknown) == 1:
            analyzer = Analyzer()
            for var in free_vars(size):
                analyzer.declare_dim(var, 0)
            solved = analyzer.solve(formula, size, unknown[0])
            if solved is not None:
                known[unknown[0]] = solved
    return {var: known[new] for var, new in own.items() if new in known}


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
