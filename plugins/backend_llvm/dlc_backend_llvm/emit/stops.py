"""Stop points: where a running kernel looks whether its call is cancelled.

A stop point is a load of the thread's stop word and a branch, so it belongs neither into short loops nor into
the innermost ones. Loops are annotated such that between two stop points a kernel does at most about `MOST`
and, on the way into the loop, at least about `LEAST` operations. A loop with a small body and many iterations
is divided into parts, with a stop point before each.

    for i in range(1 << 40):          for part in range(1 << 24):      # annotated
        S                       =>        for i in range(part * 65536, (part + 1) * 65536):
                                              S

A symbolic extent counts as `SYMBOLIC` inside other loops. The outermost loops of symbolic extent are divided.
Foreign functions and products in tile registers are not interrupted.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf

from dlc_core.ir.expr import Call, Expr, Var, const, const_value, minimum, post_order
from dlc_core.tir.functor import exprs_of, transform_stmt
from dlc_core.tir.stmt import For, If, Stmt, While

STOP = "stop"
"""The annotation of a loop with a stop point at the begin of its body. Of a parallel loop the value is the
number of iterations between stop points; other loops have 1."""
LEAST = 1 << 12
"""Operations after which a stop point costs nothing that could be measured."""
MOST = 1 << 20
"""Operations between stop points: a few milliseconds at most."""
PART = 1 << 16
"""Operations of a part of a divided loop."""
SYMBOLIC = 1 << 12
_LANES = 16
"""The lanes of a vector that count as one operation."""
_FUNCTION = 16
"""Operations of an intrinsic."""


def with_stops(body: Stmt) -> Stmt:
    """Annotate the loops that get stop points, and divide long loops with small bodies."""
    costs: dict[int, float] = {}

    def visit(stmt: Stmt) -> Stmt | None:
        children = [costs[id(child)] for child in stmt.child_stmts()]
        if not isinstance(stmt, For):
            own = sum(map(_cost, post_order(*exprs_of(stmt))))
            costs[id(stmt)] = own + (max(children) if isinstance(stmt, If) else sum(children))
            return None
        made, costs_made = _loop(stmt, children[0])
        costs[id(made)] = costs_made
        return made

    root = transform_stmt(body, stmt_fn=visit)
    return _with_outer_parts(root, costs)


def _cost(e: Expr) -> float:
    return (_FUNCTION if isinstance(e, Call) else 1) * max(1, e.dtype.lanes // _LANES)


def _loop(loop: For, inner: float) -> tuple[For, float]:
    """A loop with its stop points, and the operations without one."""
    extent = const_value(loop.extent)
    total = max(inner, 1) * (SYMBOLIC if extent is None else max(extent, 0))
    if total <= MOST:
        return loop, total
    if inner >= LEAST:
        return _annotated(loop, 1), inner
    if extent is None:
        return loop, total
    return divided(_annotated(loop, _iterations(inner))), PART


def _with_outer_parts(root: Stmt, costs: dict[int, float]) -> Stmt:
    """Divide the outermost loops of symbolic extent that have no stop point."""
    found: set[int] = set()
    pending = [root]
    while pending:
        stmt = pending.pop()
        if isinstance(stmt, For) and const_value(stmt.extent) is None and STOP not in stmt.annotations:
            found.add(id(stmt))
        else:
            pending += stmt.child_stmts()
    if not found:
        return root

    def visit(stmt: Stmt) -> Stmt | None:
        if id(stmt) not in found or not isinstance(stmt, For):
            return None
        each = costs.get(id(stmt), inf) / SYMBOLIC
        return divided(_annotated(stmt, _iterations(each)))

    return transform_stmt(root, stmt_fn=visit)


def _iterations(each: float) -> int:
    """The iterations of a part, whose operations are `each`: a power of two, so that divisions are shifts."""
    return 1 << max(0, int(PART // max(each, 1)).bit_length() - 1)


def _annotated(loop: For, iterations: int) -> For:
    return replace(loop, annotations={**loop.annotations, STOP: iterations})


def divided(loop: For) -> For:
    """An annotated loop with a stop point after so many iterations. A parallel loop is unchanged; its serial
    form is divided when it is outlined.
    """
    size = loop.annotations.get(STOP, 1)
    if size == 1 or loop.kind == "parallel":
        return loop
    part = Var("part", loop.var.dtype)
    first, step = part * size, const(size, loop.var.dtype)
    notes = {key: value for key, value in loop.annotations.items() if key != STOP}
    inner = replace(
        loop, begin=loop.begin + first, extent=minimum(step, loop.extent - first), annotations=notes
    )
    count = (loop.extent + (size - 1)) // size
    return For(part, const(0, loop.var.dtype), count, inner, annotations={STOP: 1})


def can_stop(body: Stmt) -> bool:
    """Whether a statement may run so long that it has stop points."""
    pending = [body]
    while pending:
        stmt = pending.pop()
        if isinstance(stmt, While) or (isinstance(stmt, For) and STOP in stmt.annotations):
            return True
        pending += stmt.child_stmts()
    return False


__all__ = ["STOP", "can_stop", "divided", "with_stops"]
