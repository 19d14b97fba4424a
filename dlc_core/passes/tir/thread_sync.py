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
from dlc_core.passes.tir.conflicts import Threads, Touch, touches_of
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
class Part:
    """A rewritten statement and what its barriers leave open on either side.

    `head` is touched before its first barrier, `tail` after its last; without one, both are all it touches.
    """

    stmt: Stmt
    head: tuple[Touch, ...]
    tail: tuple[Touch, ...]
    waits: bool
    """Whether every run of it passes a barrier."""


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
                f"the loop {virtual.var.name} is still of virtual threads",
                hint="run inject_virtual_thread first",
            )
        self.threads = Threads(axes, [*dims, *groups])
        self.axis_vars = {s.var for s in axes}
        own = {*allocations(stmt)}
        written = set(buffers_written(stmt))
        self.watched = {b for b in written if b not in own and not is_private(b)}
        """Memory by which threads of a group can reach each other."""

    def error(self, what: str, why: str = "", hint: str = "") -> PassError:
        return PassError(f"{self.func.name}: {what}", why=why, hint=hint, spans=self.func.spans)

    def with_barriers(self) -> Stmt:
        if not self.axis_vars or not self.watched:
            return self.root
        part = self._part(self.inner, _Around((), (), {}, {}, frozenset(self.axis_vars)))
        if part.stmt is self.inner:
            return self.root
        return Program(replace(self.func, body=self.root)).tree.replace({self.inner: part.stmt})

    # Statements

    def _part(self, stmt: Stmt, around: _Around) -> Part:
        match stmt:
            case Seq():
                return self._seq(stmt, around)
            case Alloc() | View() | Let():
                own = tuple(t for t in self._touches(stmt, around, deep=False))
                part = self._part(stmt.body, around.inside(stmt))
                if own and self._conflict(own, part.head):
                    part = self._before(part)
                rebuilt: Stmt = stmt if part.stmt is stmt.body else replace(stmt, body=part.stmt)
                tail = part.tail if part.waits else (*own, *part.tail)
                return Part(rebuilt, (*own, *part.head), tail, part.waits)
            case For():
                return self._loop(stmt, around)
            case If() if around.uniform(stmt.cond):
                return self._branch(stmt, around)
            case Eval() if _is_barrier(stmt):
                return Part(stmt, (), (), True)
        return self._leaf(stmt, around)

    def _leaf(self, stmt: Stmt, around: _Around) -> Part:
        found = tuple(self._touches(stmt, around))
        if isinstance(stmt, (Block, If, While, For)):
            self._check_divergent(stmt, found)
        return Part(stmt, found, found, False)

    def _check_divergent(self, stmt: Stmt, found: Sequence[Touch]) -> None:
        """Check that a statement under a divergent condition needs no barriers and has none."""
        if any(_is_barrier(s) for s in stmts(stmt)):
            raise self.error("a barrier stands where not all threads come by")
        # A loop with one iteration has no conflicts between iterations.
        inside = {s for s in stmts_of(stmt, For) if const_value(s.extent) != 1}
        for i, a in enumerate(found):
            for b in found[i:]:
                apart = a.stmt is b.stmt or self._apart(a, b)
                loops = [s for s in a.loops if s in b.loops and s in inside]
                if not apart or not all(self._apart(x, y, s) for s in loops for x, y in ((a, b), (b, a))):
                    raise self.error(
                        f"threads may have to wait for each other at {a.buffer.name}",
                        why="that is under a condition, or in a loop, that differs between them",
                        hint="let all threads run the loop, and put the condition around its statements",
                    )

    def _seq(self, stmt: Seq, around: _Around) -> Part:
        out: list[Stmt] = []
        head: list[Touch] = []
        pending: list[Touch] = []
        waits = False
        for child in stmt.stmts:
            part = self._part(child, around)
            if self._conflict(pending, part.head):
                out.append(Eval(barrier()))
                waits, pending = True, []
            out.append(part.stmt)
            if not waits:
                head += part.head
            pending = [*part.tail] if part.waits else [*pending, *part.tail]
            waits = waits or part.waits
        same = len(out) == len(stmt.stmts) and all(a is b for a, b in zip(out, stmt.stmts))
        return Part(stmt if same else seq(*out), tuple(head), tuple(pending), waits)

    def _loop(self, stmt: For, around: _Around) -> Part:
        if not around.uniform(stmt.begin, stmt.extent) or stmt.kind in ("parallel", "vectorized"):
            return self._leaf(stmt, around)
        part = self._part(stmt.body, around.inside(stmt))
        body, head, tail, waits = part.stmt, part.head, part.tail, part.waits
        runs = const_value(stmt.extent)
        if runs != 1 and self._conflict(tail, head, carried=stmt, step=waits):
            # At the begin of an iteration, the barrier also orders accesses before the loop.
            body = seq(Eval(barrier()), body)
            waits, head, tail = True, (), tail
        rebuilt = stmt if body is stmt.body else replace(stmt, body=body)
        return Part(rebuilt, head, tail, waits and runs is not None and runs > 0)

    def _branch(self, stmt: If, around: _Around) -> Part:
        inside = around.under(conjuncts(stmt.cond))
        then = self._part(stmt.then, inside)
        orelse = None if stmt.orelse is None else self._part(stmt.orelse, around.under([~stmt.cond]))
        parts = [p for p in (then, orelse) if p is not None]
        same = all(p.stmt is s for p, s in ((then, stmt.then), (orelse, stmt.orelse)) if p is not None)
        rebuilt = stmt if same else If(stmt.cond, then.stmt, None if orelse is None else orelse.stmt)
        head = tuple(t for p in parts for t in p.head)
        tail = tuple(t for p in parts for t in p.tail)
        return Part(rebuilt, head, tail, orelse is not None and all(p.waits for p in parts))

    def _before(self, part: Part) -> Part:
        return Part(seq(Eval(barrier()), part.stmt), (), part.tail, True)

    # Conflicts

    def _touches(self, stmt: Stmt, around: _Around, *, deep: bool = True) -> list[Touch]:
        if not deep:
            stmt = Eval(stmt.value) if isinstance(stmt, Let) else Seq(())
        found = touches_of(stmt, around.loops, around.conds, around.env, around.bases)
        return [t for t in found if t.buffer in self.watched]

    def _apart(self, a: Touch, b: Touch, carried: For | None = None, step: bool = False) -> bool:
        if a.buffer is not b.buffer or not (a.writes or b.writes):
            return True
        return self.threads.apart(a, b, carried=carried, step=step)

    def _conflict(
        self, before: Sequence[Touch], after: Sequence[Touch], carried: For | None = None, step: bool = False
    ) -> bool:
        return any(not self._apart(a, b, carried, step) for a in before for b in after)


@record(frozen=True)
class _Around:
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

    def inside(self, stmt: For | Let | Alloc | View) -> _Around:
        match stmt:
            case For():
                return replace(self, loops=(*self.loops, stmt))
            case Let():
                varying = self.varying if self.uniform(stmt.value) else self.varying | {stmt.var}
                return replace(self, env={**self.env, stmt.var: stmt.value}, varying=varying)
            case View():
                return replace(self, bases={**self.bases, stmt.buffer: self.bases.get(stmt.base, stmt.base)})
        return self

    def under(self, conds: Sequence[Expr]) -> _Around:
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
