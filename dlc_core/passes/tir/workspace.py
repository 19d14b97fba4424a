"""Large temporaries become parameters, so that the caller's arena holds them and kernels allocate nothing."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

from dlc_core.diag import CodegenError
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.expr import const_value, free_vars
from dlc_core.tir.functor import stmts, transform_stmt
from dlc_core.tir.stmt import Alloc, For, PrimFunc, Stmt

STACK_BYTES = 1 << 16
"""Temporaries up to this size may live on the stack when they are inside a loop."""


def hoist_workspace(func: PrimFunc) -> PrimFunc:
    """Large allocations as parameters after the outputs; the attribute `workspaces` counts them."""
    wanted: list[Buffer] = []

    def visit(stmt: Stmt) -> Stmt | None:
        if isinstance(stmt, Alloc) and not _on_stack(stmt.buffer):
            wanted.append(stmt.buffer)
            return stmt.body
        return None

    parallel = [s for s in stmts(func.body) if isinstance(s, For) and s.kind == "parallel"]
    for loop in parallel:
        for stmt in stmts(loop.body):
            if isinstance(stmt, Alloc) and not _on_stack(stmt.buffer):
                raise CodegenError(
                    f"{func.name}: {stmt.buffer!r} is allocated inside the parallel loop {loop.var.name!r}",
                    hint="compute it outside of the loop, or in smaller parts",
                )
    body = transform_stmt(func.body, stmt_fn=visit)
    if not wanted:
        return func
    scalars = set(func.scalars)
    for buffer in wanted:
        if any(v not in scalars for v in free_vars(*buffer.shape)):
            raise CodegenError(f"{func.name}: the size of {buffer!r} depends on a loop")
    params = (*func.buffers, *wanted, *func.scalars)
    attrs = MappingProxyType({**func.attrs, "workspaces": len(wanted)})
    return replace(func, params=params, body=body, attrs=attrs)


def _on_stack(buffer: Buffer) -> bool:
    size = const_value(buffer.num_elements())
    return size is not None and size * buffer.dtype.itemsize <= STACK_BYTES
