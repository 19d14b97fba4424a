"""Verification of thread axes. `tir/threads.py` explains their names."""

from __future__ import annotations

from collections.abc import Iterator

from dlc_core.ir.expr import Call, post_order
from dlc_core.tir.functor import child_stmts, exprs_of
from dlc_core.tir.intrinsics import CONVERGENT
from dlc_core.tir.stmt import For, Stmt
from dlc_core.tir.threads import GROUP, THREAD, VIRTUAL, level

Loops = tuple[For, ...]


def thread_problems(root: Stmt) -> Iterator[tuple[str, Stmt]]:
    """Violations of these rules, with the statements:

    * a loop over groups is not nested in a loop over threads;
    * nested loops over the same axis have equal extents;
    * a parallel or vectorized loop has no barrier, because its iterations belong to one thread.
    """
    work: list[tuple[Stmt, Loops]] = [(root, ())]
    while work:
        stmt, enclosing = work.pop()
        if isinstance(stmt, For) and stmt.kind == "thread":
            yield from ((message, stmt) for message in _axis_problems(stmt, enclosing))
        for name in _convergent(stmt):
            parallel = [s for s in enclosing if s.kind in ("parallel", "vectorized")]
            if parallel:
                yield f"{name} in the {parallel[-1].kind} loop over {parallel[-1].var.name}", stmt
        if isinstance(stmt, For) and stmt.kind in ("thread", "parallel", "vectorized"):
            enclosing = (*enclosing, stmt)
        work.extend((child, enclosing) for child in reversed(child_stmts(stmt)))


def _axis_problems(axis: For, enclosing: Loops) -> Iterator[str]:
    own = level(axis)
    for outer in enclosing:
        if own == GROUP and level(outer) in (THREAD, VIRTUAL):
            yield f"the axis {axis.thread} of groups stands inside the axis {outer.thread} of threads"
        if own != VIRTUAL and outer.thread == axis.thread and outer.extent is not axis.extent:
            yield (
                f"loops over {outer.var.name} and {axis.var.name}, inside each other, are both bound to "
                f"{axis.thread} with extents {outer.extent} and {axis.extent}"
            )


def _convergent(stmt: Stmt) -> list[str]:
    return [e.name for e in post_order(*exprs_of(stmt)) if isinstance(e, Call) and e.name in CONVERGENT]


__all__ = ["thread_problems"]
