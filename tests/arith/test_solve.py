"""Solving conditions for a variable: named ones, and random ones against counting."""

from __future__ import annotations

import random

import pytest

from dlc_core.arith import Analyzer, eval_expr, solve_condition
from dlc_core.ir.expr import Expr, Var, binary, const, eq, ne

i, j, n, m = Var("i"), Var("j"), Var("n"), Var("m")


def known() -> Analyzer:
    analyzer = Analyzer()
    analyzer.declare_dim(n)
    analyzer.declare_dim(m)
    analyzer.bind(j, 0, 8)
    return analyzer


CASES: list[tuple[Expr, str, str]] = [
    (i < n, "[-inf, n - 1]", "True"),
    (i * 8 + j < n, "[-inf, neg((j - n) // 8) - 1]", "True"),
    (i * 4 < n * 4, "[-inf, n - 1]", "True"),
    (n - i * 3 <= 5, "[n // 3 - 1, inf]", "True"),
    ((i >= 0) & (i < n), "[0, n - 1]", "True"),
    (i * n + j < m, "[-inf, (m - j - 1) // n]", "True"),
    (eq(i, n * 2), "[n * 2, n * 2]", "True"),
    (eq(i * 3, n), "[n // 3, n // 3]", "n % 3 == 0"),
    ((i < 4) & (n < m), "[-inf, 3]", "n < m"),
    ((i // 2 < n) & ne(i, 3), "[-inf, inf]", "i // 2 < n and i != 3"),
    (i * m * j < n, "[-inf, inf]", "i * j * m < n"),
    ((i < 3) | (i > 5), "[-inf, inf]", "i < 3 or 5 < i"),
    ((i < 3) & (i > 5), "[-inf, inf]", "False"),
]


@pytest.mark.parametrize(("cond", "values", "rest"), CASES, ids=[str(c[0]) for c in CASES])
def test_solutions(cond: Expr, values: str, rest: str) -> None:
    found = solve_condition(known(), cond, i)
    assert (str(found.values), str(found.rest)) == (values, rest)


def test_solutions_agree_with_enumeration() -> None:
    rng = random.Random(9)
    solved = 0
    for _ in range(300):
        conds = []
        for _ in range(rng.choice([1, 2, 3])):
            factor = rng.choice([const(rng.choice([-4, -3, -1, 1, 2, 3, 5])), n, -n])
            left = i * factor + rng.choice([j, n, m, const(rng.randrange(-9, 9))])
            op = rng.choice(["lt", "le", "gt", "ge", "lt", "le", "eq", "ne"])
            conds.append(binary(op, left, rng.choice([n * 2, m, j * 3, const(rng.randrange(-9, 20))])))
        cond = conds[0]
        for other in conds[1:]:
            cond = cond & other
        found = solve_condition(known(), cond, i)
        solved += found.rest is const(True, "bool")
        for env in ({n: 1, m: 4, j: 3}, {n: 3, m: 1, j: 0}, {n: 6, m: 7, j: 7}):
            for value in range(-30, 31):
                here = env | {i: value}
                low = found.values.low is None or eval_expr(found.values.low, here) <= value
                high = found.values.high is None or value <= eval_expr(found.values.high, here)
                assert (low and high and bool(eval_expr(found.rest, here))) == bool(eval_expr(cond, here)), (
                    cond
                )
    assert solved > 150
