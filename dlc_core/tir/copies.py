"""Groups of copies to shared memory that run beside the threads.

What a thread writes to shared memory between `copies_begin` and `copies_end` is a group of copies, which may
still be under way behind these: until the thread comes by a `barrier`, or by `copies_barrier(groups, …)`
behind which all but its last so many groups have arrived, nobody touches that memory.
"""

from __future__ import annotations

from dlc_core.ir.expr import Expr
from dlc_core.tir.intrinsics import intrinsic


def copies_begin() -> Expr:
    """What the thread writes to shared memory from here on may be late.  Use it under `Eval`."""
    return intrinsic("copies_begin")


def copies_end() -> Expr:
    """A group of copies ends, which may be under way until the thread waits.  Use it under `Eval`."""
    return intrinsic("copies_end")


def copies_barrier(groups: int, steps: int = 0) -> Expr:
    """A barrier that leaves the last `groups` groups of copies of each thread under way, and what units began
    to read in place since the last `steps` barriers.  Use it under `Eval`.
    """
    return intrinsic("copies_barrier", groups, steps)


__all__ = ["copies_barrier", "copies_begin", "copies_end"]
