"""Thread axes and the memories around them: what the names of axes and scopes mean.

A loop of kind "thread" is an axis of a *launch*.  Its name is the target's, and says by how it begins what
runs along it:

    block…     groups of threads ("block.x"): they share nothing but global memory, and never meet
    vthread…   virtual threads: several of them are run by one thread, statement by statement in turn
    any other  threads of a group ("thread.x"): they share memory and meet at barriers

Memory of scope "shared…" belongs to a group, memory of scope "local…" to one thread.  As everywhere, it
lives where its `Alloc` stands: one inside the axes of threads is each thread's own, and one outside is common
to them.  In a launch in its final form (`unify_thread_binding`) the two agree with the scopes; before, a
schedule may leave shared memory, with the same content for all, inside the axes of threads, and memory of
threads, of which each uses elements of its own, outside.

Memory of scope "shared.swizzled" is shared memory in the order of units that read operands of matrices where
they lie: rows of 128 bytes, of which row r has its part p, of 16 bytes, at place p ^ r % 8, so that the same
part of 8 rows lies in different banks.  Programs know nothing of that: only addresses do (`swizzled`).
"""

from __future__ import annotations

from collections.abc import Iterator

from dlc_core.ir.buffer import Buffer
from dlc_core.ir.expr import Binary, Expr, const, const_value
from dlc_core.tir.functor import child_stmts, stmts
from dlc_core.tir.stmt import For, PrimFunc, Stmt

GROUP, VIRTUAL, THREAD = "group", "virtual", "thread"
"""Levels of thread axes."""
_PREFIXES = (("block", GROUP), ("vthread", VIRTUAL))
SWIZZLED = "shared.swizzled"
"""The scope of shared memory whose rows have their parts in turn."""
SWIZZLED_ROW, SWIZZLED_ALIGN = 128, 1024
"""Bytes of a row of it, and what it begins at a multiple of: 8 rows, after which the order is the same."""


def level_of(axis: str) -> str:
    """GROUP, VIRTUAL or THREAD, from the name of a thread axis."""
    return next((level for prefix, level in _PREFIXES if axis.startswith(prefix)), THREAD)


def level(stmt: Stmt) -> str:
    """The level of a thread loop; "" for any other statement."""
    return level_of(stmt.thread) if isinstance(stmt, For) and stmt.kind == "thread" else ""


def is_axis(stmt: Stmt) -> bool:
    return isinstance(stmt, For) and stmt.kind == "thread"


def is_shared(buffer: Buffer) -> bool:
    """Whether each group of threads has the buffer for itself."""
    return buffer.scope.startswith("shared")


def swizzled(buffer: Buffer, offset: Expr) -> Expr:
    """Where the element at an offset lies, as an offset: for memory of scope `SWIZZLED` another one."""
    if buffer.scope != SWIZZLED:
        return offset
    # Whole groups of 8 rows change nothing: compilers see what accesses have in common.
    period = SWIZZLED_ALIGN // buffer.dtype.itemsize
    inner: Expr = const(0)
    outer: Expr = const(0)
    for term in _terms(offset):
        factor = term.b if isinstance(term, Binary) and term.op == "mul" else term
        if (const_value(factor) or 1) % period == 0 or const_value(term) == 0:
            outer = outer + term
        else:
            inner = inner + term
    return (inner ^ (inner >> 3 & 7 * (16 // buffer.dtype.itemsize))) + outer


def _terms(total: Expr) -> list[Expr]:
    """The terms of a sum."""
    if isinstance(total, Binary) and total.op == "add":
        return [*_terms(total.a), *_terms(total.b)]
    return [total]


def is_private(buffer: Buffer) -> bool:
    """Whether each thread has the buffer for itself."""
    return buffer.scope.startswith("local")


def has_axes(root: Stmt) -> bool:
    return any(map(is_axis, stmts(root)))


def launches(root: Stmt) -> Iterator[For]:
    """The outermost thread loops, in order of execution: each starts one launch."""
    work = [root]
    while work:
        stmt = work.pop()
        if isinstance(stmt, For) and stmt.kind == "thread":
            yield stmt
        else:
            work.extend(reversed(child_stmts(stmt)))


def launch_axes(func: PrimFunc) -> dict[str, Expr]:
    """The extents of the thread axes of a function whose body is one launch, by name, outer to inner.

    Virtual threads are no axes of a launch.
    """
    found: dict[str, Expr] = {}
    for stmt in stmts(func.body):
        if isinstance(stmt, For) and level(stmt) in (GROUP, THREAD):
            found.setdefault(stmt.thread, stmt.extent)
    return found


__all__ = [
    "GROUP",
    "SWIZZLED",
    "SWIZZLED_ALIGN",
    "SWIZZLED_ROW",
    "THREAD",
    "VIRTUAL",
    "has_axes",
    "is_axis",
    "is_private",
    "is_shared",
    "launch_axes",
    "launches",
    "level",
    "level_of",
    "swizzled",
]
