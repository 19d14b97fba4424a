"""Hardware axes that loops of stages are bound to."""

from __future__ import annotations

from dataclasses import dataclass

from dlc_core.diag import UsageError
from dlc_core.ir.expr import ExprLike, as_expr
from dlc_core.tir.stmt import Range


@dataclass(frozen=True)
class ThreadAxis:
    """A hardware axis of the target, by the target's name for it; with `dom`, of that extent."""

    name: str
    dom: Range | None = None


def thread_axis(dom: ExprLike | tuple[ExprLike, ExprLike] | str | None = None, tag: str = "") -> ThreadAxis:
    """The thread axis `tag`, for `stage.bind`: `thread_axis("name")` or `thread_axis((0, 32), "name")`."""
    if isinstance(dom, str):
        if tag:
            raise UsageError(f"a thread axis with two names, {dom!r} and {tag!r}")
        return ThreadAxis(dom)
    if not tag:
        raise UsageError("a thread axis without a name", hint="name it as the target does")
    if dom is None:
        return ThreadAxis(tag)
    begin, end = map(as_expr, dom if isinstance(dom, tuple) else (0, dom))
    return ThreadAxis(tag, Range(begin, end - begin))
