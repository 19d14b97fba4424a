"""Dead-code elimination: stores that are never read, empty loops and conditions, unused names."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from dlc_core.ir.buffer import Buffer
from dlc_core.ir.expr import Load
from dlc_core.passes.base import PassContext
from dlc_core.passes.tir.base import PrimFuncPass
from dlc_core.passes.tir.effects import Memory, is_pure
from dlc_core.schedule.tree import EMPTY_STMT, is_empty
from dlc_core.support.record import record
from dlc_core.tir.functor import (
    allocations,
    buffers_read,
    exprs_of,
    free_buffers,
    free_vars_stmt,
    transform_stmt,
)
from dlc_core.tir.stmt import Alloc, Block, Eval, For, If, Let, PrimFunc, Seq, Stmt, Store, View, seq


def remove_no_ops(func: PrimFunc) -> PrimFunc:
    """Remove statements that do not affect the parameters, until nothing changes."""
    while True:
        body = _Remover(func).rebuilt()
        if body is func.body:
            return func
        func = replace(func, body=body)


class _Remover:
    def __init__(self, func: PrimFunc) -> None:
        self.root = func.body
        self.memory = Memory(func.body)
        read = {self.memory.root(buffer) for buffer in buffers_read(func.body)}
        own = set(allocations(func.body))
        self.dead = own - read

    def rebuilt(self) -> Stmt:
        return transform_stmt(self.root, stmt_fn=self.visit)

    def is_dead(self, buffer: Buffer) -> bool:
        return self.memory.root(buffer) in self.dead

    def visit(self, s: Stmt) -> Stmt | None:
        if isinstance(s, Store):
            pure = is_pure(s.value) and all(map(is_pure, s.indices))
            return EMPTY_STMT if pure and (self.is_dead(s.buffer) or _stores_itself(s)) else None
        if isinstance(s, Seq):
            parts = [part for part in s.stmts if not is_empty(part)]
            return seq(*parts) if len(parts) < len(s.stmts) else None
        if isinstance(s, Eval):
            return EMPTY_STMT if is_pure(s.value) else None
        if isinstance(s, If):
            return self.branch(s)
        if isinstance(s, For):
            return EMPTY_STMT if is_empty(s.body) and all(map(is_pure, exprs_of(s))) else None
        if isinstance(s, Let):
            return s.body if is_pure(s.value) and s.var not in free_vars_stmt(s.body) else None
        if isinstance(s, (Alloc, View)):
            return s.body if self.is_dead(s.buffer) or s.buffer not in free_buffers(s.body) else None
        return self.block(s) if isinstance(s, Block) else None

    def branch(self, s: If) -> Stmt | None:
        orelse = None if s.orelse is None or is_empty(s.orelse) else s.orelse
        if not is_empty(s.then):
            return If(s.cond, s.then) if orelse is None and s.orelse is not None else None
        if orelse is not None:
            return If(~s.cond, orelse) if s.cond.dtype.lanes == 1 else None
        return EMPTY_STMT if is_pure(s.cond) else None

    def block(self, s: Block) -> Stmt | None:
        init = None if s.init is None or is_empty(s.init) else s.init
        if init is None and is_empty(s.body):
            return EMPTY_STMT
        reads, writes = (tuple(r for r in rs if not self.is_dead(r.buffer)) for rs in (s.reads, s.writes))
        if init is s.init and len(reads) == len(s.reads) and len(writes) == len(s.writes):
            return None
        return replace(s, init=init, reads=reads, writes=writes)


def _stores_itself(s: Store) -> bool:
    """Whether a store writes an element's own value to it."""
    return isinstance(s.value, Load) and s.value.buffer is s.buffer and s.value.indices == s.indices


@record(frozen=True)
class RemoveNoOps(PrimFuncPass):
    """Dead-code elimination: remove temporaries that are never read, empty loops and conditions, unused
    names, and elements stored to themselves.

    Before:

        @T.prim_func
        def f(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
            t = T.alloc_buffer((8,), "float32")
            for i in range(8):
                x = T.let(A[i] * T.float32(2.0))
                t[i] = x
            for i in range(8):
                B[i] = A[i]
                if i > 4:
                    B[i] = B[i]

    After:

        @T.prim_func
        def f(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
            for i in range(8):
                B[i] = A[i]
    """

    name: ClassVar[str] = "remove_no_ops"

    def run_function(self, func: PrimFunc, context: PassContext) -> PrimFunc:
        return remove_no_ops(func)


__all__ = ["RemoveNoOps", "remove_no_ops"]
