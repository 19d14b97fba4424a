"""Conditions: canonical comparisons, and conjunctions and disjunctions of them.

Integer comparisons become `a < b`, `a == b` or `a != b`. Both sides have positive coefficients and no common
factor, and the constant is on the right if the left side is not empty.
"""

from __future__ import annotations

import math

from dlc_core.arith.pairs import Pairs
from dlc_core.arith.poly import ONE, Poly, exact_div, poly_key, shifted, sub, times
from dlc_core.ir.dtype import BOOL, INDEX
from dlc_core.ir.expr import (
    COMPARE,
    Binary,
    Const,
    Expr,
    Load,
    Select,
    Unary,
    binary,
    const,
    post_order,
    select,
    unary,
)

TRUE: Expr = const(True, BOOL)
FALSE: Expr = const(False, BOOL)
_NEGATED = {"eq": "ne", "ne": "eq", "lt": "ge", "ge": "lt", "le": "gt", "gt": "le"}


def _truth(value: bool) -> Expr:
    return TRUE if value else FALSE


class Logic(Pairs):
    """Simplified bool expressions."""

    def _expr(self, e: Expr) -> Expr:
        raise NotImplementedError

    def _bool(self, e: Expr) -> Expr:
        """The simplified form of a scalar condition."""
        if isinstance(e, Binary):
            if e.op in COMPARE:
                return self._with_known_truth(self._comparison(e))
            if e.op in ("and", "or"):
                return self._with_known_truth(self._junction(e))
        if isinstance(e, Unary) and e.op == "not":
            return self._with_known_truth(self._not(self._expr(e.a)))
        return self._with_known_truth(e.rebuild([self._expr(c) for c in e.children]))

    def _with_known_truth(self, e: Expr) -> Expr:
        known = self._known.truths.get(e) if self._known.truths else None
        return e if known is None else _truth(known)

    def _not(self, e: Expr) -> Expr:
        """The negation of a simplified condition."""
        if isinstance(e, Const):
            return _truth(not e.value)
        found = self._memo.negations.get(e)
        if found is None:
            found = self._memo.negations[e] = self._negated(e)
        return found

    def _negated(self, e: Expr) -> Expr:
        if isinstance(e, Unary) and e.op == "not":
            return e.a
        if isinstance(e, Binary) and e.op in COMPARE and _is_index(e):
            return self._compare(_NEGATED[e.op], self._poly(e.a), self._poly(e.b))
        if isinstance(e, Binary) and e.op in ("and", "or"):
            flipped = "or" if e.op == "and" else "and"
            return self._expr(binary(flipped, self._not(e.a), self._not(e.b)))
        if isinstance(e, Select):
            return self._expr(select(e.cond, self._not(e.a), self._not(e.b)))
        return unary("not", e)

    # Comparisons.

    def _comparison(self, e: Binary) -> Expr:
        if _is_index(e):
            return self._compare(e.op, self._poly(e.a), self._poly(e.b))
        a, b = self._expr(e.a), self._expr(e.b)
        if a.dtype.is_int and a.dtype.lanes == 1:
            known = _decide(e.op, self._bounds_of(a), self._bounds_of(b))
            if known is not None:
                return _truth(known)
        return e.rebuild([a, b])

    def _compare(self, op: str, a: Poly, b: Poly) -> Expr:
        if op in ("gt", "ge"):
            a, b, op = b, a, "lt" if op == "gt" else "le"
        p = self._recombined(sub(a, b))
        if op == "le":
            p, op = shifted(p, -1), "lt"
        return self._less(p) if op == "lt" else self._equal(op, p)

    def _less(self, p: Poly) -> Expr:
        """p < 0"""
        low, high = self._poly_bounds(p)
        if high < 0:
            return TRUE
        if low >= 0:
            return FALSE
        g = math.gcd(*(c for m, c in p.items() if m))
        start = p.get(ONE, 0)
        if g > 1:
            # If g divides all of X: X + start < 0 is equivalent to X/g + floor(start/g) < 0.
            return self._less(shifted({m: c // g for m, c in p.items() if m}, start // g))
        if self._nonneg(shifted(times(p, -1), -1)):
            return TRUE
        if self._nonneg(p):
            return FALSE
        bigger = self._drop_small_part(p)
        if bigger is not p:
            return self._less(bigger)
        left = {m: c for m, c in p.items() if m and c > 0}
        right = {m: -c for m, c in p.items() if m and c < 0}
        left, right = (left, shifted(right, -start)) if left else (shifted(left, start), right)
        return self._finish(binary("lt", self.emit(left), self.emit(right)))

    def _drop_small_part(self, p: Poly) -> Poly:
        """Simplify g*H + L < 0 to g*H < 0 where 0 <= L < g."""
        coefficients = {abs(c) for m, c in p.items() if m}
        if len(coefficients) < 2:
            return p
        for g in sorted(coefficients - {1}, reverse=True):
            small = self._split_small_part({m: c for m, c in p.items() if m}, p.get(ONE, 0), g)
            if small is not None:
                return shifted(small[0], g * small[2])
        return p

    def _equal(self, op: str, p: Poly) -> Expr:
        """p == 0 or p != 0"""
        yes, no = (TRUE, FALSE) if op == "eq" else (FALSE, TRUE)
        if not p:
            return yes
        low, high = self._poly_bounds(p)
        if low > 0 or high < 0:
            return no
        start = p.get(ONE, 0)
        g = math.gcd(*(c for m, c in p.items() if m))
        if g == 0 or start % g:
            return no
        if self._known.residues:
            modulus, residue = self._poly_residue(p)
            if residue % (modulus or 1):
                return no
        if self._nonneg(shifted(p, -1)) or self._nonneg(shifted(times(p, -1), -1)):
            return no
        if self._zero(p):
            return yes
        p = exact_div(p, g)
        if self.sorted_terms(p)[0][1] < 0:
            p = times(p, -1)
        left = {m: c for m, c in p.items() if m and c > 0}
        right = shifted({m: -c for m, c in p.items() if m and c < 0}, -p.get(ONE, 0))
        return self._finish(binary(op, self.emit(left), self.emit(right)))

    def _finish(self, e: Expr) -> Expr:
        """A comparison in canonical form, after the rules."""
        if isinstance(e, Const):
            return e
        better = self._rewrite(e)
        return e if better is None else self._expr(better)

    # Conjunctions and disjunctions.

    def _junction(self, e: Binary) -> Expr:
        op = e.op
        terms: dict[Expr, None] = {}
        stack: list[Expr] = [e]
        while stack:
            x = stack.pop()
            if isinstance(x, Binary) and x.op == op:
                stack += (x.b, x.a)
                continue
            simple = self._expr(x)
            if isinstance(simple, Binary) and simple.op == op and simple is not x:
                stack += (simple.b, simple.a)
            else:
                terms[simple] = None
        neutral, absorbing = (TRUE, FALSE) if op == "and" else (FALSE, TRUE)
        terms.pop(neutral, None)
        if absorbing in terms or any(self._not(t) in terms for t in terms if not _is_less(t)):
            return absorbing
        kept = self._strongest(op, list(terms))
        kept = None if kept is None else self._merged(op, kept)
        if kept is None:
            return absorbing
        if not kept:
            return neutral
        total = kept[0]
        for term in kept[1:]:
            total = binary(op, total, term)
            better = self._rewrite(total) if isinstance(total, Binary) and total.op == op else None
            total = total if better is None else self._expr(better)
        return total

    def _strongest(self, op: str, terms: list[Expr]) -> list[Expr] | None:
        """Drop terms that another term of the same linear form implies. None on a contradiction."""
        limits: dict[frozenset[tuple[tuple[Expr, ...], int]], tuple[int, int]] = {}
        dropped: set[int] = set()
        for i, term in enumerate(terms):
            if not isinstance(term, Binary) or not _is_less(term):
                continue
            p = sub(self._poly(term.a), self._poly(term.b))
            start = p.pop(ONE, 0)
            key = poly_key(p)
            other = limits.get(key)
            if other is not None:
                # X + start < 0: the larger start gives the stronger condition.
                loser = i if (start <= other[0]) == (op == "and") else other[1]
                dropped.add(loser)
                if loser == i:
                    continue
            limits[key] = start, i
            opposite = limits.get(poly_key(times(p, -1)))
            if opposite is not None:
                # X < -start and X > opposite: false as a conjunction, true as a disjunction.
                first, last = opposite[0] + 1, -start - 1
                if (op == "and" and first > last) or (op == "or" and first <= last + 1):
                    return None
        return [term for i, term in enumerate(terms) if i not in dropped]


def _is_index(e: Binary) -> bool:
    """Whether a comparison is of indices, which never wrap around. 64-bit data may."""
    return e.a.dtype is INDEX and not any(isinstance(part, Load) for part in post_order(e))


def _is_less(e: Expr) -> bool:
    return isinstance(e, Binary) and e.op == "lt" and e.a.dtype is INDEX


def _decide(op: str, a: tuple[float, float], b: tuple[float, float]) -> bool | None:
    """Decide a comparison from the bounds of its operands."""
    if op in ("gt", "ge"):
        a, b, op = b, a, "lt" if op == "gt" else "le"
    if op == "lt":
        return True if a[1] < b[0] else False if a[0] >= b[1] else None
    if op == "le":
        return True if a[1] <= b[0] else False if a[0] > b[1] else None
    apart = a[1] < b[0] or b[1] < a[0]
    same = a[0] == a[1] == b[0] == b[1]
    return None if not apart and not same else same == (op == "eq")
