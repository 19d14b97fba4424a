"""Loop unrolling."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from dlc_core.cancel import checkpoint
from dlc_core.decisions import Decision
from dlc_core.diag import CodegenError
from dlc_core.ir.expr import Call, Expr, const_value, post_order
from dlc_core.passes.base import PassContext
from dlc_core.passes.heuristics import CONTROL
from dlc_core.passes.tir.base import PrimFuncPass
from dlc_core.passes.tir.no_ops import remove_no_ops
from dlc_core.schedule.tree import with_children
from dlc_core.support.record import record
from dlc_core.tir.functor import (
    bound_vars,
    child_stmts,
    exprs_of,
    rename_bound,
    stmts,
    stmts_of,
    substitute_stmt,
    transform_each,
)
from dlc_core.tir.stmt import Eval, For, PrimFunc, Seq, Stmt, Store, While, seq

MAX_STEPS = "unroll_max_steps"
"""The annotation of a loop with the most stores and calls up to which it and inner loops are unrolled."""
MAX_COPIES = 1 << 16
"""The most iterations of unrolled loops in each other; the code of more would take minutes to compile."""
SMALL = Decision(
    "loops.unroll",
    "Whether small serial loops of constant extent are unrolled in addition to those of the schedule, "
    "and up to how many stores.",
    ("rolled", "unrolled"),
    has_values=True,
)


def unroll_loops(func: PrimFunc) -> PrimFunc:
    """Unroll every loop of kind "unrolled": one copy of the body per iteration; its extent must be constant.

    Conditions that are known in an iteration are folded, and dead code is removed.
    """
    unroll = _Unroll()
    unrolled = replace(func, body=unroll.rebuild(func.body))
    return remove_no_ops(unrolled) if unroll.resolved_choice else unrolled


def mark_small_loops(func: PrimFunc, max_steps: int = 0) -> PrimFunc:
    """Mark serial loops of constant extent as "unrolled", from the inside out.

    A loop is marked if it has at most `max_steps` stores and calls when unrolled. The annotation
    `unroll_max_steps` of a surrounding loop replaces this limit.
    """
    body = _marked(func.body, max_steps)[0]
    return func if body is func.body else replace(func, body=body)


def _marked(stmt: Stmt, limit: int) -> tuple[Stmt, int | None]:
    """Return the statement, and its number of stores and calls when unrolled; None if loops remain."""
    match stmt:
        case Store() | Eval():
            return stmt, 1
        case For():
            limit = int(stmt.annotations.get(MAX_STEPS, limit))
    marked = [_marked(child, limit) for child in child_stmts(stmt)]
    same = all(new is old for (new, _), old in zip(marked, child_stmts(stmt), strict=True))
    new = stmt if same else with_children(stmt, [child for child, _ in marked])
    steps: int | None = 0
    for _, count in marked:
        steps = None if count is None or steps is None else steps + count
    if isinstance(stmt, While):
        return new, None
    if isinstance(new, For):
        extent = const_value(new.extent)
        total = None if steps is None or extent is None else steps * extent
        if new.kind == "unrolled":
            return new, total
        if new.kind != "serial" or total is None or total > limit:
            return new, None
        notes = {key: value for key, value in new.annotations.items() if key != MAX_STEPS}
        return replace(new, kind="unrolled", annotations=notes), total
    return new, steps


class _Unroll:
    """Unrolls loop nests around stores in one pass, and rebuilds each invariant expression once."""

    def __init__(self) -> None:
        self.resolved_choice = False
        """Whether an `if_then_else` was resolved."""

    def rebuild(self, root: Stmt) -> Stmt:
        nests = {loop for loop in stmts_of(root, For) if _is_nest(loop)}
        inside = {s for nest in nests for s in stmts(nest) if s is not nest}

        def visit(loop: For) -> Stmt | None:
            if loop.kind != "unrolled" or loop in inside:
                return None
            _check_copies(loop)
            if loop not in nests:
                return _one_by_one(loop)
            nest = _Nest(loop)
            unrolled = nest.unrolled()
            self.resolved_choice = self.resolved_choice or nest.resolved_choice
            return unrolled

        return transform_each(root, For, visit)


def _is_nest(loop: For) -> bool:
    """Whether a loop is a nest of unrolled loops around stores and calls only."""
    return all(
        isinstance(s, (Store, Eval, Seq)) or (isinstance(s, For) and s.kind == "unrolled")
        for s in stmts(loop)
    )


def _count(loop: For) -> int:
    count = const_value(loop.extent)
    if count is None:
        raise CodegenError(
            f"loop {loop.var.name!r} of extent {loop.extent} cannot be unrolled",
            hint="split it by a constant first",
        )
    return count


def _check_copies(root: For) -> None:
    """Raise CodegenError if a loop and the unrolled loops in it have too many iterations."""
    work: list[tuple[Stmt, int]] = [(root, 1)]
    while work:
        stmt, copies = work.pop()
        if isinstance(stmt, For) and stmt.kind == "unrolled":
            copies *= max(1, _count(stmt))
            if copies > MAX_COPIES:
                raise CodegenError(
                    f"loop {stmt.var.name!r} of extent {stmt.extent} cannot be unrolled",
                    why=f"there would be {copies} copies of its body, and at most {MAX_COPIES} are made",
                    hint="split it and unroll the inner loop",
                )
        work += [(child, copies) for child in child_stmts(stmt)]


def _one_by_one(loop: For) -> Stmt:
    binds = any(bound_vars(s) or s.bound_buffers() for s in stmts(loop.body))
    copies = []
    for step in range(_count(loop)):
        checkpoint()
        body = substitute_stmt(loop.body, {loop.var: loop.begin + step})
        copies.append(rename_bound(body) if binds and step else body)
    return seq(*copies)


class _Nest:
    """Each changing expression is rebuilt once in each iteration of the innermost loop that it depends on."""

    def __init__(self, root: For) -> None:
        self.root = root
        self.current: dict[Expr, Expr] = {}
        """The values of varying expressions in the current iteration."""
        self.changing: dict[For, list[Expr]] = {}
        """For each loop the expressions that change with it and with no loop inside it, operands first."""
        self._level: dict[Expr, int] = {}
        self.resolved_choice = False
        """Whether an `if_then_else` was resolved."""
        self._find(root, [])

    def _find(self, stmt: Stmt, around: list[For]) -> None:
        for expr in exprs_of(stmt):
            self._assign_levels(expr, around)
        if isinstance(stmt, For):
            self._level[stmt.var] = len(around)
            self.changing[stmt] = []
            around = [*around, stmt]
        for child in child_stmts(stmt):
            self._find(child, around)

    def _assign_levels(self, root: Expr, around: list[For]) -> None:
        for e in post_order(root):
            if e not in self._level:
                level = self._level[e] = max((self._level[c] for c in e.children), default=-1)
                if level >= 0:
                    self.changing[around[level]].append(e)

    def unrolled(self) -> Stmt:
        out: list[Stmt] = []
        self._write(self.root, out)
        return seq(*out)

    def _write(self, stmt: Stmt, out: list[Stmt]) -> None:
        current = self.current
        match stmt:
            case Store():
                indices = tuple([current.get(i, i) for i in stmt.indices])
                out.append(Store(stmt.buffer, indices, current.get(stmt.value, stmt.value)))
            case Eval():
                out.append(Eval(current.get(stmt.value, stmt.value)))
            case Seq():
                for part in stmt.stmts:
                    self._write(part, out)
            case For():
                begin = current.get(stmt.begin, stmt.begin)
                for step in range(_count(stmt)):
                    checkpoint()
                    current[stmt.var] = begin + step
                    for e in self.changing[stmt]:
                        current[e] = self._rebuilt(e)
                    self._write(stmt.body, out)

    def _rebuilt(self, expr: Expr) -> Expr:
        """Return the expression in the current iteration, with choices of known conditions resolved."""
        children = [self.current.get(c, c) for c in expr.children]
        rebuilt = expr.rebuild(children)
        if isinstance(expr, Call) and expr.name == "if_then_else" and rebuilt in children:
            self.resolved_choice = True
        return rebuilt


@record(frozen=True)
class UnrollLoops(PrimFuncPass):
    """Replace unrolled loops by copies of their bodies.

    It also unrolls small serial loops, with at most `max_steps` stores and calls when unrolled. The
    annotation `unroll_max_steps` of a surrounding loop replaces this limit. With `explicit=False` loops are
    not written out; they only become loops of kind "unrolled", for a code generator that unrolls.

    Before:

        @T.prim_func
        def f(A: T.Buffer((16,), "float32")):
            for i in range(8):
                for j in T.unroll(2):
                    A[i * 2 + j] = T.float32(1.0)

    After:

        @T.prim_func
        def f(A: T.Buffer((16,), "float32")):
            for i in range(8):
                A[i * 2] = T.float32(1.0)
                A[i * 2 + 1] = T.float32(1.0)
    """

    name: ClassVar[str] = "unroll_loops"
    max_steps: int = 0
    explicit: bool = True

    def run_function(self, func: PrimFunc, context: PassContext) -> PrimFunc:
        loops = list(stmts_of(func.body, For))
        most = self.max_steps
        if any(s.kind == "serial" and const_value(s.extent) is not None for s in loops):
            most = SMALL.pick(
                most,
                lambda: [most, 0, *CONTROL.forced_steps],
                lambda steps: "unrolled" if steps else "rolled",
            )
        wanted = most or any(MAX_STEPS in s.annotations for s in loops)
        marked = mark_small_loops(func, most) if wanted else func
        return unroll_loops(marked) if self.explicit else marked


__all__ = ["MAX_STEPS", "UnrollLoops", "mark_small_loops", "unroll_loops"]
