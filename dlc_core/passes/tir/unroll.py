"""Unrolled loops to their iterations."""

from __future__ import annotations

from dataclasses import replace

from dlc_core.diag import CodegenError
from dlc_core.ir.expr import Expr, const_value, post_order
from dlc_core.tir.functor import (
    bound_vars,
    child_stmts,
    exprs_of,
    rename_bound,
    stmts,
    substitute_stmt,
    transform_stmt,
)
from dlc_core.tir.stmt import Alloc, Eval, For, PrimFunc, Seq, Stmt, Store, View, seq


def unroll_loops(func: PrimFunc) -> PrimFunc:
    """Every loop of kind "unrolled" as one copy of its body for each iteration; its extent must be
    constant."""
    return replace(func, body=_Unroll().rebuild(func.body))


class _Unroll:
    """Nests of unrolled loops around stores are written out at once, sharing what does not differ."""

    def rebuild(self, root: Stmt) -> Stmt:
        nests = {s for s in stmts(root) if _is_nest(s)}
        inside = {s for nest in nests for s in stmts(nest) if s is not nest}

        def visit(stmt: Stmt) -> Stmt | None:
            if not isinstance(stmt, For) or stmt.kind != "unrolled" or stmt in inside:
                return None
            return _Nest(stmt).written_out() if stmt in nests else _one_by_one(stmt)

        return transform_stmt(root, stmt_fn=visit)


def _is_nest(stmt: Stmt) -> bool:
    """Unrolled loops around nothing but stores and calls."""
    if not isinstance(stmt, For) or stmt.kind != "unrolled":
        return False
    return all(
        isinstance(s, (Store, Eval, Seq)) or (isinstance(s, For) and s.kind == "unrolled")
        for s in stmts(stmt)
    )


def _count(loop: For) -> int:
    count = const_value(loop.extent)
    if count is None:
        raise CodegenError(
            f"loop {loop.var.name!r} of extent {loop.extent} cannot be unrolled",
            hint="split it by a constant first",
        )
    return count


def _one_by_one(loop: For) -> Stmt:
    binds = any(bound_vars(s) or isinstance(s, (Alloc, View)) for s in stmts(loop.body))
    copies = []
    for step in range(_count(loop)):
        body = substitute_stmt(loop.body, {loop.var: loop.begin + step})
        copies.append(rename_bound(body) if binds and step else body)
    return seq(*copies)


class _Nest:
    """Each changing expression is rebuilt once in each iteration of the innermost loop that it depends on."""

    def __init__(self, root: For) -> None:
        self.root = root
        self.now: dict[Expr, Expr] = {}
        """What changing expressions are in the present iteration."""
        self.changing: dict[For, list[Expr]] = {}
        """For each loop the expressions that change with it and with no loop inside it, operands first."""
        self._level: dict[Expr, int] = {}
        self._find(root, [])

    def _find(self, stmt: Stmt, around: list[For]) -> None:
        for expr in exprs_of(stmt):
            self._place(expr, around)
        if isinstance(stmt, For):
            self._level[stmt.var] = len(around)
            self.changing[stmt] = []
            around = [*around, stmt]
        for child in child_stmts(stmt):
            self._find(child, around)

    def _place(self, root: Expr, around: list[For]) -> None:
        for e in post_order(root):
            if e not in self._level:
                level = self._level[e] = max((self._level[c] for c in e.children), default=-1)
                if level >= 0:
                    self.changing[around[level]].append(e)

    def written_out(self) -> Stmt:
        out: list[Stmt] = []
        self._write(self.root, out)
        return seq(*out)

    def _write(self, stmt: Stmt, out: list[Stmt]) -> None:
        now = self.now
        if isinstance(stmt, Store):
            indices = tuple([now.get(i, i) for i in stmt.indices])
            out.append(Store(stmt.buffer, indices, now.get(stmt.value, stmt.value)))
        elif isinstance(stmt, Eval):
            out.append(Eval(now.get(stmt.value, stmt.value)))
        elif isinstance(stmt, Seq):
            for part in stmt.stmts:
                self._write(part, out)
        else:
            assert isinstance(stmt, For)
            begin = now.get(stmt.begin, stmt.begin)
            for step in range(_count(stmt)):
                now[stmt.var] = begin + step
                for e in self.changing[stmt]:
                    now[e] = e.rebuild([now.get(c, c) for c in e.children])
                self._write(stmt.body, out)
