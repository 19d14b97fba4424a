"""Groups of asynchronous copies to shared memory, or to other memory on the chip such as a scratchpad.

The writes of a thread to such memory between `copies_begin` and `copies_end` form a group of copies, which
may complete later.  The memory must not be accessed until the thread has passed a `barrier`, or a
`copies_barrier(groups, …)` after which all but its last `groups` groups are complete.
"""

from __future__ import annotations

from dlc_core.ir.expr import Expr
from dlc_core.tir.intrinsics import intrinsic


def copies_begin() -> Expr:
    """Begin a group of copies: the thread's following writes to shared memory may be asynchronous. Use it
    under `Eval`.
    """
    return intrinsic("copies_begin")


def copies_end() -> Expr:
    """End a group of copies. They may be in flight until the thread waits. Use it under `Eval`."""
    return intrinsic("copies_end")


def copies_barrier(groups: int, steps: int = 0) -> Expr:
    """A barrier after which the last `groups` groups of copies of each thread may still be in flight, and so
    may reads in place that matrix units began since the last `steps` barriers. Use it under `Eval`.
    """
    return intrinsic("copies_barrier", groups, steps)


__all__ = ["copies_barrier", "copies_begin", "copies_end"]
