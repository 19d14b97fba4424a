"""Thread axes and memory scopes: the meaning of their names.

A loop of kind "thread" is an axis of a *launch*. The target defines the names of axes. The prefix of a name
determines what the axis counts:

    block…     groups of threads ("block.x"): they share only global memory, and have no barrier
    vthread…   virtual threads: one thread runs several of them, interleaved by statements
    any other  threads of a group ("thread.x"): they share memory and have barriers

Memory of scope "shared…" belongs to a group, and memory of scope "local…" to one thread. The position of an
`Alloc` also matters: an allocation inside the axes of threads is private to each thread, and one outside is
common to them. In a launch in its final form (`unify_thread_binding`) positions agree with scopes. Before
that, a schedule may leave shared memory inside the axes of threads, if all threads write the same values, and
thread-local memory outside, if each thread uses different elements.

Memory of scope "shared.swizzled" is shared memory in the order of matrix units that read their operands in
place. It consists of rows of 128 bytes. Chunk p of 16 bytes of row r is stored at position p ^ (r % 8), so
that the same chunk of 8 rows is in different banks. Programs do not depend on that order; only addresses do
(`swizzled`).
"""

from __future__ import annotations

from collections.abc import Iterator

from dlc_core.ir.buffer import Buffer
from dlc_core.ir.expr import Binary, Expr, const, const_value
from dlc_core.tir.functor import child_stmts, stmts, stmts_of
from dlc_core.tir.stmt import For, PrimFunc, Stmt

GROUP, VIRTUAL, THREAD = "group", "virtual", "thread"
"""Levels of thread axes."""
_PREFIXES = (("block", GROUP), ("vthread", VIRTUAL))
SWIZZLED = "shared.swizzled"
"""The scope of swizzled shared memory."""
SWIZZLED_ROW, SWIZZLED_ALIGN = 128, 1024
"""The bytes of a swizzled row, and the alignment of swizzled memory: 8 rows, the period of the order."""


def level_of(axis: str) -> str:
    """GROUP, VIRTUAL or THREAD, by the name of a thread axis."""
    return next((level for prefix, level in _PREFIXES if axis.startswith(prefix)), THREAD)


def level(stmt: Stmt) -> str:
    """The level of a thread loop; "" for other statements."""
    return level_of(stmt.thread) if isinstance(stmt, For) and stmt.kind == "thread" else ""


def is_axis(stmt: Stmt) -> bool:
    return isinstance(stmt, For) and stmt.kind == "thread"


def is_shared(buffer: Buffer) -> bool:
    """Whether each group of threads has its own copy of the buffer."""
    return buffer.scope.startswith("shared")


def swizzled(buffer: Buffer, offset: Expr) -> Expr:
    """The physical offset of the element at a logical offset. They differ only for memory of scope
    `SWIZZLED`.
    """
    if buffer.scope != SWIZZLED:
        return offset
    # Terms that are multiples of 8 rows do not affect the swizzle. They stay outside of the XOR, so that
    # compilers see the common parts of accesses.
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
    """Whether each thread has its own copy of the buffer."""
    return buffer.scope.startswith("local")


def axes_in(root: Stmt, *levels: str) -> Iterator[For]:
    """The thread loops of some levels, outer before inner, in order of execution."""
    return (loop for loop in stmts_of(root, For) if level(loop) in levels)


def has_axes(root: Stmt) -> bool:
    return any(map(is_axis, stmts(root)))


def launches(root: Stmt) -> Iterator[For]:
    """The outermost thread loops in order of execution. Each is one launch."""
    work = [root]
    while work:
        stmt = work.pop()
        if isinstance(stmt, For) and stmt.kind == "thread":
            yield stmt
        else:
            work.extend(reversed(child_stmts(stmt)))


def launch_axes(func: PrimFunc) -> dict[str, Expr]:
    """The thread axes of a function whose body is one launch: extents by name, outer to inner.

    Virtual threads are not axes of a launch.
    """
    found: dict[str, Expr] = {}
    for axis in axes_in(func.body, GROUP, THREAD):
        found.setdefault(axis.thread, axis.extent)
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
