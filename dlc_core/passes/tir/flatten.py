"""Buffers of several dims to one: every access gets its element offset, simplified, as its only index."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dlc_core.arith import Analyzer
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.expr import Const, Expr, Load, Var, const, load, loads_in, substitute, transform
from dlc_core.tir.stmt import Alloc, Eval, For, If, Let, PrimFunc, Seq, Stmt, Store, View, While, seq


def flatten_and_simplify(func: PrimFunc) -> PrimFunc:
    """One walk that flattens buffers and simplifies under the loops' ranges.

    Loops of one iteration vanish, loops of none with them; conditions that are proved vanish or take their
    side.
    """
    walker = _Flatten()
    for scalar in func.scalars:
        walker.analyzer.declare_dim(scalar, low=0)
    params = tuple(walker.flat(p) if isinstance(p, Buffer) else p for p in func.params)
    return replace(func, params=params, body=walker.stmt(func.body))


class _Flatten:
    def __init__(self) -> None:
        self.analyzer = Analyzer()
        self.buffers: dict[Buffer, Buffer] = {}
        self.values: dict[Var, Expr] = {}
        """Variables of the loops of one iteration that the walk is in."""

    def flat(self, buffer: Buffer) -> Buffer:
        found = self.buffers.get(buffer)
        if found is None:
            size = self.analyzer.simplify(self.settled(_reach(buffer)))
            found = Buffer(
                buffer.name,
                (size,),
                buffer.dtype,
                scope=buffer.scope,
                offset=self.settled(buffer.offset),
                align=buffer.align,
            )
            self.buffers[buffer] = found
        return found

    def index(self, buffer: Buffer, indices: Sequence[Expr]) -> Expr:
        """The element offset of an access; the buffer's own offset stays with the flat buffer."""
        total: Expr = const(0)
        for index, stride in zip(indices, buffer.element_strides(), strict=True):
            total = total + index * self.settled(stride)
        return self.analyzer.simplify(total)

    def settled(self, expr: Expr) -> Expr:
        return substitute(expr, self.values) if self.values else expr

    def expr(self, root: Expr) -> Expr:
        def visit(e: Expr) -> Expr | None:
            if isinstance(e, Load):
                return load(self.flat(e.buffer), (self.index(e.buffer, e.indices),))
            return None

        if isinstance(root, Const):
            return root
        root = self.settled(root)
        return self.analyzer.simplify(transform(root, visit) if loads_in(root) else root)

    def stmt(self, s: Stmt) -> Stmt:
        if isinstance(s, Store):
            value = self.expr(s.value)
            return Store(
                self.flat(s.buffer), (self.index(s.buffer, [self.expr(i) for i in s.indices]),), value
            )
        if isinstance(s, Seq):
            return seq(*(self.stmt(part) for part in s.stmts))
        if isinstance(s, For):
            return self.loop(s)
        if isinstance(s, If):
            return self.branch(s)
        if isinstance(s, Let):
            return Let(s.var, self.expr(s.value), self.stmt(s.body))
        if isinstance(s, Alloc):
            return Alloc(self.flat(s.buffer), self.stmt(s.body))
        if isinstance(s, View):
            return View(self.flat(s.buffer), self.flat(s.base), self.stmt(s.body))
        if isinstance(s, Eval):
            return Eval(self.expr(s.value))
        assert isinstance(s, While)
        return While(self.expr(s.cond), self.stmt(s.body))

    def loop(self, s: For) -> Stmt:
        begin, extent = self.expr(s.begin), self.expr(s.extent)
        if self.analyzer.prove(extent <= 0):
            return Seq(())
        with self.analyzer.scope():
            self.analyzer.bind(s.var, begin, extent)
            once = self.analyzer.prove_equal(extent, 1)
            if once:
                self.values[s.var] = begin
            body = self.stmt(s.body)
            self.values.pop(s.var, None)
        if once or (isinstance(body, Seq) and not body.stmts):
            return body
        return For(s.var, begin, extent, body, s.kind, s.thread, s.annotations)

    def branch(self, s: If) -> Stmt:
        cond = self.expr(s.cond)
        if self.analyzer.prove(cond):
            return self.stmt(s.then)
        if cond.dtype.lanes == 1 and self.analyzer.prove(~cond):
            return Seq(()) if s.orelse is None else self.stmt(s.orelse)
        with self.analyzer.assume(cond):
            then = self.stmt(s.then)
        if s.orelse is None:
            return If(cond, then)
        with self.analyzer.assume(~cond):
            return If(cond, then, self.stmt(s.orelse))


def _reach(buffer: Buffer) -> Expr:
    """Elements from index zero to the last one."""
    if buffer.strides is None:
        return buffer.num_elements()
    last: Expr = const(0)
    for size, stride in zip(buffer.shape, buffer.strides, strict=True):
        last = last + (size - 1) * stride
    return last + 1
