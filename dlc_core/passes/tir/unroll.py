"""Unrolled loops to their iterations."""

from __future__ import annotations

from dataclasses import replace

from dlc_core.diag import CodegenError
from dlc_core.ir.expr import const_value
from dlc_core.tir.functor import bound_vars, rename_bound, stmts, substitute_stmt, transform_stmt
from dlc_core.tir.stmt import Alloc, For, PrimFunc, Stmt, View, seq


def unroll_loops(func: PrimFunc) -> PrimFunc:
    """Every loop of kind "unrolled", of constant extent, as one copy of its body for each iteration."""
    return replace(func, body=transform_stmt(func.body, stmt_fn=_visit))


def _visit(stmt: Stmt) -> Stmt | None:
    if not isinstance(stmt, For) or stmt.kind != "unrolled":
        return None
    count = const_value(stmt.extent)
    if count is None:
        raise CodegenError(
            f"loop {stmt.var.name!r} of extent {stmt.extent} cannot be unrolled",
            hint="split it by a constant first",
        )
    binds = any(bound_vars(s) or isinstance(s, (Alloc, View)) for s in stmts(stmt.body))
    copies = []
    for step in range(count):
        body = substitute_stmt(stmt.body, {stmt.var: stmt.begin + step})
        copies.append(rename_bound(body) if binds and step else body)
    return seq(*copies)
