"""Blocks to plain loop nests: axes become what they are bound to, `init` and predicates conditions."""

from __future__ import annotations

from dataclasses import replace

from dlc_core.ir.expr import Const, Expr, Var, eq, logical_and, substitute
from dlc_core.tir.functor import substitute_stmt, transform_stmt
from dlc_core.tir.stmt import Block, If, PrimFunc, Stmt, seq


def lower_blocks(func: PrimFunc) -> PrimFunc:
    """The program without blocks; `init` runs where every reduction axis is at its begin."""
    return replace(func, body=transform_stmt(func.body, stmt_fn=_lower))


def _lower(stmt: Stmt) -> Stmt | None:
    if not isinstance(stmt, Block):
        return None
    body = stmt.body
    if stmt.init is not None:
        first = logical_and(*(eq(a.var, a.dom.begin) for a in stmt.axes if a.kind == "reduce"))
        body = seq(_guarded(first, stmt.init), body)
    values: dict[Var, Expr] = {axis.var: value for axis, value in zip(stmt.axes, stmt.values, strict=True)}
    return _guarded(substitute(stmt.predicate, values), substitute_stmt(body, values))


def _guarded(cond: Expr, stmt: Stmt) -> Stmt:
    return stmt if isinstance(cond, Const) and cond.value else If(cond, stmt)
