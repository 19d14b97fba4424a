"""The simplifier: expressions to canonical polys over simplified atoms, and back.

Scalar expressions of index type become polys, and `logic` handles conditions. All other expressions are
rebuilt over simplified operands, so floats are never reordered. The result has the same value wherever the
original is defined.
"""

from __future__ import annotations

import math

from dlc_core.arith.minmax import MinMax
from dlc_core.arith.poly import (
    ONE,
    Poly,
    atom_poly,
    constant,
    shifted,
    times,
)
from dlc_core.arith.prove import QUERY_STEPS
from dlc_core.arith.rules import candidates, instantiate, match
from dlc_core.ir.dtype import INDEX
from dlc_core.ir.expr import (
    Binary,
    Broadcast,
    Cast,
    Const,
    Expr,
    Ramp,
    Select,
    Unary,
    Var,
    binary,
    broadcast,
    cast_to,
    const,
    post_order,
    ramp,
    select,
)

MAX_TERMS = 32
"""Terms of a multiplied-out product; a larger product stays a product of sums.

It limits the size of polys, which grows exponentially with the number of factors. Not measured.
"""
MAX_FACTORS = 16
"""Factors of a product that are collected; further factors are multiplied first. Not measured."""
MAX_DEPTH = 60
"""Nested operands that are simplified recursively. Deeper operands are simplified first, so that Python's
limit of 1000 frames is not reached: one level takes several frames.
"""
MAX_CHAIN = 64
"""Nodes of a sum that are added at once; a longer chain is split into memoised parts, so that sums that share
a part do not add it again. Not measured.
"""
_COMMUTING_BITS = frozenset({"bitand", "bitor", "bitxor"})


class Simplifier(MinMax):
    """Simplification of any expression."""

    def __init__(self) -> None:
        super().__init__()
        self._depth = 0

    # Entry points by type.

    def _expr(self, e: Expr) -> Expr:
        """The simplified form of any expression."""
        found = self._memo.exprs.get(e)
        if found is not None:
            return found
        if e.dtype is INDEX:
            result = self.emit(self._poly(e))
        elif not e.children:
            result = self._with_known_truth(e)
        else:
            self._enter(e)
            try:
                result = self._other(e)
            finally:
                self._depth -= 1
        self._memo.exprs[e] = result
        self._memo.exprs.setdefault(result, result)
        return result

    def _poly(self, e: Expr) -> Poly:
        """The canonical poly of a scalar index expression."""
        found = self._memo.polys.get(e)
        if found is not None:
            return found
        if type(e) is Var:
            found = self._memo.polys[e] = self._variable(e)
            return found
        self._enter(e)
        try:
            result = self._index(e)
        finally:
            self._depth -= 1
        self._memo.polys[e] = result
        return result

    def _enter(self, e: Expr) -> None:
        """Limit the recursion: at MAX_DEPTH, operands are simplified before their users."""
        if not self._depth:
            self._query_left = QUERY_STEPS
        self._depth += 1
        if self._depth % MAX_DEPTH:
            return
        depth, self._depth = self._depth, 1
        try:
            for x in post_order(e):
                if x is not e and not _in_sum(x):
                    self._expr(x)
        finally:
            self._depth = depth

    def _index(self, e: Expr) -> Poly:
        if isinstance(e, Const):
            return constant(int(e.value))
        if isinstance(e, Binary):
            op = e.op
            if op in ("add", "sub"):
                return self._sum(e)
            if op == "mul":
                return self._product(e)
            if op == "floordiv":
                return self._recombined(self._floordiv(self._poly(e.a), self._poly(e.b)))
            if op == "floormod":
                return self._recombined(self._floormod(self._poly(e.a), self._poly(e.b)))
            if op in ("min", "max"):
                return self._extremum(op, e)
            if op in ("div", "truncdiv", "truncmod"):
                return self._truncating(op, e)
            return self._bitwise(op, e)
        if isinstance(e, Unary):
            p = self._poly(e.a)
            return times(p, -1) if e.op == "neg" else shifted(times(p, -1), -1)
        if isinstance(e, Select):
            return self._select(self._expr(e.cond), self._poly(e.a), self._poly(e.b))
        if isinstance(e, Cast):
            return self._cast(e)
        return self._atom(e.rebuild([self._expr(c) for c in e.children]))

    def _atom(self, e: Expr) -> Poly:
        known = self._known.values.get(e) if self._known.values else None
        result = atom_poly(e) if known is None else known
        self._memo.polys[e] = result
        return result

    def _variable(self, e: Var) -> Poly:
        known = self._known.values.get(e) if self._known.values else None
        if known is not None:
            return known
        low, high = self._range_of(e).interval
        return constant(int(low)) if low == high else atom_poly(e)

    # Sums and products.

    def _sum(self, root: Expr) -> Poly:
        total: Poly = {}
        stack: list[tuple[Expr, int]] = [(root, 1)]
        steps = 0
        polys = self._memo.polys
        while stack:
            e, k = stack.pop()
            known = polys.get(e)
            if known is None:
                steps += 1
                if type(e) is Binary and (steps <= MAX_CHAIN or e is root):
                    op = e.op
                    if op == "add":
                        stack += ((e.b, k), (e.a, k))
                        continue
                    if op == "sub":
                        stack += ((e.b, -k), (e.a, k))
                        continue
                    if op == "mul" and type(factor := e.b) is Const:
                        stack.append((e.a, k * int(factor.value)))
                        continue
                elif type(e) is Const:
                    total[ONE] = total.get(ONE, 0) + k * int(e.value)
                    continue
                known = self._poly(e)
            for m, c in known.items():
                total[m] = total.get(m, 0) + c * k
        if 0 in total.values():
            total = {m: c for m, c in total.items() if c}
        return self._recombined(total)

    def _product(self, root: Expr) -> Poly:
        factors: list[Poly] = []
        stack = [root]
        while stack:
            e = stack.pop()
            if isinstance(e, Binary) and e.op == "mul" and len(factors) + len(stack) < MAX_FACTORS:
                stack += (e.b, e.a)
            else:
                factors.append(self._poly(e))
        scale = 1
        mono: list[Expr] = []
        sums: list[Poly] = []
        for p in factors:
            if not p:
                return {}
            if len(p) == 1:
                ((m, c),) = p.items()
                scale *= c
                mono += m
            else:
                sums.append(p)
        result: Poly = {self.mono(mono): scale}
        if math.prod(map(len, sums)) > MAX_TERMS:
            opaque = [self.emit(p) for p in sums]
            for e, p in zip(opaque, sums):
                self._memo.polys.setdefault(e, p)
            return {self.mono([*mono, *opaque]): scale}
        for p in sums:
            result = self.mul(result, p)
        return self._recombined(result)

    # Other operators.

    def _truncating(self, op: str, e: Binary) -> Poly:
        a, b = self._poly(e.a), self._poly(e.b)
        (low, high), (blow, bhigh) = self._poly_bounds(a), self._poly_bounds(b)
        if bhigh < 0:
            # The divisor's sign affects only the sign of the quotient.
            flipped = self._index_binary(op, self.emit(a), self.emit(times(b, -1)))
            return times(flipped, -1) if op != "truncmod" else flipped
        if high <= 0 and low < 0:
            return times(self._index_binary(op, self.emit(times(a, -1)), self.emit(b)), -1)
        if blow >= 0 and (low >= 0 or self._nonneg(a)):
            return self._floormod(a, b) if op == "truncmod" else self._floordiv(a, b)
        kept = binary("truncmod" if op == "truncmod" else "truncdiv", self.emit(a), self.emit(b))
        return (
            self._atom(kept) if isinstance(kept, Binary) and kept.op.startswith("trunc") else self._poly(kept)
        )

    def _index_binary(self, op: str, a: Expr, b: Expr) -> Poly:
        return self._poly(binary(op, a, b))

    def _bitwise(self, op: str, e: Binary) -> Poly:
        a, b = self._expr(e.a), self._expr(e.b)
        if isinstance(a, Const) and op in _COMMUTING_BITS:
            a, b = b, a
        literal = int(b.value) if isinstance(b, Const) else -1
        if op == "shl" and 0 <= literal < 63:
            return times(self._poly(a), 1 << literal)
        if op == "shr" and 0 <= literal < 63:
            return self._floordiv(self._poly(a), constant(1 << literal))
        if op == "bitand" and literal >= 0 and literal & (literal + 1) == 0:
            return self._floormod(self._poly(a), constant(literal + 1))
        if literal == 0 and isinstance(b, Const):
            return {} if op == "bitand" else self._poly(a)
        if a is b and op in _COMMUTING_BITS:
            return {} if op == "bitxor" else self._poly(a)
        if op == "bitand" and isinstance(b, Const) and int(b.value) == -1:
            return self._poly(a)
        rebuilt = binary(op, a, b)
        return self._poly(rebuilt) if isinstance(rebuilt, Const) else self._atom(rebuilt)

    def _cast(self, e: Cast) -> Poly:
        a = self._expr(e.a)
        if isinstance(a, Cast) and a.a.dtype is INDEX:
            # A cast to a narrower type and back is redundant if the value fits.
            low, high = self._poly_bounds(self._poly(a.a))
            if a.dtype.is_int and a.dtype.int_range()[0] <= low and high <= a.dtype.int_range()[1]:
                return self._poly(a.a)
        rebuilt = cast_to(INDEX, a)
        return self._poly(rebuilt) if isinstance(rebuilt, Const) else self._atom(rebuilt)

    # Everything that is not a scalar index expression.

    def _other(self, e: Expr) -> Expr:
        if e.dtype.is_bool and e.dtype.lanes == 1:
            if isinstance(e, Select):
                return self._with_known_truth(self._bool_select(e))
            return self._bool(e)
        children = [self._expr(c) for c in e.children]
        if isinstance(e, Binary) and e.dtype.lanes > 1 and e.a.dtype.scalar is INDEX:
            vector = self._vector(e.op, children[0], children[1])
            if vector is not None:
                return vector
        if isinstance(e, Cast) and isinstance(children[0], Cast) and e.dtype.is_int and e.dtype.lanes == 1:
            inner = children[0]
            if inner.dtype.is_int and inner.a.dtype.is_int:
                low, high = self._bounds_of(inner.a)
                if inner.dtype.int_range()[0] <= low and high <= inner.dtype.int_range()[1]:
                    return self._expr(cast_to(e.dtype, inner.a))
        if isinstance(e, Ramp) and isinstance(children[1], Const) and not children[1].value:
            return broadcast(children[0], e.lanes)
        return e.rebuild(children)

    def _bool_select(self, e: Select) -> Expr:
        cond, a, b = (self._expr(c) for c in e.children)
        if isinstance(cond, Unary) and cond.op == "not":
            cond, a, b = cond.a, b, a
        if isinstance(a, Const):
            other = b if a.value else binary("and", self._not(cond), b)
            return self._expr(binary("or", cond, other)) if a.value else self._expr(other)
        if isinstance(b, Const):
            return self._expr(binary("or", self._not(cond), a) if b.value else binary("and", cond, a))
        return select(cond, a, b)

    def _vector(self, op: str, a: Expr, b: Expr) -> Expr | None:
        """Arithmetic of ramps and broadcasts as a ramp or broadcast, if possible."""
        lanes = a.dtype.lanes
        if isinstance(a, Broadcast) and isinstance(b, Broadcast):
            return broadcast(self._expr(binary(op, a.value, b.value)), lanes)
        if op not in ("add", "sub", "mul"):
            return None
        parts = [(x.base, x.stride) if isinstance(x, Ramp) else _as_ramp(x) for x in (a, b)]
        if parts[0] is None or parts[1] is None:
            return None
        (base, stride), (other, step) = parts[0], parts[1]
        if op != "mul":
            new = binary(op, base, other), binary(op, stride, step)
        elif isinstance(a, Broadcast) or isinstance(b, Broadcast):
            if isinstance(a, Broadcast):
                base, stride, other = other, step, base
            new = base * other, stride * other
        else:
            return None
        return self._expr(ramp(new[0], new[1], lanes))

    # Rules.

    def _rewrite(self, e: Expr) -> Expr | None:
        """The expression after the first rule that applies, or None."""
        for rule in candidates(e):
            found: dict[Var, Expr] = {}
            if not match(rule.pattern, e, found) or not rule.fits(found):
                continue
            conditions = [self._expr(instantiate(c, found)) for c in rule.proved]
            if all(isinstance(c, Const) and c.value for c in conditions):
                return instantiate(rule.replacement, found)
        return None


def _in_sum(e: Expr) -> bool:
    return isinstance(e, Binary) and e.op in ("add", "sub")


def _as_ramp(e: Expr) -> tuple[Expr, Expr] | None:
    return (e.value, const(0)) if isinstance(e, Broadcast) else None
