"""Index arithmetic in 32 bits, if bounds prove that the values fit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import ClassVar

from dlc_core.ir.buffer import Buffer
from dlc_core.ir.dtype import INDEX, DType, dtype
from dlc_core.ir.expr import (
    COMPARE,
    Binary,
    Broadcast,
    Call,
    Cast,
    Const,
    Expr,
    Load,
    Ramp,
    Select,
    Unary,
    Var,
    binary,
    broadcast,
    cast_to,
    const,
    load,
    ramp,
)
from dlc_core.passes.base import PassContext
from dlc_core.passes.tir.base import PrimFuncPass
from dlc_core.passes.tir.walk import Walker
from dlc_core.support.record import record
from dlc_core.tir.stmt import For, Let, PrimFunc, Stmt


class _Narrow(Walker):
    """Analyses the program as it was: every variable keeps its range under its old name."""

    def __init__(self, func: PrimFunc, to: DType) -> None:
        super().__init__(func)
        self.to = to
        self.low, self.high = to.int_range()
        self.vars: dict[Var, Var] = {}
        """Variables that have become narrow ones."""

    def fits(self, e: Expr) -> bool:
        """Whether all values of an index expression fit the narrow type."""
        low, high = self.analyzer.const_bounds(e)
        return self.low <= low and high <= self.high

    # Expressions

    def narrow(self, e: Expr) -> Expr | None:
        """Compute an index expression in the narrow type; None unless all its parts fit."""
        if isinstance(e, Ramp):
            ends = e.base, e.base + e.stride * (e.lanes - 1)
            base, stride = self.narrow(e.base), self.narrow(e.stride)
            if base is None or stride is None or not all(map(self.fits, ends)):
                return None
            return ramp(base, stride, e.lanes)
        if isinstance(e, Broadcast):
            value = self.narrow(e.value)
            return None if value is None else broadcast(value, e.lanes)
        if e.dtype is not INDEX or not self.fits(e):
            return None
        if isinstance(e, Const):
            return const(e.value, self.to)
        if isinstance(e, Var):
            return self.vars[e] if e in self.vars else cast_to(self.to, e)
        if isinstance(e, (Binary, Unary)):
            inner = [self.narrow(c) for c in e.children]
            return None if None in inner else e.rebuild(_not_none(inner))
        if isinstance(e, Select):
            sides = self.narrow(e.a), self.narrow(e.b)
            return None if None in sides else e.rebuild((self.expr(e.cond), *_not_none(sides)))
        if isinstance(e, Cast) and e.a.dtype.is_int and self.holds(e.a.dtype):
            return cast_to(self.to, self.expr(e.a))
        return None

    def holds(self, type_: DType) -> bool:
        low, high = type_.int_range()
        return self.low <= low and high <= self.high

    def expr(self, e: Expr) -> Expr:
        if not e.children and not isinstance(e, Var):
            return e
        if e.dtype.scalar is INDEX:
            narrow = self.narrow(e)
            if narrow is not None:
                return cast_to(e.dtype, narrow)
        if isinstance(e, Binary) and e.op in COMPARE and e.a.dtype.scalar is INDEX:
            sides = self.narrow(e.a), self.narrow(e.b)
            if None not in sides:
                return binary(e.op, *_not_none(sides))
        if isinstance(e, Cast) and e.a.dtype.scalar is INDEX:
            inner = self.narrow(e.a)
            if inner is not None:
                return cast_to(e.dtype, inner)
        if isinstance(e, Load):
            return load(e.buffer, self.index(e.buffer, e.indices))
        if isinstance(e, Call) and e.name.startswith("vector_shuffle"):
            return e.rebuild([self.expr(e.args[0]), *e.args[1:]])
        return e.rebuild([self.expr(c) for c in e.children])

    def index(self, buffer: Buffer, indices: Sequence[Expr]) -> tuple[Expr, ...]:
        narrow = [self.narrow(i) if not isinstance(i, Const) else None for i in indices]
        return tuple(self.expr(i) if n is None else n for i, n in zip(indices, narrow, strict=True))

    # Statements

    def loop(self, s: For) -> Stmt:
        ends = self.narrow(s.begin), self.narrow(s.extent)
        if (
            s.kind == "thread"
            or s.var.dtype is not INDEX
            or None in ends
            or not self.fits(s.begin + s.extent)
        ):
            return super().loop(s)
        var = self.vars[s.var] = Var(s.var.name, self.to)
        begin, extent = _not_none(ends)
        with self.inside(s.var, s.begin, s.extent, s.body):
            body = self.stmt(s.body)
        return replace(s, var=var, begin=begin, extent=extent, body=body)

    def let(self, s: Let) -> Callable[[Stmt], Stmt]:
        value = self.narrow(s.value)
        if value is None or s.var.dtype is not INDEX:
            return super().let(s)
        low, high = self.analyzer.const_bounds(s.value)
        var = self.vars[s.var] = Var(s.var.name, self.to)
        self.analyzer.bind(s.var, int(low), int(high - low + 1))
        return partial(Let, var, value)


def _not_none(parts: Sequence[Expr | None]) -> list[Expr]:
    return [part for part in parts if part is not None]


@record(frozen=True)
class NarrowIndices(PrimFuncPass):
    """Compute loop variables, indices and comparisons in integers of `bits` bits, if bounds prove that they
    fit.

    Before:

        @T.prim_func
        def f(A: T.Buffer((64, n), "float32"), n: T.int64):
            for i, j in T.grid(64, n):
                if i * 2 < 100:
                    A[i, j] = T.cast(i * 3, "float32")

    After:

        @T.prim_func
        def f(A: T.Buffer((64, n), "float32"), n: T.int64):
            for i in range(T.int32(64)):
                for j in range(n):
                    if i * 2 < 100:
                        A[i, j] = T.cast(i * 3, "float32")
    """

    name: ClassVar[str] = "narrow_indices"
    bits: int = 32

    def run_function(self, func: PrimFunc, context: PassContext) -> PrimFunc:
        return _Narrow(func, dtype(f"int{self.bits}")).rebuilt()


__all__ = ["NarrowIndices"]
