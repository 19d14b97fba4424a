"""Whether evaluating an expression can fail."""

from __future__ import annotations

from collections.abc import Sequence

from dlc_core.arith import Analyzer
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.dtype import INDEX
from dlc_core.ir.expr import (
    Binary,
    Broadcast,
    Call,
    Const,
    Expr,
    Load,
    Ramp,
    logical_and,
    ne,
    post_order,
)
from dlc_core.tir.intrinsics import has_effect

DIVISIONS = frozenset({"floordiv", "floormod", "truncdiv", "truncmod", "div"})


def is_safe(root: Expr, analyzer: Analyzer) -> bool:
    """Whether the facts of `analyzer` prove that an expression neither reads out of bounds nor divides by
    zero.

    The sides of `if_then_else` are evaluated under its condition. False may also mean that no proof is known.
    """
    work = [root]
    seen: set[Expr] = set()
    while work:
        e = work.pop()
        if e in seen:
            continue
        seen.add(e)
        if isinstance(e, Call) and e.name == "if_then_else" and e.args[0].dtype.lanes == 1:
            cond, a, b = e.args
            work.append(cond)
            with analyzer.assume(cond):
                if not is_safe(a, analyzer):
                    return False
            with analyzer.assume(~cond):
                if not is_safe(b, analyzer):
                    return False
            continue
        if isinstance(e, Call) and e.name == "address_of":
            work += (index for arg in e.args for index in arg.children)
            continue
        if not _node_is_safe(e, analyzer):
            return False
        work += e.children
    return True


def _node_is_safe(e: Expr, analyzer: Analyzer) -> bool:
    if isinstance(e, Load):
        return in_bounds(e.buffer, e.indices, analyzer)
    if isinstance(e, Binary) and e.op in DIVISIONS and not e.dtype.is_float:
        divisor = e.b.value if isinstance(e.b, Broadcast) else e.b
        if isinstance(divisor, Const):
            return bool(divisor.value)
        return divisor.dtype is INDEX and analyzer.prove(ne(divisor, 0))
    return not has_effect(e)


def in_bounds(buffer: Buffer, indices: Sequence[Expr], analyzer: Analyzer) -> bool:
    """Whether an access is proved to be in bounds in all lanes."""
    return all(analyzer.prove(inside(index, dim)) for index, dim in zip(indices, buffer.shape, strict=True))


def inside(index: Expr, dim: Expr) -> Expr:
    """Return the condition that all lanes of an index are within a dim; false if it cannot be expressed."""
    if isinstance(index, Ramp):
        return logical_and(*(inside(index.base + index.stride * lane, dim) for lane in (0, index.lanes - 1)))
    if isinstance(index, Broadcast):
        return inside(index.value, dim)
    if index.dtype.lanes > 1:
        return ~logical_and()
    index = index.astype(INDEX)
    return logical_and(index >= 0, index < dim.astype(INDEX))


def may_fail(root: Expr) -> bool:
    """Whether an expression contains a load, a division or a call with an effect, which may fail."""
    return any(
        isinstance(e, Load) or has_effect(e) or (isinstance(e, Binary) and e.op in DIVISIONS)
        for e in post_order(root)
    )


__all__ = ["in_bounds", "inside", "is_safe", "may_fail"]
