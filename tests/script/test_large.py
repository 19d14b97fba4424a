"""Large and deep programs print and parse without recursion and in time that grows with their size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dlc_core.diag import ScriptError
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.expr import Expr, Var, const, select
from dlc_core.ir.structural import first_difference
from dlc_core.script import parse, script
from dlc_core.tir.stmt import For, If, Let, PrimFunc, Seq, Stmt, loop, store

A, X, P = Buffer("A", (4,)), Var("x", "float32"), Var("p", "bool")


def program(body: Stmt) -> PrimFunc:
    return PrimFunc("main", (A, X, P), body)


def assert_round_trip(func: PrimFunc) -> str:
    text = script(func)
    assert first_difference(func, parse(text)) is None
    return text


@pytest.mark.parametrize(
    "step",
    [lambda e, _: e * 0.5 + X, lambda e, k: select(P, e, X + float(k)), lambda e, _: -e],
    ids=["sums", "selects", "signs"],
)
def test_ten_thousand_nested_expressions(step: Callable[[Expr, int], Expr]) -> None:
    e: Expr = X
    for k in range(10_000):
        e = step(e, k)
    text = assert_round_trip(program(store(A, (0,), e)))
    assert max(map(len, text.splitlines())) < 2000


def test_ten_thousand_nested_bindings() -> None:
    body: Stmt = store(A, (0,), X)
    for k in range(10_000):
        body = Let(Var(f"y{k}", "float32"), A[0], body)
    assert_round_trip(program(body))


def test_nested_suites() -> None:
    inner: Stmt = store(A, (0,), X)
    for _ in range(90):
        inner = loop(Var("i"), 2, inner, "parallel")
    assert_round_trip(program(inner))
    for _ in range(1500):
        inner = If(P, For(Var("i"), const(0), const(2), inner, "unrolled"), store(A, (0,), X))
    text = script(program(inner))
    assert text.count("T.unroll(2)") == text.count("else:") == 1500
    with pytest.raises(ScriptError, match="too many levels of indentation"):
        parse(text)


def test_time_grows_with_size(counted: Callable[[Callable[[], Any]], tuple[Any, int]]) -> None:
    def statements(count: int) -> PrimFunc:
        return program(Seq(tuple(store(A, (k % 4,), A[k % 4] * float(k) + 1.0) for k in range(count))))

    small, large = statements(500), statements(2000)
    text, few = counted(lambda: script(small))
    longer, many = counted(lambda: script(large))
    assert many < 4.1 * few
    assert few < 500 * 100
    _, few = counted(lambda: parse(text))
    _, many = counted(lambda: parse(longer))
    assert many < 4.1 * few
