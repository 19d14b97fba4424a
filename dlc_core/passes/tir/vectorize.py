"""Lower vectorised loops to vector expressions: the loop variable becomes a Ramp, and contiguous accesses
become vector accesses.

Values that are equal in all lanes stay scalar. A condition that holds for an interval of lanes, such as the
guard of a tail, is first tested for the whole vector. If any other condition differs between lanes, a select
chooses the result of each lane, and masked lanes write back the old element. This is done only if these
elements are known to exist and are not accessed by another thread. Code that vectors cannot express (an
allocation, an inner loop or a condition that differs per lane) runs lane by lane in a serial loop.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import ClassVar

from dlc_core.arith import Analyzer
from dlc_core.diag import CodegenError
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.dtype import BOOL, INDEX
from dlc_core.ir.expr import (
    Binary,
    Call,
    Expr,
    Load,
    Var,
    binary,
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
from dlc_core.passes.tir.safety import in_bounds, may_fail
from dlc_core.support.record import record
from dlc_core.tir.failures import parameters_of
from dlc_core.tir.functor import (
    exprs_of,
    free_vars_stmt,
    rename_bound,
    stmts,
    stmts_of,
    stores_in,
    substitute_stmt,
    transform_each,
)
from dlc_core.tir.stmt import LANES, Alloc, Eval, For, If, Let, PrimFunc, Seq, Stmt, Store, While, seq


def vectorize_loops(func: PrimFunc, lanes: bool = False) -> PrimFunc:
    """Replace each loop of kind "vectorized" by vector operations of its constant extent.

    With `lanes`, loops with the annotation `LANES` are vectorised too. Raises CodegenError for an extent that
    is not constant, and for lanes that store to the same element.
    """
    facts = _LoopFacts(func)

    def visit(loop: For) -> Stmt | None:
        is_vectorized = loop.kind == "vectorized" or (lanes and LANES in loop.annotations)
        return _vectorized(loop, facts) if is_vectorized else None

    return replace(func, body=transform_each(func.body, For, visit))


class _LoopFacts:
    """Facts about a program's loops, computed on demand."""

    def __init__(self, func: PrimFunc) -> None:
        self.func = func

    @cached_property
    def analyzer(self) -> Analyzer:
        """An analyzer with the ranges of all loops. Variables are unique in a program."""
        analyzer = Analyzer()
        for scalar in self.func.scalars:
            if scalar.dtype.is_int:
                analyzer.declare_dim(scalar, low=0)
        for s in stmts(self.func.body):
            if isinstance(s, For) and s.var.dtype is INDEX and not loads_in(s.begin, s.extent):
                analyzer.bind(s.var, s.begin, s.extent)
        return analyzer

    @cached_property
    def threaded(self) -> set[Var]:
        """Variables of loops inside of parallel loops and thread loops."""
        outer = [s for s in stmts_of(self.func.body, For) if s.kind in ("parallel", "thread")]
        return {s.var for loop in outer for s in stmts_of(loop.body, For)}

    def records_failure(self, s: If) -> bool:
        """Whether a statement does nothing but write the record of failed checks."""
        found = parameters_of(self.func)
        written = stores_in(s)
        return found is not None and bool(written) and all(each.buffer is found[0] for each in written)

    def may_write_back(self, s: Store, var: Var) -> bool:
        """Whether a masked lane may store back the old value of its element."""
        factors = [self.analyzer.coefficient_of(i, var) for i in s.indices if i.dtype is INDEX]
        return (
            s.buffer in self.func.buffers
            and var not in self.threaded
            and any(f is not None and const_value(f) for f in factors)
            and in_bounds(s.buffer, s.indices, self.analyzer)
        )


def _vectorized(stmt: For, facts: _LoopFacts) -> Stmt:
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
        # The body is already vectorised. Vectors do not nest, so that this loop runs serially.
        return replace(stmt, kind="serial")
    return _Vectorize(stmt, lanes, facts).stmt(stmt.body)


class _Vectorize:
    """Rewrites the body of one loop."""

    def __init__(self, loop: For, lanes: int, facts: _LoopFacts) -> None:
        self.facts = facts
        self.mask: Expr | None = None
        """The lanes that run; None if all do."""
        self.var = loop.var
        self.begin = loop.begin
        self.lanes = lanes
        self.lane_vars: dict[Var, Expr] = {loop.var: ramp(loop.begin, 1, lanes)}
        self.analyzer = Analyzer()

    def varies(self, *exprs: Expr) -> bool:
        return any(v in self.lane_vars for v in free_vars(*exprs))

    def index(self, index: Expr) -> Expr:
        """Return an index as a Ramp if it is affine in the loop variable, else as a vector of its values."""
        if not self.varies(index):
            return index
        if all(v is self.var or v not in self.lane_vars for v in free_vars(index)):
            factor = self.analyzer.coefficient_of(index, self.var)
            if factor is not None and not any(self.varies(e) for e in loads_in(index)):
                return ramp(substitute(index, {self.var: self.begin}), factor, self.lanes)
        return self.expr(index)

    def expr(self, root: Expr) -> Expr:
        """Return the vector of an expression's values, or the expression itself if all lanes are equal."""
        if not self.varies(root):
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
        if isinstance(s, For) and not self.varies(s.begin, s.extent):
            return replace(s, body=self.stmt(s.body))
        if isinstance(s, While) and not self.varies(s.cond):
            return While(s.cond, self.stmt(s.body))
        if isinstance(s, Eval) and not self.varies(s.value):
            return s
        if isinstance(s, Let):
            value = self.guarded(self.expr(s.value))
            if value.dtype.lanes == 1:
                return Let(s.var, value, self.stmt(s.body))
            fresh = Var(s.var.name, value.dtype)
            self.lane_vars[s.var] = fresh
            return Let(fresh, value, self.stmt(s.body))
        if isinstance(s, If):
            # The first lane whose check fails is recorded.
            return self.lane_by_lane(s) if self.facts.records_failure(s) else self.branch(s)
        return self.lane_by_lane(s)

    def store(self, s: Store) -> Stmt:
        if not self.varies(*s.indices):
            if self.varies(s.value):
                raise CodegenError(
                    f"the lanes of loop {self.var.name!r} all store to one element of {s.buffer.name}",
                    hint="rfactor the reduction before vectorising its axis",
                )
            return s
        value, indices = self.expr(s.value), tuple(self.index(i) for i in s.indices)
        if value.dtype.lanes == 1:
            value = broadcast(value, self.lanes)
        if self.mask is not None:
            value = call("if_then_else", (self.mask, value, load(s.buffer, indices)), value.dtype)
        return Store(s.buffer, indices, value)

    def guarded(self, value: Expr) -> Expr:
        """Compute a value that may fail under the mask only; masked lanes get zero."""
        if self.mask is None or not may_fail(value):
            return value
        zero = broadcast(const(0, value.dtype.scalar), self.lanes)
        wide = value if value.dtype.lanes > 1 else broadcast(value, self.lanes)
        return call("if_then_else", (self.mask, wide, zero), wide.dtype)

    def branch(self, s: If) -> Stmt:
        if not self.varies(s.cond):
            return If(s.cond, self.stmt(s.then), None if s.orelse is None else self.stmt(s.orelse))
        end_lanes = self.end_lanes(s.cond) if self.mask is None else None
        if end_lanes is None and self.can_mask(s):
            return self.masked(s)
        slow = self.lane_by_lane(s)
        return slow if end_lanes is None else If(end_lanes, self.stmt(s.then), slow)

    def can_mask(self, s: Stmt) -> bool:
        """Whether a statement can run under a mask, in which masked lanes store back old values."""
        if isinstance(s, Store):
            fixed = not any(may_fail(i) for i in s.indices)
            return fixed and self.varies(*s.indices) and self.facts.may_write_back(s, self.var)
        if isinstance(s, Seq):
            return all(map(self.can_mask, s.stmts))
        if isinstance(s, If):
            sides = [s.then] if s.orelse is None else [s.then, s.orelse]
            return (self.varies(s.cond) or not may_fail(s.cond)) and all(map(self.can_mask, sides))
        if isinstance(s, For):
            return (
                not self.varies(s.begin, s.extent)
                and not loads_in(s.begin, s.extent)
                and self.can_mask(s.body)
            )
        return isinstance(s, Let) and s.value.dtype.kind != "handle" and self.can_mask(s.body)

    def masked(self, s: If) -> Stmt:
        """Run both sides of a condition under masks. The mask is computed once, before either side writes."""
        before = self.mask
        cond = self.guarded(self.expr(s.cond))
        mask = Var("mask", cond.dtype)
        self.mask = mask if before is None else binary("and", before, mask)
        then = self.stmt(s.then)
        orelse = None
        if s.orelse is not None:
            self.mask = ~mask if before is None else binary("and", before, ~mask)
            orelse = self.stmt(s.orelse)
        self.mask = before
        return Let(mask, cond, seq(then, orelse))

    def end_lanes(self, cond: Expr) -> Expr | None:
        """Return the condition for the first and the last lane, if it implies the condition in all lanes."""
        work = [cond]
        total: Expr = const(True, BOOL)
        while work:
            item = work.pop()
            if isinstance(item, Binary) and item.op == "and":
                work += (item.b, item.a)
                continue
            if not self.varies(item):
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
            tested: tuple[int, ...] = (0, self.lanes - 1)
            if known is not None:
                tested = tested[1:] if (known > 0) == (item.op in ("lt", "le")) else tested[:1]
            for lane in tested:
                total = logical_and(
                    total, self.analyzer.simplify(substitute(item, {self.var: self.begin + lane}))
                )
        return total

    def lane_by_lane(self, s: Stmt) -> Stmt:
        """Run a statement in a serial loop over the lanes: always legal, but slow. Vectors pass by memory."""
        var = Var(self.var.name)
        values: dict[Var, Expr] = {self.var: var}
        kept = [
            (v, self.lane_vars[v]) for v in free_vars_stmt(s) if v is not self.var and v in self.lane_vars
        ]
        for name, _ in kept:
            values[name] = Var(name.name, name.dtype)
        buffers = [Buffer(name.name, (self.lanes,), name.dtype, scope="local") for name, _ in kept]
        body = substitute_stmt(s, values)
        for (name, _), buffer in zip(kept, buffers, strict=True):
            copy = values[name]
            assert isinstance(copy, Var)
            body = Let(copy, load(buffer, (var - self.begin,)), body)
        result: Stmt = rename_bound(For(var, self.begin, const(self.lanes), body))
        for (_, vector), buffer in zip(kept, buffers, strict=True):
            result = Alloc(buffer, seq(Store(buffer, (ramp(0, 1, self.lanes),), vector), result))
        return result


@record(frozen=True)
class VectorizeLoops(PrimFuncPass):
    """Lower vectorised loops to vector expressions. On cores with vectors it also lowers loops that are
    annotated as lanes.

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

    def run_function(self, func: PrimFunc, context: PassContext) -> PrimFunc:
        machine = None if context.target is None else context.target.describe()
        cores = machine is not None and machine.lanes(32) > 1 and not machine.thread_axes
        return vectorize_loops(func, cores)
