"""Bring launches into their final form: one loop for each thread axis, around all work of its threads.

A schedule binds the loops of each stage separately. Consecutive or nested loops of one axis become one loop:

    for g in thread_binding(4, thread="block.x"):      for g in thread_binding(4, thread="block.x"):
        S = alloc_buffer((32,), scope="shared")            S = alloc_buffer((32,), scope="shared")
        L = alloc_buffer((32,), scope="local")             for t in thread_binding(32, thread="thread.x"):
        for k in range(8):                                     L = alloc_buffer((1,), scope="local")
            for t in thread_binding(32, …): S[t] = …           for k in range(8):
            for u in thread_binding(16, …): L[u] = …               S[t] = …
                                                                   if t < 16: L[0] = …

Statements outside the loops of an axis run in its first thread, unless they write thread-local memory; then
all threads run them. Thread-local memory becomes private to each thread, and it must be provable that this is
correct. Afterwards barriers are missing where threads read values that others wrote. `thread_sync` inserts
them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from dlc_core.arith import Analyzer
from dlc_core.diag import PassError
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.dtype import INDEX
from dlc_core.ir.expr import (
    Call,
    Expr,
    Var,
    const,
    const_value,
    eq,
    free_vars,
    logical_and,
    maximum,
    post_order,
    substitute,
)
from dlc_core.passes.tir.conflicts import ThreadAccess, Threads, accesses_of, dependents
from dlc_core.passes.tir.thread_base import ThreadPass
from dlc_core.schedule.compact import shrink
from dlc_core.schedule.loops import guarded
from dlc_core.schedule.tree import Program, with_children
from dlc_core.support.record import record
from dlc_core.tir.functor import (
    allocations,
    bound_vars,
    buffer_exprs,
    buffers_written,
    child_stmts,
    exprs_of,
    free_buffers,
    move_accesses,
    stmts,
    substitute_stmt,
)
from dlc_core.tir.intrinsics import CONVERGENT, EXCHANGES, FUNCTIONS
from dlc_core.tir.stmt import Alloc, Block, For, IterVar, PrimFunc, Range, Seq, Stmt, Store, loop
from dlc_core.tir.threads import GROUP, THREAD, VIRTUAL, axes_in, is_private, is_shared, launches, level


def unify_thread_binding(func: PrimFunc) -> PrimFunc:
    """Bring every launch into its final form. Return the same function if all are.

    Raises PassError if the loops of an axis cannot be unified: their extents are not comparable, a loop
    inside another one of the same axis depends on that one, groups would need a barrier between them, or
    thread-local memory passes values to another thread.
    """
    found = list(launches(func.body))
    if all(is_unified(root) for root in found):
        return func
    dims = [v for b in func.buffers for v in free_vars(*b.shape)]
    new: dict[Stmt, Stmt] = {
        root: _Launch(func, root, dims).unified() for root in found if not is_unified(root)
    }
    program = Program(func)
    program.replace(new)
    before = set(program.tree.allocs)
    shrink(program)
    return _with_simple_indices(program.func, set(program.tree.allocs) - before)


def _with_simple_indices(func: PrimFunc, shrunk: set[Buffer]) -> PrimFunc:
    """Simplify the indices into buffers whose origin has moved."""
    analyzer = Analyzer()

    def simplified(buffer: Buffer, indices: tuple[Expr, ...]) -> tuple[Buffer, list[Expr]] | None:
        return (buffer, [analyzer.simplify(i) for i in indices]) if buffer in shrunk else None

    return replace(func, body=move_accesses(func.body, simplified)) if shrunk else func


def is_unified(root: For) -> bool:
    """Whether a launch is a perfect nest of thread axes, with allocations of group memory at most between."""
    stmt: Stmt = root
    seen: set[str] = set()
    while True:
        match stmt:
            case For() if level(stmt) in (GROUP, THREAD):
                if stmt.thread in seen:
                    return False
                seen.add(stmt.thread)
            case Alloc() if not is_private(stmt.buffer):
                pass
            case _:
                break
        stmt = stmt.body
    return not any(
        level(s) in (GROUP, THREAD) or (isinstance(s, Alloc) and is_shared(s.buffer)) for s in stmts(stmt)
    )


Path = tuple[str, ...]


class _Launch:
    def __init__(self, func: PrimFunc, root: For, dims: Sequence[Var]) -> None:
        self.func = func
        self.root = root
        self.dims = dims
        self.loops: dict[str, For] = {}
        """The one loop of each axis, without its body."""
        self.axes: dict[str, list[str]] = {GROUP: [], THREAD: []}
        self.shared: list[Buffer] = []
        self.allocated_at: dict[Buffer, Path] = {}
        """The axes around the allocation of each shared buffer."""
        self.virtual: list[Var] = []
        """The virtual threads around the current statement."""
        self.private: list[Buffer] = []
        self.partial: dict[Stmt, tuple[str, ...]] = {}
        """Stores with the axes over which they are distributed; threads of other axes repeat them."""

    def error(self, what: str, why: str = "", hint: str = "") -> PassError:
        return PassError(f"{self.func.name}: {what}", why=why, hint=hint, spans=self.func.spans)

    def unified(self) -> Stmt:
        self._check_groups()
        for one in axes_in(self.root, GROUP, THREAD):
            self._join(one)
        inner = {v for s in stmts(self.root) for v in bound_vars(s)} - {s.var for s in self.loops.values()}
        for axis, one in self.loops.items():
            bad = [v.name for v in free_vars(one.extent) if v in inner]
            if bad:
                raise self.error(f"the extent {one.extent} of {axis} depends on the loop {bad[0]}")
        self._check_exchanges(self.root, "")
        body = self._build(self.root, ())
        for buffer in (*self.private, *self.shared):
            bad = [v.name for v in free_vars(*buffer_exprs(buffer)) if v in inner]
            if bad:
                raise self.error(f"the size of {buffer.name} depends on the loop {bad[0]} around it")
        self._check_private(body)
        for buffer in reversed(self.private):
            body = Alloc(buffer, body)
        body = self._nest(THREAD, body)
        for buffer in reversed(self.shared):
            body = Alloc(buffer, body)
        return self._nest(GROUP, body)

    def _nest(self, kind: str, body: Stmt) -> Stmt:
        for axis in reversed(self.axes[kind]):
            one = self.loops[axis]
            body = replace(one, body=body)
        return body

    def _join(self, stmt: For) -> None:
        one = self.loops.get(stmt.thread)
        if one is None:
            self.axes[level(stmt)].append(stmt.thread)
            self.loops[stmt.thread] = loop(
                Var(stmt.var.name, stmt.var.dtype),
                stmt.extent,
                Seq(()),
                "thread",
                begin=const(0, stmt.var.dtype),
                thread=stmt.thread,
                annotations=stmt.annotations,
            )
            return
        analyzer = Analyzer()
        for dim in self.dims:
            analyzer.declare_dim(dim, 0)
        if analyzer.prove(stmt.extent <= one.extent):
            return
        analyzers = (const_value(stmt.extent), const_value(one.extent))
        if None in analyzers and not analyzer.prove(stmt.extent >= one.extent):
            raise self.error(
                f"loops bound to {stmt.thread} have the extents {one.extent} and {stmt.extent}",
                why="which of the two is larger is not known",
            )
        extent = analyzer.simplify(maximum(stmt.extent, one.extent))
        self.loops[stmt.thread] = replace(one, extent=extent)

    def _check_groups(self) -> None:
        """Check that axes of groups are outermost, because groups cannot synchronise."""
        stmt: Stmt = self.root
        while isinstance(stmt, Alloc) or (isinstance(stmt, For) and level(stmt) == GROUP):
            stmt = stmt.body
        for inner in axes_in(stmt, GROUP):
            raise self.error(
                f"the loop {inner.var.name} bound to {inner.thread} is inside of other statements",
                why="groups of threads cannot synchronise between its parts",
                hint="bind the outermost loops of each stage, or launch the stages one after another",
            )

    def _check_exchanges(self, stmt: Stmt, innermost: str) -> None:
        """Check that threads exchange values along the innermost axis only; it forms the subgroups."""
        if level(stmt) == THREAD:
            assert isinstance(stmt, For)
            innermost = stmt.thread
        if [innermost] != self.axes[THREAD][-1:] and any(
            isinstance(e, Call) and e.name in EXCHANGES for e in post_order(*exprs_of(stmt))
        ):
            inside = self.axes[THREAD][-1]
            raise self.error(
                f"threads along {innermost} exchange values, and {inside} is inside of that axis"
            )
        for child in child_stmts(stmt):
            self._check_exchanges(child, innermost)

    # Rebuilding

    def _build(self, stmt: Stmt, path: Path) -> Stmt:
        """`path` names the enclosing axes from outer to inner. An axis nested in itself occurs twice."""
        match stmt:
            case For() if level(stmt) in (GROUP, THREAD):
                return self._axis(stmt, path)
            case Alloc() if is_shared(stmt.buffer) or not self._threads(path):
                if is_private(stmt.buffer):
                    self.private.append(stmt.buffer)
                else:
                    self._add_shared(stmt, path)
                return self._build(stmt.body, path)
        if not any(level(s) == THREAD or self._moves(s) for s in stmts(stmt)):
            kept = self._guarded_to_threads(stmt, path)
            if kept is not None:
                self._record_axes(stmt, path)
                return kept
        virtual = [stmt.var] if isinstance(stmt, For) and level(stmt) == VIRTUAL else []
        self.virtual += virtual
        built = with_children(stmt, [self._build(c, path) for c in child_stmts(stmt)])
        del self.virtual[len(self.virtual) - len(virtual) :]
        return self._with_axes(built) if isinstance(built, Block) else built

    def _with_axes(self, block: Block) -> Block:
        """Add an axis to a block for each thread loop that moved from its body to the outside."""
        for one in self.loops.values():
            if any(one.var in free_vars(*exprs_of(s)) for s in stmts(block) if s is not block):
                axis = IterVar(Var(f"v_{one.var.name}", one.var.dtype), Range(const(0), one.extent))
                inner = substitute_stmt(replace(block, values=()), {one.var: axis.var})
                assert isinstance(inner, Block)
                block = replace(inner, axes=(*block.axes, axis), values=(*block.values, one.var))
        return block

    def _threads(self, path: Path) -> list[str]:
        return [axis for axis in self.axes[THREAD] if axis in path]

    @staticmethod
    def _moves(stmt: Stmt) -> bool:
        return isinstance(stmt, Alloc) and is_shared(stmt.buffer)

    def _axis(self, stmt: For, path: Path) -> Stmt:
        one = self.loops[stmt.thread]
        if stmt.thread in path:
            self._check_nested(stmt, one.var)
        body = substitute_stmt(stmt.body, {stmt.var: one.var + stmt.begin})
        built = self._build(body, (*path, stmt.thread))
        if stmt.extent is one.extent:
            return built
        if any(
            isinstance(e, Call) and e.name in CONVERGENT
            for s in stmts(stmt)
            for e in post_order(*exprs_of(s))
        ):
            raise self.error(
                f"the threads of the loop {stmt.var.name} synchronise or exchange values",
                why=f"that loop has {stmt.extent} of the {one.extent} iterations of {stmt.thread}",
                hint="bind loops of equal extents",
            )
        return guarded(built, one.var < stmt.extent)

    def _add_shared(self, alloc: Alloc, path: Path) -> None:
        """Make a buffer shared memory of the group.

        If each thread had its own copy, check that all copies are equal.
        """
        buffer = alloc.buffer
        self.shared.append(buffer)
        axes_around = self._threads(path)
        self.allocated_at[buffer] = path
        start: set[Var | Buffer] = {self.loops[axis].var for axis in axes_around}
        start.update(self.virtual)
        if start:
            start.update(b for b in free_buffers(alloc.body) if is_private(b))
            if buffer in dependents(alloc.body, start, {buffer, *allocations(alloc.body)}):
                raise self.error(
                    f"{buffer.name} of scope {buffer.scope!r} is filled differently by the threads around it",
                    hint="bind loops to threads before computing its block inside them",
                )

    def _check_nested(self, stmt: For, outer: Var) -> None:
        """Check that a nested loop of an axis can be distributed over the threads of the outer loop."""
        what = f"the loop {stmt.var.name} is inside another one bound to {stmt.thread}"
        uses = any(outer in free_vars(*exprs_of(s)) for s in stmts(stmt))
        if uses:
            raise self.error(
                what,
                why="it depends on that loop, so that the same threads cannot run it",
            )
        own = set(allocations(stmt))
        for buffer in buffers_written(stmt):
            if is_private(buffer) and buffer not in own:
                raise self.error(
                    what, why=f"it writes {buffer.name}, which is private to each thread of that loop"
                )

    def _guarded_to_threads(self, stmt: Stmt, path: Path) -> Stmt | None:
        """Guard a statement that all threads reach so that the right threads run it.

        None if different threads have to run its parts.
        """
        missing = [axis for axis in self.axes[THREAD] if axis not in path]
        calls = {e.name for s in stmts(stmt) for e in post_order(*exprs_of(s)) if isinstance(e, Call)}
        if not CONVERGENT.isdisjoint(calls):
            return None if child_stmts(stmt) else stmt
        own = set(allocations(stmt))
        axis_sets = {
            self._single_thread_axes(b, missing, path) for b in buffers_written(stmt) if b not in own
        }
        if any(name.startswith(FUNCTIONS) for name in calls):
            axis_sets.add(tuple(missing))
        if len(axis_sets) > 1:
            if isinstance(stmt, Block) or not child_stmts(stmt):
                raise self.error("a statement writes memory of one thread and memory of several threads")
            return None
        first: list[Expr] = [eq(self.loops[axis].var, 0) for axis in next(iter(axis_sets), ())]
        return guarded(stmt, logical_and(*first)) if first else stmt

    def _single_thread_axes(self, buffer: Buffer, missing: Sequence[str], path: Path) -> tuple[str, ...]:
        """Return the axes along which only the first thread writes a buffer.

        These are the axes without a loop around the statement, and those along which all threads would repeat
        the same write.
        """
        if is_private(buffer):
            return ()
        allocated = self.allocated_at.get(buffer, ())
        inner_path = path[len(allocated) :]
        repeating = [axis for axis in self._threads(allocated) if axis not in inner_path]
        return tuple(axis for axis in self.axes[THREAD] if axis in missing or axis in repeating)

    def _record_axes(self, stmt: Stmt, path: Path) -> None:
        for part in stmts(stmt):
            if isinstance(part, Store):
                self.partial[part] = path

    # Thread-local memory

    def _check_private(self, body: Stmt) -> None:
        threads = Threads([self.loops[axis] for axis in self.axes[THREAD]], self._symbols())
        private = set(self.private)
        by_buffer: dict[Buffer, list[ThreadAccess]] = {}
        analyzers: dict[tuple[For, ...], tuple[Analyzer, dict[Expr, Expr]]] = {}
        for access in accesses_of(body):
            if access.buffer in private:
                by_buffer.setdefault(access.buffer, []).append(self._simplified(access, analyzers))
        copies: dict[tuple[For, ...], tuple[For, ...]] = {}
        for buffer, found in by_buffer.items():
            renamed = [_in_any_iteration(access, copies) for access in found]
            for a in found:
                if a.writes and not all(self._is_disjoint(threads, a, b) for b in renamed):
                    raise self.error(
                        f"{buffer.name} cannot be private to each thread",
                        why="an element of it may be written by one thread and read by another",
                        hint="give the buffer the scope shared, or distribute its stages in the same way",
                    )

    def _simplified(
        self, access: ThreadAccess, analyzers: dict[tuple[For, ...], tuple[Analyzer, dict[Expr, Expr]]]
    ) -> ThreadAccess:
        """Simplify the indices of an access, so that conflicts are easier to disprove.

        `analyzers` caches an analyzer, and its results, for each loop nest.
        """
        if access.loops not in analyzers:
            analyzer = Analyzer()
            for loop in (*(self.loops[axis] for axis in self.axes[THREAD]), *access.loops):
                analyzer.bind(loop.var, loop.begin, loop.extent)
            analyzers[access.loops] = analyzer, {}
        analyzer, allocated = analyzers[access.loops]
        for index in access.indices:
            if index not in allocated:
                allocated[index] = analyzer.simplify(index) if index.dtype is INDEX else index
        return replace(access, indices=tuple(allocated[index] for index in access.indices))

    def _is_disjoint(self, threads: Threads, write: ThreadAccess, other: ThreadAccess) -> bool:
        axes_of_store = self.partial.get(write.stmt, tuple(self.axes[THREAD]))
        axes = [self.loops[axis].var for axis in axes_of_store if axis in self.axes[THREAD]]
        return not axes or threads.disjoint(write, other, axes=axes)

    def _symbols(self) -> list[Var]:
        return [*self.dims, *(self.loops[axis].var for axis in self.axes[GROUP])]


def _in_any_iteration(access: ThreadAccess, copies: dict[tuple[For, ...], tuple[For, ...]]) -> ThreadAccess:
    """Rename the loop variables of an access, so that it is in an arbitrary iteration. `copies` caches the
    renamed loops."""
    loops = copies.get(access.loops)
    if loops is None:
        fresh = {s.var: Var(s.var.name, s.var.dtype) for s in access.loops}
        loops = copies[access.loops] = tuple(
            replace(s, var=fresh[s.var], begin=substitute(s.begin, fresh), extent=substitute(s.extent, fresh))
            for s in access.loops
        )
    names: dict[Var, Expr] = {old.var: new.var for old, new in zip(access.loops, loops, strict=True)}
    return replace(
        access,
        indices=tuple(substitute(i, names) for i in access.indices),
        conds=tuple(substitute(c, names) for c in access.conds),
        loops=loops,
    )


@record(frozen=True)
class UnifyThreadBinding(ThreadPass):
    """Make one loop for each thread axis of a launch, around all work of its threads."""

    name: ClassVar[str] = "unify_thread_binding"

    def change(self, func: PrimFunc) -> PrimFunc:
        return unify_thread_binding(func)


__all__ = ["UnifyThreadBinding", "is_unified", "unify_thread_binding"]
