"""Loop partitioning: split loops where a condition on the loop variable changes, so that the long middle part
has no conditions.

for i in range(100):               for i in range(2): …both sides of the condition
    if i >= 2 and i < 98: hot      for i in range(2, 98): hot
    else: cold                     for i in range(98, 100): …both sides of the condition
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from dlc_core.decisions import Decision
from dlc_core.ir.dtype import BOOL, INDEX
from dlc_core.ir.expr import (
    Binary,
    Call,
    Const,
    Expr,
    Select,
    Var,
    conjuncts,
    const,
    const_value,
    free_vars,
    loads_in,
    maximum,
    minimum,
    post_order,
    substitute,
)
from dlc_core.passes.base import PassContext
from dlc_core.passes.heuristics import CONTROL
from dlc_core.passes.tir.base import PrimFuncPass
from dlc_core.passes.tir.walk import Walker
from dlc_core.schedule.tree import EMPTY_STMT
from dlc_core.support.record import record
from dlc_core.tir.functor import bound_vars, exprs_of, rename_bound, stmts, transform_stmt
from dlc_core.tir.stmt import Block, Eval, For, If, PrimFunc, Stmt, Store, seq

PARTITION = "partition"
"""The annotation of a loop that is partitioned, whatever its kind and size (or not partitioned, if false)."""
SPLIT = Decision(
    "loops.partition",
    "Whether a loop is partitioned where a condition on its variable changes, or tests it in each iteration.",
    ("split", "predicated"),
)


@record(frozen=True)
class _DecidedRange:
    """A condition that has one value in all inner iterations if the loop variable is in [low, high)."""

    cond: Expr
    value: bool
    low: Expr | None = None
    high: Expr | None = None


class _Partition(Walker):
    def __init__(self, func: PrimFunc, max_steps: int, annotated: bool) -> None:
        super().__init__(func)
        self.max_steps = max_steps
        self.annotated = annotated

    def loop(self, s: For) -> Stmt:
        parts = self.parts(s) if self.is_partitioned(s) else None
        if parts is None:
            return super().loop(s)
        return seq(*(super(_Partition, self).loop(part) for part in parts))

    def is_partitioned(self, s: For) -> bool:
        if s.var.dtype is not INDEX or any(isinstance(x, Block) for x in stmts(s.body)):
            return False
        if PARTITION in s.annotations:
            return bool(s.annotations[PARTITION])
        steps = sum(isinstance(x, (Store, Eval)) for x in stmts(s.body))
        if self.annotated or s.kind != "serial":
            return False
        preferred = "split" if 2 * steps <= self.max_steps else "predicated"
        return SPLIT.choose(preferred, where=s.var.name) == "split"

    def parts(self, s: For) -> list[For] | None:
        """Split a loop before, inside and after the range in which conditions are known; None if there is no
        such range."""
        decided_range = [k for cond in _conditions(s) if (k := self.decided_range(cond, s)) is not None]
        if not decided_range:
            return None
        begin, end = s.begin, s.begin + s.extent
        low, high = begin, end
        for one in decided_range:
            low = low if one.low is None else maximum(low, one.low)
            high = high if one.high is None else minimum(high, one.high)
        low = self.analyzer.simplify(minimum(low, end))
        high = self.analyzer.simplify(maximum(high, low))
        middle = _with_decided(s.body, {one.cond: const(one.value, BOOL) for one in decided_range})
        notes = {key: value for key, value in s.annotations.items() if key != PARTITION}
        parts: list[For] = []
        for first, extent, body in (
            (begin, low - begin, s.body),
            (low, high - low, middle),
            (high, end - high, s.body),
        ):
            extent = self.analyzer.simplify(extent)
            if body is middle and (not self.fixed(extent) or self.analyzer.prove(extent <= 0)):
                return None
            if self.analyzer.prove(extent <= 0):
                continue
            part: Stmt = replace(s, begin=first, extent=extent, body=body, annotations=notes)
            part = rename_bound(part) if parts else part
            assert isinstance(part, For)
            parts.append(part)
        return parts

    def fixed(self, extent: Expr) -> bool:
        """Whether an extent is the same each time the loop runs."""
        return all(v in self.func.scalars for v in free_vars(extent))

    def decided_range(self, cond: Expr, s: For) -> _DecidedRange | None:
        """Return the range in which a comparison is known to hold or known to fail, whichever is longer."""
        if not isinstance(cond, Binary) or cond.a.dtype is not INDEX or loads_in(cond):
            return None
        if s.var not in free_vars(cond):
            return None
        if cond.op in ("eq", "ne"):
            return self.except_end(cond, s)
        difference = _below_zero(cond)
        if difference is None:
            return None
        inner = {x.var: (x.begin, x.extent) for x in stmts(s.body) if isinstance(x, For)}
        if any(x.dtype is not INDEX or loads_in(*ends) for x, ends in inner.items()):
            return None
        with self.inside(s.var, s.begin, s.extent, s.body):
            ends = self.analyzer.bounds(difference, inner)
        bound = {v for x in stmts(s.body) for v in bound_vars(x)}
        if ends is None or not bound.isdisjoint(free_vars(*ends)):
            return None
        true, false = self.where_negative(cond, ends[1], s.var), self.where_positive(cond, ends[0], s.var)
        if true is None or false is None:
            return true or false
        return false if self.length(false, s) > self.length(true, s) else true

    def where_negative(self, cond: Expr, greatest: Expr, var: Var) -> _DecidedRange | None:
        """Return the range in which the upper bound `factor * var + rest` of a difference is negative."""
        found = self.linear(greatest, var)
        if found is None:
            return None
        factor, rest = found
        if factor > 0:
            return _DecidedRange(cond, True, high=(-rest - 1) // factor + 1)
        return _DecidedRange(cond, True, low=rest // -factor + 1)

    def where_positive(self, cond: Expr, least: Expr, var: Var) -> _DecidedRange | None:
        """Return the range in which the lower bound `factor * var + rest` of a difference is not negative."""
        found = self.linear(least, var)
        if found is None:
            return None
        factor, rest = found
        if factor > 0:
            return _DecidedRange(cond, False, low=(-rest + (factor - 1)) // factor)
        return _DecidedRange(cond, False, high=rest // -factor + 1)

    def linear(self, expr: Expr, var: Var) -> tuple[int, Expr] | None:
        """Return (factor, rest) of an expression `factor * var + rest`; None if it has no such form."""
        factor = self.analyzer.coefficient_of(expr, var)
        value = None if factor is None else const_value(factor)
        return (value, substitute(expr, {var: const(0)})) if value else None

    def except_end(self, cond: Binary, s: For) -> _DecidedRange | None:
        """Return the range without the first or the last iteration if an equality holds in that one alone."""
        bound = {v for x in stmts(s.body) for v in bound_vars(x)}
        if not bound.isdisjoint(free_vars(cond)):
            return None
        point = self.analyzer.solve(cond.a - cond.b, const(0), s.var)
        if point is None or self.analyzer.coefficient_of(cond.a - cond.b, s.var) not in (const(1), const(-1)):
            return None
        value = cond.op == "ne"
        if self.analyzer.prove_equal(point, s.begin):
            return _DecidedRange(cond, value, low=point + 1)
        if self.analyzer.prove_equal(point + 1, s.begin + s.extent):
            return _DecidedRange(cond, value, high=point)
        return None

    def length(self, decided_range: _DecidedRange, s: For) -> float:
        """Return the constant number of iterations of a range; 0 if it is symbolic."""
        begin, end = s.begin, s.begin + s.extent
        low = begin if decided_range.low is None else maximum(begin, decided_range.low)
        high = end if decided_range.high is None else minimum(end, decided_range.high)
        return const_value(self.analyzer.simplify(high - low)) or 0


def _below_zero(cond: Binary) -> Expr | None:
    """Return an expression that is negative if and only if a comparison holds."""
    if cond.op in ("lt", "le"):
        return cond.a - cond.b - int(cond.op == "le")
    if cond.op in ("gt", "ge"):
        return cond.b - cond.a - int(cond.op == "ge")
    return None


def _conditions(s: For) -> list[Expr]:
    """Return the distinct comparisons in the conditions of a loop's body."""
    found: dict[Expr, None] = {}
    for stmt in stmts(s.body):
        conds = [stmt.cond] if isinstance(stmt, If) else []
        conds += [
            e.children[0]
            for e in post_order(*exprs_of(stmt))
            if isinstance(e, Select) or (isinstance(e, Call) and e.name == "if_then_else")
        ]
        found.update((part, None) for cond in conds for part in conjuncts(cond))
    return list(found)


def _with_decided(body: Stmt, decided_range: Mapping[Expr, Expr]) -> Stmt:
    """Replace known conditions in a body by their values, and remove dead branches."""

    def stmt(s: Stmt) -> Stmt | None:
        if not isinstance(s, If) or not isinstance(s.cond, Const):
            return None
        return s.then if s.cond.value else s.orelse or EMPTY_STMT

    return transform_stmt(body, stmt_fn=stmt, expr_fn=decided_range.get)


@record(frozen=True)
class PartitionLoops(PrimFuncPass):
    """Split loops where a condition on the loop variable changes, so that the long part has no conditions.

    It splits serial loops of at most `max_steps / 2` stores and calls, and any loop with the annotation
    `partition`. With `annotated=True` it splits only annotated loops. `max_steps=None` takes the heuristic
    `control.split_steps`.

    Before:

        @T.prim_func
        def f(A: T.Buffer((100,), "float32"), B: T.Buffer((104,), "float32")):
            for i in range(104):
                B[i] = T.if_then_else(i >= 2 and i < 102, A[i - 2], T.float32(0.0))

    After:

        @T.prim_func
        def f(A: T.Buffer((100,), "float32"), B: T.Buffer((104,), "float32")):
            for i in range(2):
                B[i] = T.if_then_else(i >= 2 and i < 102, A[i - 2], T.float32(0.0))
            for i in range(2, 102):
                B[i] = A[i - 2]
            for i in range(102, 104):
                B[i] = T.if_then_else(i >= 2 and i < 102, A[i - 2], T.float32(0.0))
    """

    name: ClassVar[str] = "partition_loops"
    max_steps: int | None = None
    annotated: bool = False

    def run_function(self, func: PrimFunc, context: PassContext) -> PrimFunc:
        most = CONTROL.split_steps if self.max_steps is None else self.max_steps
        return _Partition(func, most, self.annotated).rebuilt()


__all__ = ["PARTITION", "PartitionLoops"]
