"""Evaluation of expressions, one by one and compiled."""

from __future__ import annotations

from itertools import product

import pytest

from dlc_core.arith import compile_exprs, eval_expr
from dlc_core.diag import RuntimeFailure, UsageError
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.expr import Expr, Var, binary, ceildiv, const, maximum, minimum, select, unary

a, b = Var("a"), Var("b")
OPERATORS = [
    "add",
    "sub",
    "mul",
    "div",
    "floordiv",
    "floormod",
    "truncdiv",
    "truncmod",
    "min",
    "max",
    "eq",
    "ne",
    "lt",
    "le",
    "gt",
    "ge",
    "bitand",
    "bitor",
    "bitxor",
]


@pytest.mark.parametrize("op", OPERATORS)
def test_compiled_and_evaluated_agree(op: str) -> None:
    e = binary(op, a, b)
    compiled = compile_exprs([e], [a, b])
    for x, y in product(range(-7, 8), repeat=2):
        if y == 0 and ("div" in op or "mod" in op):
            with pytest.raises(UsageError, match="undefined"):
                eval_expr(e, {a: x, b: y})
            with pytest.raises(RuntimeFailure, match="divides by zero"):
                compiled(x, y)
            continue
        assert compiled(x, y) == (eval_expr(e, {a: x, b: y}),)


def test_division_rounds_as_its_name_says() -> None:
    for op, expected in {"floordiv": -4, "truncdiv": -3, "div": -3, "floormod": 1, "truncmod": -1}.items():
        e = binary(op, a, b)
        assert eval_expr(e, {a: -7, b: 2}) == expected
        assert compile_exprs([e], [a, b])(-7, 2) == (expected,)


def test_unary_select_cast_and_logic() -> None:
    cases: list[tuple[Expr, int]] = [
        (-a, -5),
        (unary("bitnot", a), -6),
        (select((a < b) & ~(a > 3), a, b), -2),
        (select((a > b) | (b > 0), a, b), 5),
        ((a > b).astype("int64") + 1, 2),
        (a.astype("bool").astype("int64"), 1),
        (maximum(minimum(a, 3), b), 3),
        (ceildiv(a, 2), 3),
    ]
    for e, expected in cases:
        assert eval_expr(e, {a: 5, b: -2}) == expected
        assert compile_exprs([e], [b, a])(-2, 5) == (expected,)


def test_narrow_types_wrap() -> None:
    assert eval_expr(a.astype("int8").astype("int64"), {a: 130}) == -126
    x = Var("x", "uint8")
    assert eval_expr(x + const(1, "uint8"), {x: 255}) == 0


def test_common_subexpressions_and_depth() -> None:
    e: Expr = a
    for _ in range(2000):
        e = (e * 3 + e) % 1_000_003
    expected = 5
    for _ in range(2000):
        expected = expected * 4 % 1_000_003
    assert compile_exprs([e, a], [a])(5) == (expected, 5)
    assert eval_expr(e, {a: 5}) == expected


def test_errors_name_the_cause() -> None:
    with pytest.raises(UsageError, match="no value for the variable b"):
        eval_expr(a + b, {a: 1})
    with pytest.raises(UsageError, match="b is not a parameter"):
        compile_exprs([a + b], [a])
    with pytest.raises(UsageError, match="no integer value"):
        eval_expr(Buffer("data", (4,), "int64")[a], {a: 1})
    with pytest.raises(UsageError, match="cannot be computed"):
        compile_exprs([Buffer("data", (4,), "int64")[a]], [a])
    with pytest.raises(UsageError, match="not a scalar integer"):
        eval_expr(const(1.5, "float32"), {})
    with pytest.raises(UsageError, match="only index and bool"):
        compile_exprs([a.astype("int8")], [a])


def test_no_expressions() -> None:
    assert compile_exprs([], [a])(1) == ()
