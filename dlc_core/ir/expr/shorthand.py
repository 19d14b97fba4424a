"""Short names for common expressions, and their constant values."""

from __future__ import annotations

from dlc_core.ir.dtype import BOOL
from dlc_core.ir.expr.grammar import Binary, Const, Expr, ExprLike, as_expr
from dlc_core.ir.expr.make import binary, const


def eq(a: ExprLike, b: ExprLike) -> Expr:
    return binary("eq", a, b)


def ne(a: ExprLike, b: ExprLike) -> Expr:
    return binary("ne", a, b)


def minimum(a: ExprLike, b: ExprLike) -> Expr:
    return binary("min", a, b)


def maximum(a: ExprLike, b: ExprLike) -> Expr:
    return binary("max", a, b)


def ceildiv(a: ExprLike, b: ExprLike) -> Expr:
    """ceil(a / b) of integers, b > 0."""
    return (as_expr(a) + (as_expr(b) - 1)) // b


def logical_and(*conds: ExprLike) -> Expr:
    result: Expr = const(True, BOOL)
    for cond in conds:
        result = binary("and", result, as_expr(cond))
    return result


def conjuncts(cond: Expr) -> list[Expr]:
    """The conjuncts of a condition, in order; none for True."""
    found: list[Expr] = []
    work = [cond]
    while work:
        item = work.pop()
        if isinstance(item, Binary) and item.op == "and":
            work += (item.b, item.a)
        elif not (isinstance(item, Const) and item.value):
            found.append(item)
    return found


def const_value(expr: ExprLike) -> int | None:
    """The integer that an expression is known to be; None for others."""
    if isinstance(expr, bool):
        return int(expr)
    if isinstance(expr, int):
        return expr
    return int(expr.value) if isinstance(expr, Const) and not expr.dtype.is_float else None
