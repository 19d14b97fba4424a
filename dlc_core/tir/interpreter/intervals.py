"""Ranges of integer expressions, to omit checks that cannot fail.

Symbolic dims, and loops and axes over them, are assumed to be within ±2**40, which no memory exceeds. Other
unknowns have the range of their type.
"""

from __future__ import annotations

from dlc_core.ir.expr import Binary, Broadcast, Cast, Const, Expr, Ramp, Select, Unary, Var, post_order

Interval = tuple[int, int]
UNKNOWN_INDEX: Interval = (-(1 << 40), 1 << 40)


class Intervals:
    """Bind variables, then query ranges. Every variable is bound once, so results never change."""

    def __init__(self) -> None:
        self._known: dict[Expr, Interval] = {}
        self._raw: dict[Expr, Interval] = {}

    def bind(self, var: Var, low: int, high: int) -> None:
        self._known[var] = (low, max(low, high))

    def of(self, expr: Expr) -> Interval | None:
        """The range of an integer expression over all lanes; None for floats and handles."""
        if expr in self._known:
            return self._known[expr]
        for e in post_order(expr):
            if e not in self._known and (e.dtype.is_int or e.dtype.is_bool):
                low, high = e.dtype.int_range()
                raw = self._estimate(e) or (low, high)
                self._raw[e] = raw
                self._known[e] = raw if low <= raw[0] and raw[1] <= high else (low, high)
        return self._known.get(expr)

    def fits(self, expr: Expr) -> bool:
        """Whether exact arithmetic on the operands stays within the expression's type."""
        self.of(expr)
        return self._known[expr] == self._raw.get(expr)

    def within(self, expr: Expr, extent: int) -> bool:
        interval = self.of(expr)
        return interval is not None and interval[0] >= 0 and interval[1] < extent

    def _estimate(self, e: Expr) -> Interval | None:
        if isinstance(e, Const):
            return int(e.value), int(e.value)
        if isinstance(e, Broadcast):
            return self._known.get(e.value)
        if isinstance(e, Ramp):
            base, stride = self._known[e.base], self._known[e.stride]
            steps = (e.lanes - 1) * stride[0], (e.lanes - 1) * stride[1]
            return base[0] + min(0, *steps), base[1] + max(0, *steps)
        if isinstance(e, Cast):
            return self._known.get(e.a)
        if isinstance(e, Select):
            a, b = self._known[e.a], self._known[e.b]
            return min(a[0], b[0]), max(a[1], b[1])
        if isinstance(e, Binary) and not e.dtype.is_bool:
            return _binary(e.op, self._known[e.a], self._known[e.b])
        if isinstance(e, Unary) and not e.dtype.is_bool:
            low, high = self._known[e.a]
            return (-high, -low) if e.op == "neg" else (~high, ~low)
        return None


def _binary(op: str, a: Interval, b: Interval) -> Interval | None:
    if op == "add":
        return a[0] + b[0], a[1] + b[1]
    if op == "sub":
        return a[0] - b[1], a[1] - b[0]
    if op == "mul":
        products = (a[0] * b[0], a[0] * b[1], a[1] * b[0], a[1] * b[1])
        return min(products), max(products)
    if op == "min":
        return min(a[0], b[0]), min(a[1], b[1])
    if op == "max":
        return max(a[0], b[0]), max(a[1], b[1])
    if op == "floordiv" and b[0] > 0:
        quotients = (a[0] // b[0], a[0] // b[1], a[1] // b[0], a[1] // b[1])
        return min(quotients), max(quotients)
    if op == "floormod" and b[0] > 0:
        return (a[0], a[1]) if a[0] >= 0 and a[1] < b[0] else (0, b[1] - 1)
    if op in ("div", "truncdiv", "truncmod") and a[0] >= 0 and b[0] > 0:
        return (0, a[1]) if op != "truncmod" else (0, min(a[1], b[1] - 1))
    if op == "bitand" and a[0] >= 0 and b[0] >= 0:
        return 0, min(a[1], b[1])
    if op in ("floormod", "truncmod", "bitand", "bitor", "bitxor", "shr"):
        return None
    return -(1 << 128), 1 << 128
