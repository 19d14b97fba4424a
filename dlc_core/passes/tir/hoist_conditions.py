"""Loop unswitching: test loop-invariant conditions before the loop."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from dlc_core.decisions import Decision
from dlc_core.ir.expr import Expr, Var, free_vars, loads_in
from dlc_core.passes.base import PassContext
from dlc_core.passes.heuristics import CONTROL
from dlc_core.passes.tir.base import PrimFuncPass
from dlc_core.passes.tir.effects import is_pure
from dlc_core.passes.tir.safety import is_safe
from dlc_core.passes.tir.walk import Walker
from dlc_core.schedule.tree import EMPTY_STMT, is_empty
from dlc_core.support.record import record
from dlc_core.tir.functor import bound_vars, rename_bound, stmts
from dlc_core.tir.stmt import Alloc, Eval, For, If, Let, PrimFunc, Seq, Stmt, Store, View, seq

UNSWITCH = Decision(
    "loops.unswitch",
    "Whether a condition that a loop does not change is tested before it, or in each iteration.",
    ("hoisted", "inside"),
)


class _Hoister(Walker):
    def __init__(self, func: PrimFunc, max_copied: int) -> None:
        super().__init__(func)
        self.max_copied = max_copied

    def loop(self, s: For) -> Stmt:
        result = super().loop(s)
        assert isinstance(result, For)
        return self.hoisted(result)

    def hoisted(self, loop: For) -> Stmt:
        """Hoist the conditions that can be tested before a loop."""
        branch = None if loop.kind == "thread" else self.movable(loop)
        if branch is None:
            return loop
        then = self.hoisted(replace(loop, body=_with_side(loop.body, branch, branch.then)))
        orelse = _with_side(loop.body, branch, branch.orelse)
        if is_empty(orelse):
            return If(branch.cond, then)
        return If(branch.cond, then, rename_bound(self.hoisted(replace(loop, body=orelse))))

    def movable(self, loop: For) -> If | None:
        """Return a branch in a loop's body whose condition may be hoisted."""
        around: list[Stmt] = []
        body = loop.body
        while isinstance(body, (Alloc, View, Let)):
            around.append(body)
            body = body.body
        parts = body.stmts if isinstance(body, Seq) else (body,)
        for branch in parts:
            if isinstance(branch, If) and self.is_invariant(branch.cond, loop, around):
                others = [part for part in parts if part is not branch]
                if any(self.memory.written(part) is None for part in others):
                    continue
                fits = sum(map(_count_steps, others)) <= self.max_copied
                where = f"{loop.var.name} {branch.cond}"
                if UNSWITCH.choose("hoisted" if fits else "inside", where=where) == "hoisted":
                    return branch
        return None

    def is_invariant(self, cond: Expr, loop: For, around: list[Stmt]) -> bool:
        """Whether a condition is loop-invariant, and safe to evaluate even if the loop has no iterations."""
        bound: set[Var] = {loop.var, *(v for s in around for v in bound_vars(s))}
        own = {s.buffer for s in around if isinstance(s, (Alloc, View))}
        return (
            cond.dtype.lanes == 1
            and bound.isdisjoint(free_vars(cond))
            and own.isdisjoint(e.buffer for e in loads_in(cond))
            and is_pure(cond)
            and self.memory.preserves(loop, cond)
            and is_safe(cond, self.analyzer)
        )


def _count_steps(stmt: Stmt) -> int:
    return sum(isinstance(s, (Store, Eval)) for s in stmts(stmt))


def _with_side(body: Stmt, branch: If, side: Stmt | None) -> Stmt:
    """Replace a branch in a loop's body by one of its sides. The result is empty if it has no effect."""
    if isinstance(body, Seq):
        return seq(*((side if part is branch else part) for part in body.stmts))
    if body is branch:
        return EMPTY_STMT if side is None else side
    assert isinstance(body, (Alloc, View, Let))
    inner = _with_side(body.body, branch, side)
    if is_empty(inner) and (not isinstance(body, Let) or is_pure(body.value)):
        return EMPTY_STMT
    return replace(body, body=inner)


@record(frozen=True)
class HoistConditions(PrimFuncPass):
    """Test loop-invariant conditions before the loop (loop unswitching).

    The other statements of the loop body are then copied for both outcomes, if they have at most `max_copied`
    stores and calls (None: the heuristic `control.max_copied`).

    Before:

        @T.prim_func
        def f(A: T.Buffer((8, 8), "float32"), n: T.int64):
            for i in range(8):
                for j in range(8):
                    if i < n:
                        A[i, j] = T.float32(1.0)

    After:

        @T.prim_func
        def f(A: T.Buffer((8, 8), "float32"), n: T.int64):
            for i in range(8):
                if i < n:
                    for j in range(8):
                        A[i, j] = T.float32(1.0)
    """

    name: ClassVar[str] = "hoist_conditions"
    max_copied: int | None = None

    def run_function(self, func: PrimFunc, context: PassContext) -> PrimFunc:
        return _Hoister(func, CONTROL.max_copied if self.max_copied is None else self.max_copied).rebuilt()


__all__ = ["HoistConditions"]
