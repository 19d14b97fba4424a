"""Vectorised loops to vector expressions: the loop variable becomes a Ramp, contiguous accesses become vector
accesses.

What differs in no lane stays scalar.  What vectors cannot say (a private allocation, an inner loop or a
condition of a lane's own) runs lane by lane in a serial loop; a condition that is an interval of lanes, as
those that guard the end of a range are, is tested for the whole vector first.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from dlc_core.arith import Analyzer
from dlc_core.diag import CodegenError
from dlc_core.ir.dtype import BOOL, INDEX
from dlc_core.ir.expr import (
    Binary,
    Call,
    Expr,
    Load,
    Var,
    broadcast,
    call,
    const,
    const_value,
    free_vars,
    load,
    loads_in,
    logical_and,
    post_order,
    ramp,
    substitute,
)
from dlc_core.passes.base import PassContext
from dlc_core.passes.tir.base import PrimFuncPass
from dlc_core.tir.functor import exprs_of, rename_bound, stmts, substitute_stmt, transform_stmt
from dlc_core.tir.stmt import Eval, For, If, Let, PrimFunc, Seq, Stmt, Store, While, seq


def vectorize_loops(func: PrimFunc) -> PrimFunc:
    """Every loop of kind "vectorized" as vectors of its constant extent.

    Raises CodegenError for an extent that is not constant and for lanes that store to one element.
    """
    return replace(func, body=transform_stmt(func.body, stmt_fn=_visit))


def _visit(stmt: Stmt) -> Stmt | None:
    if not isinstance(stmt, For) or stmt.kind != "vectorized":
        return None
    lanes = const_value(stmt.extent)
    if lanes is None:
        raise CodegenError(
            f"loop {stmt.var.name!r} of extent {stmt.extent} cannot be vectorised",
            hint="split it by a constant first",
        )
    if lanes == 0:
        return Seq(())
    if lanes == 1:
        return substitute_stmt(stmt.body, {stmt.var: stmt.begin})
    if any(e.dtype.lanes > 1 for s in stmts(stmt.body) for e in exprs_of(s)):
        # Lanes of lanes: the inner vectors stay, this loop runs them one after another.
        return replace(stmt, kind="serial")
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
            if factor is not None and not any(self.uses(e) for e in loads_in(index)):
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
                wide = max(x.dtype.lanes for x in (cond, a, b))
                memo[e] = call("if_then_else", (cond, a, b), e.dtype.with_lanes(wide))
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
        if isinstance(s, While) and not self.uses(s.cond):
            return While(s.cond, self.stmt(s.body))
        if isinstance(s, Eval) and not self.uses(s.value):
            return s
        if isinstance(s, Let):
            value = self.expr(s.value)
            if value.dtype.lanes == 1:
                return Let(s.var, value, self.stmt(s.body))
            fresh = Var(s.var.name, value.dtype)
            self.lane_vars[s.var] = fresh
            return Let(fresh, value, self.stmt(s.body))
        if isinstance(s, If):
            return self.branch(s)
        return self.lane_by_lane(s)

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
        ends = self.ends(s.cond)
        slow = self.lane_by_lane(s)
        return slow if ends is None else If(ends, self.stmt(s.then), slow)

    def ends(self, cond: Expr) -> Expr | None:
        """The condition for the first and the last lane, where those between follow from the two."""
        work = [cond]
        total: Expr = const(True, BOOL)
        while work:
            item = work.pop()
            if isinstance(item, Binary) and item.op == "and":
                work += (item.b, item.a)
                continue
            if not self.uses(item):
                total = logical_and(total, item)
                continue
            if (
                not isinstance(item, Binary)
                or item.op not in ("lt", "le", "gt", "ge")
                or item.a.dtype is not INDEX
                or any(v is not self.var and v in self.lane_vars for v in free_vars(item))
            ):
                return None
            factor = self.analyzer.coefficient_of(item.a - item.b, self.var)
            if factor is None:
                return None
            known = const_value(factor)
            deciding: tuple[int, ...] = (0, self.lanes - 1)
            if known is not None:
                deciding = deciding[1:] if (known > 0) == (item.op in ("lt", "le")) else deciding[:1]
            for lane in deciding:
                total = logical_and(
                    total, self.analyzer.simplify(substitute(item, {self.var: self.begin + lane}))
                )
        return total

    def lane_by_lane(self, s: Stmt) -> Stmt:
        """A serial loop over the lanes: always right, never fast."""
        if any(v is not self.var for v in self.lane_vars):
            raise CodegenError(
                f"a {type(s).__name__} that differs between the lanes of loop {self.var.name!r} "
                "follows a vector Let"
            )
        var = Var(self.var.name)
        return rename_bound(For(var, self.begin, const(self.lanes), substitute_stmt(s, {self.var: var})))


@dataclass(frozen=True)
class VectorizeLoops(PrimFuncPass):
    """Vectorised loops to vector expressions.

    Before:

        @T.prim_func
        def f(A: T.Buffer((30,), "float32"), B: T.Buffer((30,), "float32")):
            for i in range(4):
                for j in T.vectorized(8):
                    if i * 8 + j < 30:
                        B[i * 8 + j] = A[i * 8 + j] * T.float32(2.0)

    After:

        @T.prim_func
        def f(A: T.Buffer((30,), "float32"), B: T.Buffer((30,), "float32")):
            for i in range(4):
                if i < 3:
                    B[T.ramp(i * 8, 1, 8)] = A[T.ramp(i * 8, 1, 8)] * T.broadcast(T.float32(2.0), 8)
                else:
                    for j in range(8):
                        if i * 8 + j < 30:
                            B[i * 8 + j] = A[i * 8 + j] * T.float32(2.0)
    """

    name: ClassVar[str] = "vectorize_loops"
    place: ClassVar[tuple[float, ...]] = (300,)

    def run_function(self, func: PrimFunc, context: PassContext) -> PrimFunc:
        return vectorize_loops(func)
