"""Make launches of one thread of statements that no schedule bound to threads.

This is needed because devices with thread axes only run launches.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from dlc_core.ir.expr import Call, Var, const
from dlc_core.passes.base import PassContext
from dlc_core.passes.tir.base import PrimFuncPass
from dlc_core.schedule.tree import with_children
from dlc_core.support.record import record
from dlc_core.tir.functor import child_stmts, exprs_of, stmts, stores_in
from dlc_core.tir.intrinsics import KERNEL, LAUNCH
from dlc_core.tir.stmt import For, PrimFunc, Seq, Stmt, seq
from dlc_core.tir.threads import THREAD, is_axis, level_of


def launch_rest(func: PrimFunc, axis: str) -> PrimFunc:
    """Put each store outside of launches into a launch of a single thread along `axis`.

    Expects launches in their final form.
    """
    body = _launched(func.body, axis)
    return func if body is func.body else replace(func, body=body)


def _launched(stmt: Stmt, axis: str) -> Stmt:
    if is_axis(stmt):
        return stmt
    if not any(map(_is_host_only, stmts(stmt))):
        return _single_thread_launch(stmt, axis)
    children = child_stmts(stmt)
    if not isinstance(stmt, Seq):
        made = [_launched(child, axis) for child in children]
        return stmt if all(new is old for new, old in zip(made, children)) else with_children(stmt, made)
    parts: list[Stmt] = []
    pending: list[Stmt] = []
    for child in children:
        if any(map(_is_host_only, stmts(child))):
            parts += [_single_thread_launch(seq(*pending), axis), _launched(child, axis)]
            pending = []
        else:
            pending.append(child)
    parts.append(_single_thread_launch(seq(*pending), axis))
    return seq(*parts)


def _is_host_only(stmt: Stmt) -> bool:
    """Whether only the host can execute a statement: a launch or a call of a function."""
    return is_axis(stmt) or any(
        isinstance(e, Call) and e.name.startswith((KERNEL, LAUNCH)) for e in exprs_of(stmt)
    )


def _single_thread_launch(stmt: Stmt, axis: str) -> Stmt:
    """Wrap a statement in a launch of one thread, unless it stores nothing."""
    if not stores_in(stmt):
        return stmt
    return For(Var("alone"), const(0), const(1), stmt, "thread", axis)


@record(frozen=True)
class LaunchRest(PrimFuncPass):
    """Put stores outside of launches into launches of one thread, for targets with thread axes.

    Such launches are slow. They compute programs that no schedule rule has bound to threads.
    """

    name: ClassVar[str] = "launch_rest"

    def run_function(self, func: PrimFunc, context: PassContext) -> PrimFunc:
        axes = {} if context.target is None else context.target.describe().thread_axes
        threads = [axis for axis in axes if level_of(axis) == THREAD]
        if not threads or "launch" in func.attrs:
            return func
        return launch_rest(func, threads[0])


__all__ = ["LaunchRest", "launch_rest"]
