"""Vectorised loops to vector expressions: the loop variable becomes a Ramp, contiguous accesses become vector accesses."""

from __future__ import annotations

from dataclasses import replace

from dlc_core.arith import Analyzer
from dlc_core.diag import CodegenError
from dlc_core.ir.expr import (
    Call,
    Expr,
    Load,
    Var,
    broadcast,
    call,
    const_value,
    free_vars,
    load,
    post_order,
    ramp,
    substitute,
)
from dlc_core.tir.functor import rename_bound, substitute_stmt, transform_stmt
from dlc_core.tir.stmt import Alloc, Eval, For, If, Let, PrimFunc, Seq, Stmt, Store, View, While, seq


def vectorize_loops(func: PrimFunc) -> PrimFunc:
    """Every loop of kind "vectorized" as vectors of its constant extent; what vectors cannot say is unrolled."""
    return replace(func, body=transform_stmt(func.body, stmt_fn=_visit))


def _visit(stmt: Stmt) -> Stmt | None:
    if not isinstance(stmt, For) or stmt.kind != "vectorized":
        return None
    lanes = const_value(stmt.extent)
    if lanes is None:
        raise CodegenError(
            f"loop {stmt.var.name!r} of extent {stmt.extent} cannot be vectorised", hint="split it by a constant first"
        )
    if lanes == 1:
        return substitute_stmt(stmt.body, {stmt.var: stmt.begin})
    return _Vectorize(stmt, lanes).stmt(stmt.body)


class _Vectorize:
    """Rewrites the body of one loop."""

    def __init__(self, loop: For, lanes: int) -> None:
        self.var = loop.var
        self.begin = loop.begin
        self.lanes = lanes
        self.lane_vars: dict[Var, Expr] = {loop.var: ramp(loop.begin, 1, lanes)}
        self.analyzer = Analyzer()

    def uses(self, *exprs: Expr) -> bool:
        return any(v in self.lane_vars for v in free_vars(*exprs))

    def index(self, index: Expr) -> Expr:
        """An index as a Ramp where it is affine in the loop variable, else as the vector of its values."""
        if not self.uses(index):
            return index
        if all(v is self.var or v not in self.lane_vars for v in free_vars(index)):
            factor = self.analyzer.coefficient_of(index, self.var)
            if factor is not None and not any(isinstance(e, Load) and self.uses(e) for e in post_order(index)):
                return ramp(substitute(index, {self.var: self.begin}), factor, self.lanes)
        return self.expr(index)

    def expr(self, root: Expr) -> Expr:
        """The vector of an expression's values; itself where no lane differs."""
        if not self.uses(root):
            return root
        memo: dict[Expr, Expr] = {}
        for e in post_order(root):
            if isinstance(e, Var):
                memo[e] = self.lane_vars.get(e, e)
            elif isinstance(e, Load):
                memo[e] = load(e.buffer, [self.index(i) for i in e.indices])
            elif isinstance(e, Call) and e.name == "if_then_else":
                cond, a, b = (memo[arg] for arg in e.args)
                if cond.dtype.lanes == 1 and max(a.dtype.lanes, b.dtype.lanes) > 1:
                    cond = broadcast(cond, self.lanes)
                memo[e] = call("if_then_else", (cond, a, b), e.dtype.with_lanes(max(x.dtype.lanes for x in (cond, a, b))))
            else:
                memo[e] = e.rebuild([memo[c] for c in e.children]) if e.children else e
        return memo[root]

    def stmt(self, s: Stmt) -> Stmt:
        if isinstance(s, Seq):
            return seq(*(self.stmt(part) for part in s.stmts))
        if isinstance(s, Store):
            return self.store(s)
        if isinstance(s, For) and not self.uses(s.begin, s.extent):
            return replace(s, body=self.stmt(s.body))
        if isinstance(s, Let):
            value = self.expr(s.value)
            if value.dtype.lanes == 1:
                return Let(s.var, value, self.stmt(s.body))
            fresh = Var(s.var.name, value.dtype)
            self.lane_vars[s.var] = fresh
            return Let(fresh, value, self.stmt(s.body))
        if isinstance(s, If):
            return self.branch(s)
        return self.unrolled(s)

    def store(self, s: Store) -> Stmt:
        if not self.uses(*s.indices):
            if self.uses(s.value):
                raise CodegenError(
                    f"the lanes of loop {self.var.name!r} all store to one element of {s.buffer.name}",
                    hint="rfactor the reduction before vectorising its axis",
                )
            return s
        value = self.expr(s.value)
        if value.dtype.lanes == 1:
            value = broadcast(value, self.lanes)
        return Store(s.buffer, tuple(self.index(i) for i in s.indices), value)

    def branch(self, s: If) -> Stmt:
        if not self.uses(s.cond):
            return If(s.cond, self.stmt(s.then), None if s.orelse is None else self.stmt(s.orelse))
        if s.orelse is None and isinstance(s.then, Store) and self.uses(*s.then.indices):
            inner = self.store(s.then)
            assert isinstance(inner, Store)
            return If(self.expr(s.cond), inner)
        return self.unrolled(s)

    def unrolled(self, s: Stmt) -> Stmt:
        """One copy for each lane, in order: always right, never fast."""
        if isinstance(s, (Alloc, View, While, For, If, Eval)) and all(v is self.var for v in self.lane_vars):
            copies = [
                rename_bound(substitute_stmt(s, {self.var: self.begin + lane})) for lane in range(self.lanes)
            ]
            return seq(*copies)
        raise CodegenError(f"{type(s).__name__} cannot stand in the vectorised loop {self.var.name!r}")


