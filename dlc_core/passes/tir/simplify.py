"""Simplify statements and expressions by the facts of the surrounding loops and conditions."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from dlc_core.ir.buffer import Buffer
from dlc_core.ir.expr import Const, Expr, Var, substitute
from dlc_core.passes.base import PassContext
from dlc_core.passes.tir.base import PrimFuncPass
from dlc_core.passes.tir.effects import is_pure
from dlc_core.passes.tir.walk import Walker
from dlc_core.schedule.tree import EMPTY_STMT, is_empty
from dlc_core.support.record import record
from dlc_core.tir.functor import substitute_buffer
from dlc_core.tir.stmt import Alloc, For, If, Let, PrimFunc, Stmt, View


class Simplify(Walker):
    """Removes empty loops, loops of one iteration and conditions with a proved value."""

    def __init__(self, func: PrimFunc) -> None:
        super().__init__(func)
        self.buffers: dict[Buffer, Buffer] = {}
        self.values: dict[Var, Expr] = {}
        """The values of variables of loops with one iteration, and of names of variables and constants."""

    def substituted(self, expr: Expr) -> Expr:
        return substitute(expr, self.values) if self.values else expr

    def buffer(self, buffer: Buffer) -> Buffer:
        return self.buffers.get(buffer, buffer)

    def expr(self, e: Expr) -> Expr:
        if isinstance(e, Const):
            return e
        e = self.substituted(e)
        return self.analyzer.simplify(substitute(e, {}, self.buffers) if self.buffers else e)

    def define_buffer(self, buffer: Buffer) -> None:
        """Replace removed variables in the description of a buffer that is allocated now."""
        substituted = substitute_buffer(buffer, self.values)
        if substituted is not buffer:
            self.buffers[buffer] = substituted
            self.memory.alias(substituted, buffer)

    def define(self, s: Alloc | View) -> Callable[[Stmt], Stmt]:
        self.define_buffer(s.buffer)
        return super().define(s)

    def loop(self, s: For) -> Stmt:
        begin, extent = self.expr(s.begin), self.expr(s.extent)
        if self.analyzer.prove(extent <= 0):
            return EMPTY_STMT
        # Proved outside of the loop. Inside, the extent is assumed to be positive, so that an extent of at
        # most 1 would be proved to be 1.
        once = s.kind != "thread" and self.analyzer.prove_equal(extent, 1)
        with self.inside(s.var, begin, extent, s.body):
            if once:
                self.values[s.var] = begin
            body = self.stmt(s.body)
            self.values.pop(s.var, None)
        if once or is_empty(body):
            return body
        same = begin is s.begin and extent is s.extent and body is s.body
        return s if same else For(s.var, begin, extent, body, s.kind, s.thread, s.annotations)

    def branch(self, s: If) -> Stmt:
        cond = self.expr(s.cond)
        if self.analyzer.prove(cond):
            return self.stmt(s.then)
        if cond.dtype.lanes == 1 and self.analyzer.prove(~cond):
            return EMPTY_STMT if s.orelse is None else self.stmt(s.orelse)
        result = self.sides(s, cond)
        orelse = None if result.orelse is None or is_empty(result.orelse) else result.orelse
        if orelse is None and is_empty(result.then) and is_pure(result.cond):
            return EMPTY_STMT
        return result if orelse is result.orelse else If(result.cond, result.then, orelse)

    def let(self, s: Let) -> Callable[[Stmt], Stmt]:
        value = self.expr(s.value)
        if not isinstance(value, (Const, Var)):
            return super().let(s)
        self.values[s.var] = value

        def complete(body: Stmt) -> Stmt:
            del self.values[s.var]
            return body

        return complete


@record(frozen=True)
class SimplifyTir(PrimFuncPass):
    """Simplify expressions, conditions and loops by the ranges of loops and by conditions. Buffers keep their
    dims.

    Before:

        @T.prim_func
        def f(A: T.Buffer((8, 4), "float32")):
            for i, u, j in T.grid(8, 1, 4):
                if i * 4 + j < 32:
                    A[(i * 4 + j) // 4, (i * 4 + j) % 4 + u] = T.float32(1.0)

    After:

        @T.prim_func
        def f(A: T.Buffer((8, 4), "float32")):
            for i, j in T.grid(8, 4):
                A[i, j] = T.float32(1.0)
    """

    name: ClassVar[str] = "simplify_tir"

    def run_function(self, func: PrimFunc, context: PassContext) -> PrimFunc:
        return Simplify(func).rebuilt()


__all__ = ["Simplify", "SimplifyTir"]
