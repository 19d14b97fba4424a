"""A visitor that rebuilds programs from the outside in, with the facts that hold at each point: ranges of
loops, and conditions.

A subclass overrides the methods for the statements that it changes. The other methods return the same
statement if nothing in it changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from dlc_core.arith import Analyzer
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.dtype import INDEX
from dlc_core.ir.expr import Expr, Var, conjuncts, const_value, free_vars, loads_in, logical_and
from dlc_core.passes.tir.effects import Memory
from dlc_core.schedule.tree import is_empty
from dlc_core.tir.grammar import Parts, identical
from dlc_core.tir.stmt import (
    Alloc,
    Block,
    For,
    If,
    Let,
    PrimFunc,
    Seq,
    Stmt,
    Store,
    View,
    While,
)


class Walker:
    """Rebuilds one program.  `analyzer` knows the ranges of the variables, and the conditions, around the
    statement that is being rebuilt."""

    def __init__(self, func: PrimFunc) -> None:
        self.func = func
        self.analyzer = Analyzer()
        self.memory = Memory(func.body)
        self._parts = Parts(self.expr, self.buffer, lambda var: var)
        for scalar in func.scalars:
            if scalar.dtype.is_int:
                self.analyzer.declare_dim(scalar, low=0)

    def rebuilt(self) -> PrimFunc:
        """Return the program with its body rebuilt."""
        body = self.stmt(self.func.body)
        return self.func if body is self.func.body else replace(self.func, body=body)

    # Hooks for subclasses

    def expr(self, e: Expr) -> Expr:
        """Rebuild an expression of the current statement."""
        return e

    def buffer(self, buffer: Buffer) -> Buffer:
        """Rebuild a buffer in an allocation, a view, a store or a region."""
        return buffer

    def index(self, buffer: Buffer, indices: Sequence[Expr]) -> tuple[Expr, ...]:
        """Rebuild the indices of a store to a buffer. `buffer` is the original one."""
        return tuple(map(self.expr, indices))

    # Statements

    def stmt(self, s: Stmt) -> Stmt:
        """Rebuild a statement. Lets, allocations and views do not recurse, also as the last of a sequence:
        straight-line programs may nest thousands."""
        completions: list[Callable[[Stmt], Stmt]] = []
        while isinstance(s, (Let, Alloc, View, Seq)) and not is_empty(s):
            if isinstance(s, Seq):
                completions.append(self._sequence(s))
                s = s.stmts[-1]
            else:
                completions.append(self.let(s) if isinstance(s, Let) else self.define(s))
                s = s.body
        rebuilt = self._nested(s)
        for complete in reversed(completions):
            rebuilt = complete(rebuilt)
        return rebuilt

    def _sequence(self, s: Seq) -> Callable[[Stmt], Stmt]:
        """Rebuild all but the last statement. Returns the function from the last one to the sequence."""
        first = [self.stmt(each) for each in s.stmts[:-1]]
        return lambda last: s.with_parts([*first, last], self._parts)

    def _nested(self, s: Stmt) -> Stmt:
        match s:
            case Store():
                return self.store(s)
            case For():
                return self.loop(s)
            case If():
                return self.branch(s)
            case Block():
                return self.block(s)
            case While():
                return self.while_(s)
            case _:
                return self.rebuild_parts(s)

    def rebuild_parts(self, s: Stmt) -> Stmt:
        """Rebuild the parts of a statement that adds no facts for them."""
        return s.with_parts([self.stmt(child) for child in s.child_stmts()], self._parts)

    def store(self, s: Store) -> Stmt:
        buffer, indices, value = self.buffer(s.buffer), self.index(s.buffer, s.indices), self.expr(s.value)
        same = buffer is s.buffer and value is s.value and identical(indices, s.indices)
        return s if same else Store(buffer, indices, value)

    def loop(self, s: For) -> Stmt:
        begin, extent = self.expr(s.begin), self.expr(s.extent)
        with self.inside(s.var, begin, extent, s.body):
            body = self.stmt(s.body)
        same = begin is s.begin and extent is s.extent and body is s.body
        return s if same else replace(s, begin=begin, extent=extent, body=body)

    def branch(self, s: If) -> Stmt:
        return self.sides(s, self.expr(s.cond))

    def sides(self, s: If, cond: Expr) -> If:
        """Rebuild both sides of a branch, each under what its condition implies there."""
        with self.under(cond, s.then):
            then = self.stmt(s.then)
        orelse = s.orelse
        if orelse is not None:
            with self.under_negation(cond, orelse):
                orelse = self.stmt(orelse)
        same = cond is s.cond and then is s.then and orelse is s.orelse
        return s if same else If(cond, then, orelse)

    def let(self, s: Let) -> Callable[[Stmt], Stmt]:
        """Rebuild the value of a let. Returns the function from the rebuilt body to the statement."""
        value = self.expr(s.value)
        return lambda body: s if value is s.value and body is s.body else Let(s.var, value, body)

    def define(self, s: Alloc | View) -> Callable[[Stmt], Stmt]:
        """Rebuild an allocation or a view, before its body, as `let` does."""
        return lambda body: s.with_parts([body], self._parts)

    def while_(self, s: While) -> Stmt:
        cond = self.expr(s.cond)
        with self.under(cond, s.body):
            body = self.stmt(s.body)
        return s if cond is s.cond and body is s.body else While(cond, body)

    def block(self, s: Block) -> Stmt:
        axes, values = self._parts.axes(s.axes), self._parts.exprs(s.values)
        with self.analyzer.scope():
            for axis in axes:
                if axis.var.dtype is INDEX:
                    self.analyzer.bind(axis.var, axis.dom.begin, axis.dom.extent)
            predicate = self.expr(s.predicate)
            with self.under(predicate, s):
                reads, writes = self._parts.regions(s.reads), self._parts.regions(s.writes)
                init = None if s.init is None else self.stmt(s.init)
                body = self.stmt(s.body)
        new = axes, values, predicate, reads, writes, init, body
        if identical(new, (s.axes, s.values, s.predicate, s.reads, s.writes, s.init, s.body)):
            return s
        return Block(s.name, axes, values, reads, writes, body, init, predicate, s.annotations)

    # Facts

    @contextmanager
    def inside(self, var: Var, begin: Expr, extent: Expr, body: Stmt) -> Iterator[None]:
        """Return a scope inside of a loop. Ends that the body may change are not recorded."""
        is_invariant = var.dtype is INDEX and self.memory.preserves(body, begin, extent)
        # In a loop body, the extent is positive. This is not learned for the program's own dims: a buffer
        # that is first visited in the loop may also be used outside of it.
        is_symbolic = (
            is_invariant
            and const_value(extent) is None
            and not set(free_vars(extent)) & set(self.func.scalars)
        )
        conditions = [extent > 0] if is_symbolic else []
        with self.analyzer.assume(*conditions):
            if is_invariant:
                self.analyzer.bind(var, self.analyzer.simplify(begin), self.analyzer.simplify(extent))
            yield

    @contextmanager
    def under(self, cond: Expr, body: Stmt) -> Iterator[None]:
        """Return a scope in which a condition holds. Parts that the body may invalidate are not recorded."""
        with self.analyzer.assume(self.unchanged_parts(cond, body)):
            yield

    @contextmanager
    def under_negation(self, cond: Expr, body: Stmt) -> Iterator[None]:
        """Return a scope in which a condition does not hold."""
        if cond.dtype.lanes > 1 or not self.memory.preserves(body, cond):
            yield
            return
        with self.analyzer.assume(~cond):
            yield

    def unchanged_parts(self, cond: Expr, body: Stmt) -> Expr:
        """Return the parts of a conjunction that the writes of a statement cannot change."""
        if cond.dtype.lanes > 1:
            return logical_and()
        if not loads_in(cond):
            return cond
        return logical_and(*(part for part in conjuncts(cond) if self.memory.preserves(body, part)))


__all__ = ["Walker"]
