"""Sets of integers under loop ranges against counting, and their unions and intersections."""

from __future__ import annotations

import random
from itertools import product

import pytest

from dlc_core.arith import Analyzer, IntSet, eval_expr, set_of
from dlc_core.arith.sets import (
    EVERYTHING,
    intersection,
    union,
)
from dlc_core.diag import UsageError
from dlc_core.ir.expr import Expr, Var, binary, const, maximum, minimum, select

i, j, n, m = Var("i"), Var("j"), Var("n"), Var("m")


def known() -> Analyzer:
    analyzer = Analyzer()
    analyzer.declare_dim(n)
    analyzer.declare_dim(m)
    return analyzer


SETS: list[tuple[Expr, str]] = [
    (i * 8 + j, "[0, 31]"),
    (n + i * 8 + j, "[n, n + 31]"),
    (m - i, "[m - 3, m]"),
    (i * n + j, "[0, n * 3 + 7]"),
    ((m * 4 + i) // 4, "[m, m]"),
    ((i * 8 + j) % 8, "[0, 7]"),
    (maximum(m + i - 2, 0), "[max(m - 2, 0), m + 1]"),
    (select(n < 3, i, j), "[0, 7]"),
    (i * i, "[0, 9]"),
    (const(5), "[5, 5]"),
]


@pytest.mark.parametrize(("e", "expected"), SETS, ids=[str(s[0]) for s in SETS])
def test_sets_of_expressions(e: Expr, expected: str) -> None:
    assert str(set_of(known(), e, {i: (0, 4), j: (0, 8)})) == expected


def test_an_end_may_be_infinite() -> None:
    x = Var("x")
    analyzer = known()
    assert set_of(analyzer, x, [x]) == EVERYTHING
    assert str(set_of(analyzer, minimum(x, n), [x])) == "[-inf, inf]"
    with analyzer.assume(x >= 3):
        assert str(set_of(analyzer, x * 2 + n, [x])) == "[n + 6, inf]"
        assert str(set_of(analyzer, n - x, [x])) == "[-inf, n - 3]"


def test_unions_and_intersections() -> None:
    analyzer = known()
    first, second = IntSet.of(n, 4), IntSet.of(n + 2, 8)
    assert str(union(analyzer, [first, second])) == "[n, n + 9]"
    assert str(intersection(analyzer, [first, second])) == "[n + 2, n + 3]"
    assert str(intersection(analyzer, [])) == "[-inf, inf]"
    assert str(union(analyzer, [first, EVERYTHING])) == "[-inf, inf]"
    assert str(intersection(analyzer, [first, IntSet(None, n)])) == "[n, n]"
    with pytest.raises(UsageError, match="no sets"):
        union(analyzer, [])


def test_sets_contain_every_value() -> None:
    rng = random.Random(3)
    operators = ("add", "sub", "mul", "min", "max", "floordiv", "floormod")
    exact = 0

    def build(depth: int) -> Expr:
        if depth == 0:
            return rng.choice([i, j, n, const(rng.randrange(-4, 9))])
        op = rng.choice(operators)
        b = const(rng.choice([1, 2, 3, 4])) if op.startswith("floor") else build(depth - 1)
        return binary(op, build(depth - 1), b)

    for _ in range(400):
        e = build(rng.choice([1, 2, 3]))
        found = set_of(known(), e, {i: (0, 4), j: (-1, 5)})
        for size in (1, 2, 5):
            env = {n: size, m: 1}
            values = [eval_expr(e, env | {i: a, j: b}) for a, b in product(range(4), range(-1, 4))]
            low = None if found.low is None else eval_expr(found.low, env)
            high = None if found.high is None else eval_expr(found.high, env)
            assert low is None or low <= min(values), e
            assert high is None or max(values) <= high, e
            exact += (low, high) == (min(values), max(values))
    assert exact > 800
