"""Limits of a target that a scheduled kernel must keep, checked before anything is compiled."""

from __future__ import annotations

from dlc_core.diag import ScheduleError
from dlc_core.ir.expr import const_value
from dlc_core.passes.tir.launchable import check_launches
from dlc_core.target.description import Description
from dlc_core.tir.functor import stmts
from dlc_core.tir.stmt import For, PrimFunc

MAX_UNROLLED = 1 << 12
"""The copies of a loop body that nested unrolled loops may make; more takes minutes to compile."""


def check_limits(func: PrimFunc, description: Description) -> None:
    """Raise ScheduleError if a scheduled kernel exceeds a limit of the description."""
    if description.thread_axes:
        check_launches(func, description)
    _check_unrolled(func)


def _check_unrolled(func: PrimFunc) -> None:
    for loop in stmts(func.body):
        if isinstance(loop, For) and loop.kind == "unrolled":
            copies = _copies(loop)
            if copies > MAX_UNROLLED:
                raise ScheduleError(
                    f"unrolled loops copy a body {copies} times", hint=f"at most {MAX_UNROLLED} copies"
                )


def _copies(loop: For) -> int:
    inner = [s for s in stmts(loop.body) if isinstance(s, For) and s.kind == "unrolled"]
    return (const_value(loop.extent) or 1) * max([_copies(each) for each in inner], default=1)


__all__ = ["MAX_UNROLLED", "check_limits"]
