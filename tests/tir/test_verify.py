from __future__ import annotations

from dataclasses import replace

import pytest

from dlc_core import te
from dlc_core.diag import VerifyError
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.expr import Expr, Var, as_expr, call, const, ramp
from dlc_core.ir.module import IRModule
from dlc_core.tir.functor import transform_stmt
from dlc_core.tir.intrinsics import call_kernel, if_then_else
from dlc_core.tir.stmt import (
    Alloc,
    Block,
    Eval,
    For,
    If,
    IterVar,
    Let,
    PrimFunc,
    Range,
    Region,
    Seq,
    Stmt,
    Store,
    View,
    loop,
    seq,
    store,
)
from dlc_core.tir.verify import find_problems, verify_func, verify_module

A, B = Buffer("A", (8,)), Buffer("B", (8,))
IX, J, N, X = Var("i"), Var("j"), Var("n"), Var("x", "float32")


def messages(body: Stmt, *params: Buffer | Var, level: int = 1, module: IRModule | None = None) -> list[str]:
    func = PrimFunc("main", params or (A, B), body)
    return [p.message for p in find_problems(func, level=level, module=module)]


def good() -> PrimFunc:
    n = Var("n")
    a = te.placeholder((n, 16), name="A")
    b = te.placeholder((16, 8), name="B")
    k = te.reduce_axis(16, "k")
    c = te.compute((n, 8), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    d = te.compute((n, 8), lambda i, j: c[i, j] + 1.0, name="D")
    return te.create_prim_func([a, b], [d], producers=[c])


def test_accepts_programs_of_te() -> None:
    verify_func(good(), level=2)
    verify_module(IRModule({"main": good()}), level=2)


def test_scoping() -> None:
    assert messages(store(A, (IX,), 0.0)) == ["the store to A uses i, which is not defined there"]
    assert messages(store(Buffer("C", (1,)), (0,), 0.0)) == [
        "the store to C uses buffer C, which is not defined there"
    ]
    once = loop(IX, 4, store(A, (IX,), 0.0))
    assert messages(seq(once, once)) == ["i is defined twice"]
    assert messages(loop(IX, 4, loop(IX, 2, store(A, (IX,), 0.0)))) == ["i is defined twice"]
    late = seq(Let(X, as_expr(1.0), store(A, (0,), X)), store(B, (0,), X))
    assert messages(late) == ["the store to B uses x, which is not defined there"]
    local = Buffer("S", (1,))
    assert messages(seq(Alloc(local, store(local, (0,), 0.0)), store(A, (0,), local[0]))) == [
        "the store to A uses buffer S, which is not defined there"
    ]
    assert messages(store(A, (0,), 0.0), A, A) == ["A is defined twice"]
    assert messages(Seq(()), Buffer("D", (N,))) == ["the description of D uses n, which is not defined there"]
    assert messages(Seq(()), Buffer("D", (N,)), N) == []
    view = Buffer("V", (4,), "int8")
    assert messages(View(view, A, store(view, (0,), 1))) == []
    assert messages(View(view, local, store(view, (0,), 1))) == [
        "View V uses buffer S, which is not defined there"
    ]


def test_types() -> None:
    raw = [
        (Store(A, (const(0), const(0)), as_expr(1.0)), "2 indices, the buffer 1 dims"),
        (Store(A, (const(0),), const(1)), "of int64, where float32 belongs"),
        (Store(A, (ramp(0, 1, 4),), as_expr(1.0)), "of float32, where float32x4 belongs"),
        (Store(A, (as_expr(1.0),), as_expr(1.0)), "is indexed by float32"),
        (If(const(1), store(A, (0,), 1.0)), "the condition of If is int64"),
        (Let(X, const(1), store(A, (0,), X)), "x of float32 is bound to a value of int64"),
        (Eval(const(1)), "Eval of something that is not a call"),
        (store(A, (0,), call("exp", (const(1),), "float32")), "does not take int64"),
        (For(IX, const(0), const(4, "int32"), Seq(())), "bounds of int64 and int32"),
        (loop(IX, N, Seq(()), "vectorized"), "which is no constant"),
        (loop(IX, 4, Seq(()), "thread"), "thread name ''"),
        (loop(IX, 4, Seq(()), thread="x"), "thread name 'x'"),
    ]
    for body, expected in raw:
        found = messages(body, A, B, N)
        assert len(found) == 1, found
        assert expected in found[0]
    assert messages(loop(IX, 4, Seq(()), "thread", thread="lane"), A) == []


def block(
    body: Stmt, value: Expr = IX, *, reads: tuple[Region, ...] = (), writes: tuple[Region, ...] = ()
) -> Block:
    return Block("B", (IterVar(V, Range(const(0), const(8))),), (value,), reads, writes, body)


V = Var("v")
POINT_A = Region(A, (Range(V, const(1)),))
POINT_B = Region(B, (Range(V, const(1)),))


def test_blocks() -> None:
    inside = loop(IX, 8, block(store(A, (IX,), 0.0)))
    assert messages(inside) == ["the store to A uses the loop variable i from outside the block"]
    short = replace(block(store(A, (V,), 0.0)), values=())
    assert messages(loop(IX, 8, short)) == ["block B has 1 axes but 0 values"]
    assert "bound to a value of int32" in messages(block(store(A, (V,), 0.0), const(0, "int32")))[0]
    assert "is int64, not bool" in messages(replace(block(store(A, (V,), 0.0), const(0)), predicate=V))[0]
    wrong_rank = block(store(A, (V,), 0.0), const(0), writes=(Region(A, ()),))
    assert messages(wrong_rank) == ["a region of block B has 0 ranges, buffer A 1 dims"]


def test_regions() -> None:
    def level2(
        body: Stmt, reads: tuple[Region, ...] = (POINT_B,), writes: tuple[Region, ...] = (POINT_A,)
    ) -> list[str]:
        return messages(loop(IX, 8, block(body, reads=reads, writes=writes)), level=2)

    assert level2(store(A, (V,), B[V])) == []
    assert level2(store(A, (V,), A[V] + B[V])) == []
    assert level2(store(A, (V,), B[V]), reads=()) == ["block B reads B, which its regions do not declare"]
    assert level2(store(A, (V,), B[V]), writes=()) == ["block B writes A, which its regions do not declare"]
    assert level2(store(A, (V,), B[V + 1])) == ["block B reads B[v + 1], outside its declared region"]
    assert level2(loop(J, 2, store(A, (V + J,), B[V]))) == [
        "block B writes A[v + j], outside its declared region"
    ]
    assert level2(If(V < 3, store(A, (V + 1,), B[V]))) == []
    assert level2(store(A, (V,), if_then_else(V < 3, B[V + 1], 0.0))) == []
    wide = Region(B, (Range(V, const(2)),))
    assert level2(store(A, (V,), B[V + 1] + B[V]), reads=(wide,)) == []


def test_kernel_calls() -> None:
    kernel = PrimFunc("k", (A, X), store(A, (0,), X))
    module = IRModule({"k": kernel})
    assert messages(Eval(call_kernel("k", A, as_expr(1.0))), level=2, module=module) == []
    assert messages(Eval(call_kernel("g", A)), level=2, module=module) == [
        "a call of kernel g, which the module does not have"
    ]
    assert messages(Eval(call_kernel("k", A)), level=2, module=module) == [
        "kernel k takes 2 arguments, not 1"
    ]
    assert messages(Eval(call_kernel("k", A, A)), level=2, module=module) == [
        "argument x of kernel k is handle, not float32"
    ]


def test_the_error_lists_all_problems_and_shows_the_text() -> None:
    func = PrimFunc("main", (A,), seq(*(store(A, (Var(f"x{k}"),), 0.0) for k in range(12))))
    with pytest.raises(VerifyError) as caught:
        verify_func(func, render=lambda f, s: [f">>> {f.name}"])
    text = str(caught.value)
    assert "main violates 12 rule(s)" in text
    assert "uses x0" in text
    assert "and 2 more" in text
    assert ">>> main" in text


def test_shared_subexpressions_are_checked_in_every_scope() -> None:
    func = good()
    renamed = transform_stmt(func.body, expr_fn=lambda e: Var("free") if e is func.scalars[0] else None)
    assert any("free" in p.message for p in find_problems(replace(func, body=renamed)))
