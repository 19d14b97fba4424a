"""Memory scopes: which of them are main memory, and the capacity of the others.

Buffers of the scopes "global" and "local" are in main memory or in registers. The compiler chooses their
place: registers, the stack, or the caller's arena. All other scopes are memories of their own, such as the
shared memory of a group of threads or a scratchpad. A schedule puts a buffer there, and no pass may move it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dlc_core.ir.buffer import Buffer
from dlc_core.ir.expr import const_value
from dlc_core.tir.functor import child_stmts
from dlc_core.tir.stmt import Alloc, Stmt

MAIN_SCOPES = ("global", "local")
"""The scopes whose buffers the compiler may move."""


def in_main_memory(buffer: Buffer) -> bool:
    """Whether the compiler chooses the place of a buffer."""
    return buffer.scope.partition(".")[0] in MAIN_SCOPES


def bytes_of(buffer: Buffer) -> int | None:
    """The bytes of a buffer, with the padding of its strides; None if its size is symbolic."""
    if buffer.strides is None:
        count = const_value(buffer.num_elements())
    else:
        ends = [const_value((dim - 1) * step) for dim, step in zip(buffer.shape, buffer.strides, strict=True)]
        known = [end for end in ends if end is not None]
        count = sum(known) + 1 if len(known) == len(ends) else None
    return None if count is None else count * buffer.dtype.itemsize


def oversized(root: Stmt, capacities: Mapping[str, int]) -> Iterator[tuple[Buffer, int, int]]:
    """The allocations that exceed their scope: buffer, bytes, and the bytes that are free at that point.

    `capacities` are the bytes of scopes. A scope that is not listed is not checked, nor is a symbolic size.
    The buffers whose allocations contain one another exist at the same time and share the capacity. Buffers
    in loops over threads are counted once.
    """
    work: list[tuple[Stmt, Mapping[str, int]]] = [(root, capacities)]
    while work:
        stmt, free = work.pop()
        if isinstance(stmt, Alloc) and stmt.buffer.scope in free:
            scope, size = stmt.buffer.scope, bytes_of(stmt.buffer) or 0
            if size > free[scope]:
                yield stmt.buffer, size, free[scope]
            free = {**free, scope: free[scope] - size}
        work += ((child, free) for child in reversed(child_stmts(stmt)))


__all__ = ["MAIN_SCOPES", "bytes_of", "in_main_memory", "oversized"]
