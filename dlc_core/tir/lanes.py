"""Lanes of vector expressions: the form of a vector index, and the scalar expression of one lane."""

from __future__ import annotations

from dlc_core.ir.expr import Binary, Broadcast, Expr, Ramp, const, const_value, transform


def ramp_form(expr: Expr) -> tuple[Expr, Expr] | None:
    """(value of lane 0, step between lanes) of an index; None if the step is not uniform."""
    if expr.dtype.lanes == 1:
        return expr, const(0, expr.dtype)
    if isinstance(expr, Ramp):
        return expr.base, expr.stride
    if isinstance(expr, Broadcast):
        return expr.value, const(0, expr.value.dtype)
    if isinstance(expr, Binary) and expr.op in ("add", "sub", "mul"):
        left, right = ramp_form(expr.a), ramp_form(expr.b)
        if left is None or right is None:
            return None
        if expr.op == "add":
            return left[0] + right[0], left[1] + right[1]
        if expr.op == "sub":
            return left[0] - right[0], left[1] - right[1]
        if const_value(right[1]) == 0:
            return left[0] * right[0], left[1] * right[0]
        if const_value(left[1]) == 0:
            return left[0] * right[0], left[0] * right[1]
    return None


def lane_of(expr: Expr, lane: int | Expr) -> Expr:
    """The scalar expression of one lane of a vector expression. The lane number may be an expression."""

    def visit(e: Expr) -> Expr | None:
        if isinstance(e, Ramp):
            type_ = e.base.dtype
            return e.base + e.stride * (const(lane, type_) if isinstance(lane, int) else lane.astype(type_))
        return e.value if isinstance(e, Broadcast) else None

    return transform(expr, visit)
