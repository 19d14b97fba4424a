"""The arithmetic of a statement by kind."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dlc_core.ir.expr import Binary, Call, Cast, Expr, Select, Unary, post_order

KINDS = (
    "float_mul",
    "float_add",
    "float_div",
    "function",
    "integer",
    "integer_div",
    "compare",
    "select",
    "cast",
)
"""Kinds of arithmetic. Those of indices are integer ones."""
_COMPARISONS = frozenset({"lt", "le", "gt", "ge", "eq", "ne", "and", "or"})
_DIVISIONS = frozenset({"div", "floordiv", "floormod", "truncdiv", "truncmod"})


def operations(exprs: Iterable[Expr]) -> Mapping[str, int]:
    """The operations of distinct expressions, by kind; vectors count their lanes."""
    counts = dict.fromkeys(KINDS, 0)
    for e in post_order(*exprs):
        kind = _kind(e)
        if kind:
            counts[kind] += e.dtype.lanes
    return counts


def _kind(e: Expr) -> str:
    match e:
        case Binary():
            if e.op in _COMPARISONS:
                return "compare"
            if not e.a.dtype.is_float:
                return "integer_div" if e.op in _DIVISIONS else "integer"
            return {"mul": "float_mul", "div": "float_div"}.get(e.op, "float_add")
        case Call(name="if_then_else") | Select():
            return "select"
        case Call():
            return "function"
        case Cast():
            return "cast"
        case Unary():
            return "float_add" if e.dtype.is_float else "integer"
    return ""


__all__ = ["KINDS", "operations"]
