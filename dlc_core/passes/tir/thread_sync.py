"""Insert barriers between conflicting accesses of different threads of a group, and nowhere else.

The statements of a launch are visited in the order of execution. A barrier is inserted before a statement
that may access an element that another thread has written since the last barrier, or that may write an
element that another thread has read. It is also inserted into a loop whose next iteration may do so. An
access that is proved to concern only elements of its own thread needs no barrier.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from dlc_core.diag import PassError
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.expr import Call, Expr, Var, conjuncts, const_value, free_vars, loads_in
from dlc_core.passes.tir.conflicts import ThreadAccess, Threads, accesses_of
from dlc_core.passes.tir.thread_base import ThreadPass
from dlc_core.passes.tir.unify_threads import unify_thread_binding
from dlc_core.schedule.tree import Program
from dlc_core.support.record import record
from dlc_core.tir.functor import allocations, buffers_written, stmts, stmts_of
from dlc_core.tir.intrinsics import BARRIERS, barrier
from dlc_core.tir.stmt import Alloc, Block, Eval, For, If, Let, PrimFunc, Seq, Stmt, View, While, seq
from dlc_core.tir.threads import GROUP, THREAD, VIRTUAL, axes_in, is_private, launches, level


def insert_barriers(func: PrimFunc) -> PrimFunc:
    """Insert the barriers that the threads of a function need. Expects launches in their final form.

    Raises PassError if a barrier is needed under a condition or in a loop that differs between threads.
    """
    func = unify_thread_binding(func)
    found = list(launches(func.body))
    dims = [v for b in func.buffers for v in free_vars(*b.shape)]
    new: dict[Stmt, Stmt] = {root: _Launch(func, root, dims).with_barriers() for root in found}
    changed = {root: body for root, body in new.items() if body is not root}
    if not changed:
        return func
    program = Program(func)
    program.replace(changed)
    return program.func


@record(frozen=True)
class SyncedStmt:
    """A rewritten statement, and its accesses that its barriers do not order.

    `head` are the accesses before its first barrier, `tail` those after its last one. Without a barrier, both
    are all its accesses.
    """

    stmt: Stmt
    head: tuple[ThreadAccess, ...]
    tail: tuple[ThreadAccess, ...]
    has_barrier: bool
    """Whether every execution of it passes a barrier."""


class _Launch:
    def __init__(self, func: PrimFunc, root: For, dims: Sequence[Var]) -> None:
        self.func = func
        self.root = root
        axes: list[For] = []
        groups: list[Var] = []
        stmt: Stmt = root
        while True:
            match stmt:
                case For() if level(stmt) == THREAD:
                    axes.append(stmt)
                case For() if level(stmt) == GROUP:
                    groups.append(stmt.var)
                case Alloc():
                    pass
                case _:
                    break
            stmt = stmt.body
        self.inner = stmt
        virtual = next(axes_in(stmt, VIRTUAL), None)
        if virtual is not None:
            raise self.error(
                f"the loop {virtual.var.name} is a loop of virtual threads",
                hint="run inject_virtual_thread first",
            )
        self.threads = Threads(axes, [*dims, *groups])
        self.axis_vars = {s.var for s in axes}
        own = {*allocations(stmt)}
        written = set(buffers_written(stmt))
        self.shared_buffers = {b for b in written if b not in own and not is_private(b)}
        """The memory through which threads of a group can communicate."""

    def error(self, what: str, why: str = "", hint: str = "") -> PassError:
        return PassError(f"{self.func.name}: {what}", why=why, hint=hint, spans=self.func.spans)

    def with_barriers(self) -> Stmt:
        if not self.axis_vars or not self.shared_buffers:
            return self.root
        part = self._synced(self.inner, _Context((), (), {}, {}, frozenset(self.axis_vars)))
        if part.stmt is self.inner:
            return self.root
        return Program(replace(self.func, body=self.root)).tree.replace({self.inner: part.stmt})

    # Statements

    def _synced(self, stmt: Stmt, context: _Context) -> SyncedStmt:
        match stmt:
            case Seq():
                return self._seq(stmt, context)
            case Alloc() | View() | Let():
                own = tuple(t for t in self._accesses(stmt, context, deep=False))
                part = self._synced(stmt.body, context.inside(stmt))
                if own and self._conflict(own, part.head):
                    part = self._with_barrier_before(part)
                rebuilt: Stmt = stmt if part.stmt is stmt.body else replace(stmt, body=part.stmt)
                tail = part.tail if part.has_barrier else (*own, *part.tail)
                return SyncedStmt(rebuilt, (*own, *part.head), tail, part.has_barrier)
            case For():
                return self._loop(stmt, context)
            case If() if context.uniform(stmt.cond):
                return self._branch(stmt, context)
            case Eval() if _is_barrier(stmt):
                return SyncedStmt(stmt, (), (), True)
        return self._without_barriers(stmt, context)

    def _without_barriers(self, stmt: Stmt, context: _Context) -> SyncedStmt:
        found = tuple(self._accesses(stmt, context))
        if isinstance(stmt, (Block, If, While, For)):
            self._check_divergent(stmt, found)
        return SyncedStmt(stmt, found, found, False)

    def _check_divergent(self, stmt: Stmt, found: Sequence[ThreadAccess]) -> None:
        """Check that a statement under a divergent condition needs no barriers and has none."""
        if any(_is_barrier(s) for s in stmts(stmt)):
            raise self.error("a barrier is in code that not all threads execute")
        # A loop with one iteration has no conflicts between iterations.
        inside = {s for s in stmts_of(stmt, For) if const_value(s.extent) != 1}
        for i, a in enumerate(found):
            for b in found[i:]:
                disjoint = a.stmt is b.stmt or self._disjoint(a, b)
                loops = [s for s in a.loops if s in b.loops and s in inside]
                if not disjoint or not all(
                    self._disjoint(x, y, s) for s in loops for x, y in ((a, b), (b, a))
                ):
                    raise self.error(
                        f"threads may need a barrier between accesses to {a.buffer.name}",
                        why="the accesses are under a condition, or in a loop, that differs between threads",
                        hint="let all threads run the loop, and put the condition around its statements",
                    )

    def _seq(self, stmt: Seq, context: _Context) -> SyncedStmt:
        out: list[Stmt] = []
        head: list[ThreadAccess] = []
        pending: list[ThreadAccess] = []
        has_barrier = False
        for child in stmt.stmts:
            part = self._synced(child, context)
            if self._conflict(pending, part.head):
                out.append(Eval(barrier()))
                has_barrier, pending = True, []
            out.append(part.stmt)
            if not has_barrier:
                head += part.head
            pending = [*part.tail] if part.has_barrier else [*pending, *part.tail]
            has_barrier = has_barrier or part.has_barrier
        same = len(out) == len(stmt.stmts) and all(a is b for a, b in zip(out, stmt.stmts))
        return SyncedStmt(stmt if same else seq(*out), tuple(head), tuple(pending), has_barrier)

    def _loop(self, stmt: For, context: _Context) -> SyncedStmt:
        if not context.uniform(stmt.begin, stmt.extent) or stmt.kind in ("parallel", "vectorized"):
            return self._without_barriers(stmt, context)
        part = self._synced(stmt.body, context.inside(stmt))
        body, head, tail, has_barrier = part.stmt, part.head, part.tail, part.has_barrier
        iterations = const_value(stmt.extent)
        if iterations != 1 and self._conflict(tail, head, carried=stmt, next_iteration=has_barrier):
            # At the begin of an iteration, the barrier also orders accesses before the loop.
            body = seq(Eval(barrier()), body)
            has_barrier, head, tail = True, (), tail
        rebuilt = stmt if body is stmt.body else replace(stmt, body=body)
        return SyncedStmt(rebuilt, head, tail, has_barrier and iterations is not None and iterations > 0)

    def _branch(self, stmt: If, context: _Context) -> SyncedStmt:
        inside = context.under_conditions(conjuncts(stmt.cond))
        then = self._synced(stmt.then, inside)
        orelse = (
            None if stmt.orelse is None else self._synced(stmt.orelse, context.under_conditions([~stmt.cond]))
        )
        parts = [p for p in (then, orelse) if p is not None]
        same = all(p.stmt is s for p, s in ((then, stmt.then), (orelse, stmt.orelse)) if p is not None)
        rebuilt = stmt if same else If(stmt.cond, then.stmt, None if orelse is None else orelse.stmt)
        head = tuple(t for p in parts for t in p.head)
        tail = tuple(t for p in parts for t in p.tail)
        return SyncedStmt(rebuilt, head, tail, orelse is not None and all(p.has_barrier for p in parts))

    def _with_barrier_before(self, part: SyncedStmt) -> SyncedStmt:
        return SyncedStmt(seq(Eval(barrier()), part.stmt), (), part.tail, True)

    # Conflicts

    def _accesses(self, stmt: Stmt, context: _Context, *, deep: bool = True) -> list[ThreadAccess]:
        if not deep:
            stmt = Eval(stmt.value) if isinstance(stmt, Let) else Seq(())
        found = accesses_of(stmt, context.loops, context.conds, context.env, context.bases)
        return [t for t in found if t.buffer in self.shared_buffers]

    def _disjoint(
        self, a: ThreadAccess, b: ThreadAccess, carried: For | None = None, next_iteration: bool = False
    ) -> bool:
        if a.buffer is not b.buffer or not (a.writes or b.writes):
            return True
        return self.threads.disjoint(a, b, carried=carried, next_iteration=next_iteration)

    def _conflict(
        self,
        before: Sequence[ThreadAccess],
        after: Sequence[ThreadAccess],
        carried: For | None = None,
        next_iteration: bool = False,
    ) -> bool:
        return any(not self._disjoint(a, b, carried, next_iteration) for a in before for b in after)


@record(frozen=True)
class _Context:
    """The loops, conditions and names around a statement inside the threads of a launch."""

    loops: tuple[For, ...]
    conds: tuple[Expr, ...]
    env: dict[Var, Expr]
    bases: dict[Buffer, Buffer]
    varying: frozenset[Var]
    """Variables whose value differs between threads."""

    def uniform(self, *exprs: Expr) -> bool:
        """Whether expressions are known to be uniform over all threads of a group."""
        return self.varying.isdisjoint(free_vars(*exprs)) and not loads_in(*exprs)

    def inside(self, stmt: For | Let | Alloc | View) -> _Context:
        match stmt:
            case For():
                return replace(self, loops=(*self.loops, stmt))
            case Let():
                varying = self.varying if self.uniform(stmt.value) else self.varying | {stmt.var}
                return replace(self, env={**self.env, stmt.var: stmt.value}, varying=varying)
            case View():
                return replace(self, bases={**self.bases, stmt.buffer: self.bases.get(stmt.base, stmt.base)})
        return self

    def under_conditions(self, conds: Sequence[Expr]) -> _Context:
        return replace(self, conds=(*self.conds, *conds))


def _is_barrier(stmt: Stmt) -> bool:
    return isinstance(stmt, Eval) and isinstance(stmt.value, Call) and stmt.value.name in BARRIERS


@record(frozen=True)
class ThreadSync(ThreadPass):
    """Insert barriers where threads of a group access the same memory."""

    name: ClassVar[str] = "thread_sync"

    def change(self, func: PrimFunc) -> PrimFunc:
        return insert_barriers(func)


__all__ = ["ThreadSync", "insert_barriers"]
