"""Virtual threads: one thread runs the work of several, interleaved statement by statement.

    for v in thread_binding(2, thread="vthread"):      L = alloc_buffer((2, 4), scope="local")
        L = alloc_buffer((4,), scope="local")          for k in range(8):
        for k in range(8):                                 for v in unroll(2): L[v, 0] = A[v, k]
            L[0] = A[v, k]                                 for v in unroll(2): B[v, k] = L[v, 0]
            B[v, k] = L[0]

The loads and arithmetic of the virtual threads are then adjacent. Computations that do not depend on `v` are
done once.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from dlc_core.diag import PassError
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.expr import Call, Expr, Var, free_vars, loads_in, post_order
from dlc_core.passes.tir.conflicts import dependents
from dlc_core.passes.tir.thread_base import ThreadPass
from dlc_core.support.record import record
from dlc_core.tir.functor import (
    allocations,
    block_list,
    exprs_of,
    move_accesses,
    rename_bound,
    stmts,
    stmts_of,
    substitute_stmt,
    transform_each,
)
from dlc_core.tir.intrinsics import BARRIERS, CONVERGENT
from dlc_core.tir.stmt import Alloc, For, If, PrimFunc, Seq, Stmt, Store, View, seq
from dlc_core.tir.threads import VIRTUAL, level


def inject_virtual_threads(func: PrimFunc) -> PrimFunc:
    """Replace every loop of virtual threads by interleaved copies of its statements, innermost loops first.

    Expects loops without blocks. Raises PassError if a barrier is under a condition that differs between
    virtual threads.
    """

    def visit(loop: For) -> Stmt | None:
        if level(loop) != VIRTUAL:
            return None
        if block_list(loop):
            raise PassError(f"{func.name}: virtual threads of blocks", hint="run lower_blocks first")
        return _Interleave(func, loop).interleaved()

    return replace(func, body=transform_each(func.body, For, visit))


class _Interleave:
    """One loop of virtual threads."""

    def __init__(self, func: PrimFunc, virtual: For) -> None:
        self.func = func
        self.loop = virtual
        body = virtual.body
        self.dependent = dependents(body, {virtual.var}, set(allocations(body)))
        self.widened_buffers: dict[Buffer, Buffer] = {}

    def depends(self, *exprs: Expr) -> bool:
        return any(v in self.dependent for v in free_vars(*exprs)) or any(
            e.buffer in self.dependent for e in loads_in(*exprs)
        )

    def any_depends(self, stmt: Stmt) -> bool:
        """Whether any part of a statement depends on the virtual thread."""
        return any(
            self.depends(*exprs_of(s))
            or (isinstance(s, Store) and s.buffer in self.dependent)
            or (isinstance(s, (Alloc, View)) and s.buffer in self.dependent)
            for s in stmts(stmt)
        )

    def interleaved(self) -> Stmt:
        return self.stmt(self.loop.body)

    def stmt(self, stmt: Stmt) -> Stmt:
        if not self.any_depends(stmt):
            return stmt
        match stmt:
            case Seq():
                return seq(*map(self.stmt, stmt.stmts))
            case Alloc():
                return self._alloc(stmt)
            case For() if not self.depends(stmt.begin, stmt.extent) and stmt.kind != "vectorized":
                return replace(stmt, body=self.stmt(stmt.body))
            case If() if not self.depends(stmt.cond):
                orelse = None if stmt.orelse is None else self.stmt(stmt.orelse)
                return If(stmt.cond, self.stmt(stmt.then), orelse)
        return self._copies(stmt)

    def _alloc(self, stmt: Alloc) -> Stmt:
        buffer = stmt.buffer
        if buffer not in self.dependent:
            return Alloc(buffer, self.stmt(stmt.body))
        viewed = any(s.base is buffer for s in stmts_of(stmt, View))
        if viewed or buffer.strides is not None or self.depends(*buffer.shape):
            return self._copies(stmt)
        widened_buffers = Buffer(
            buffer.name,
            (self.loop.extent, *buffer.shape),
            buffer.dtype,
            scope=buffer.scope,
            align=buffer.align,
        )
        self.widened_buffers[buffer] = widened_buffers
        return Alloc(widened_buffers, self.stmt(stmt.body))

    def _copies(self, stmt: Stmt) -> Stmt:
        """Copy a statement for each virtual thread, in order."""
        for part in stmts(stmt):
            convergent = [
                e.name for e in post_order(*exprs_of(part)) if isinstance(e, Call) and e.name in CONVERGENT
            ]
            if not BARRIERS.isdisjoint(convergent):
                raise PassError(
                    f"{self.func.name}: virtual threads of loop {self.loop.var.name} have a barrier under a "
                    "condition that differs between them",
                    hint="put the barrier outside of the condition",
                    spans=self.func.spans,
                )
        var = Var(self.loop.var.name, self.loop.var.dtype)
        body = self._widened(stmt, var - self.loop.begin)
        body = rename_bound(substitute_stmt(body, {self.loop.var: var}))
        return For(var, self.loop.begin, self.loop.extent, body, "unrolled")

    def _widened(self, stmt: Stmt, number: Expr) -> Stmt:
        widened_buffers = self.widened_buffers
        return move_accesses(
            stmt,
            lambda b, indices: (widened_buffers[b], (number, *indices)) if b in widened_buffers else None,
        )


@record(frozen=True)
class InjectVirtualThread(ThreadPass):
    """Interleave virtual threads in one thread."""

    name: ClassVar[str] = "inject_virtual_thread"

    def change(self, func: PrimFunc) -> PrimFunc:
        return inject_virtual_threads(func)


__all__ = ["InjectVirtualThread", "inject_virtual_threads"]
