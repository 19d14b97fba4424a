"""Hardware axes that loops of stages are bound to."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from dlc_core.diag import UsageError, similar
from dlc_core.ir.expr import ExprLike, as_expr
from dlc_core.tir.stmt import Range
from dlc_core.tir.threads import VIRTUAL, level_of

USUAL = ("block.x", "block.y", "block.z", "thread.x", "thread.y", "thread.z")
"""The names of thread axes on most targets."""
_OTHER = {name.replace(".", "Idx."): name for name in USUAL}
"""The names that TVM has for them."""


@dataclass(frozen=True)
class ThreadAxis:
    """A hardware axis of the target; with `dom`, of that extent."""

    name: str
    dom: Range | None = None


def thread_axis(
    dom: ExprLike | tuple[ExprLike, ExprLike] | str | None = None, tag: str = "", name: str = ""
) -> ThreadAxis:
    """The thread axis `tag` for `stage.bind`: `thread_axis("thread.x")`, `thread_axis((0, 32), "thread.x")`.

    "threadIdx.x" and "blockIdx.x" are other names of "thread.x" and "block.x"; "vthread" is a virtual axis.
    `name` is accepted for programs of TVM; the loop keeps the name of its own variable.
    """
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


def axis_name(name: str, known: Collection[str] = USUAL) -> str:
    """The name of a thread axis among those of a target, which may have another usual name.

    Virtual axes have any name that begins with "vthread". Raises UsageError, with similar names, if there is
    no such axis.
    """
    own = name if name in known else _OTHER.get(name, name)
    if own in known or level_of(name) == VIRTUAL:
        return own
    every = [*known, *(other for other, usual in _OTHER.items() if usual in known), "vthread"]
    near = similar(name, every)
    suggestion = f"did you mean {near[0]!r}? " if near else ""
    raise UsageError(
        f"there is no thread axis {name!r}",
        hint=f"{suggestion}there are {', '.join(known)} and vthread; `create_schedule(…, target=…)` takes the"
        " axes of a target",
    )


__all__ = ["USUAL", "ThreadAxis", "axis_name", "thread_axis"]
