"""Statements are visited by the methods of their kinds, with any number of nested views."""

from __future__ import annotations

import pytest

from dlc_core.diag import CodegenError
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.expr import Var, const
from dlc_core.script import parse
from dlc_core.target.source import C99, FunctionWriter, Unit
from dlc_core.tir.intrinsics import intrinsic
from dlc_core.tir.stmt import Alloc, Eval, For, If, Let, PrimFunc, Stmt, Store, View, While, seq, store
from dlc_core.tir.visitor import StmtVisitor


class Kinds(StmtVisitor):
    """Records the kinds of statements in the order of their visits."""

    def __init__(self) -> None:
        self.met: list[str] = []

    def visit_store(self, stmt: Store) -> None:
        self.met.append("store")

    def visit_for(self, loop: For) -> None:
        self.met.append("for")
        self.stmt(loop.body)

    def visit_if(self, stmt: If) -> None:
        self.met.append("if")
        self.stmt(stmt.then)

    def visit_let(self, stmt: Let) -> Stmt:
        self.met.append("let")
        return stmt.body

    def visit_alloc(self, stmt: Alloc) -> None:
        self.met.append("alloc")
        self.stmt(stmt.body)

    def visit_view(self, stmt: View) -> Stmt:
        self.met.append("view")
        return stmt.body

    def visit_eval(self, stmt: Eval) -> None:
        self.met.append("eval")

    def visit_while(self, stmt: While) -> None:
        self.met.append("while")
        self.stmt(stmt.body)


def test_every_kind_has_its_method() -> None:
    a, b, i = Buffer("a", (4,), "int32"), Buffer("b", (4,), "int32"), Var("i")
    done = Eval(intrinsic("check", i < 4, const(1)))
    inner: Stmt = If(i < 2, seq(store(a, [i], const(1, "int32")), done))
    inner = While(i < 3, Let(Var("n"), i + 1, View(b, a, inner)))
    visitor = Kinds()
    visitor.stmt(For(i, const(0), const(4), Alloc(a, inner), "serial"))
    assert visitor.met == ["for", "alloc", "while", "let", "view", "if", "store", "eval"]


def test_blocks_are_refused() -> None:
    func = parse("""@T.prim_func
def main(A: T.Buffer((4,), "int32")):
    for i in range(4):
        with T.block("A"):
            v = T.axis.spatial(4, i)
            A[v] = 1
""")
    with pytest.raises(CodegenError, match="Block reached code generation"):
        FunctionWriter(Unit(C99)).function(func, "void main")


def test_thousands_of_windows() -> None:
    """As in the entry of a deep model, which has one for each value."""
    base = Buffer("base", (4,), "int32")
    windows = [Buffer("w", (4,), "int32") for _ in range(3000)]
    body: Stmt = store(windows[-1], [0], const(7, "int32"))
    for window, under in reversed(list(zip(windows, [base, *windows]))):
        body = View(window, under, body)
    text = FunctionWriter(Unit(C99)).function(PrimFunc("f", (base,), body), "void f")
    assert "int32_t *w_2999 = base;" in text
    assert "w_2998" not in text
    assert "w_2999[0] = 7;" in text


def test_thousands_of_values() -> None:
    """As in a long program without loops, in which each is nested in the one before."""
    base = Buffer("base", (4,), "int32")
    values = [Var(f"v{i}", "int32") for i in range(3000)]
    body: Stmt = store(base, [0], values[-1])
    for var, before in reversed(list(zip(values, [base[1], *values]))):
        body = Let(var, before + const(1, "int32"), body)
    text = FunctionWriter(Unit(C99)).function(PrimFunc("f", (base,), body), "void f")
    assert "const int32_t v2999 = " in text
