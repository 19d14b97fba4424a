"""Simplification of min, max and select of polys: redundant operands, common factors and terms, nested
selects."""

from __future__ import annotations

import math

from dlc_core.arith.logic import Logic
from dlc_core.arith.poly import (
    Mono,
    Poly,
    add_scaled,
    constant_of,
    content,
    exact_div,
    poly_key,
    shifted,
    sub,
    times,
)
from dlc_core.ir.dtype import INDEX
from dlc_core.ir.expr import Binary, Const, Expr, Select, Unary, binary, select

MAX_PAIRWISE = 8
"""Operands of one min or max that are compared pairwise; further operands are kept unexamined.

It limits the number of proofs, which is quadratic in the operands. A larger number only removes more
operands. Not measured.
"""


class MinMax(Logic):
    """Simplification of min, max and select."""

    def _atom(self, e: Expr) -> Poly:
        raise NotImplementedError

    def _extremum(self, op: str, root: Expr) -> Poly:
        polys: dict[frozenset[tuple[Mono, int]], Poly] = {}
        stack = [root]
        while stack:
            e = stack.pop()
            if isinstance(e, Binary) and e.op == op:
                stack += (e.b, e.a)
            else:
                p = self._poly(e)
                polys.setdefault(poly_key(p), p)
        return self._extremum_of(op, list(polys.values()))

    def _extremum_of(self, op: str, operands: list[Poly]) -> Poly:
        operands = self._flattened(op, operands)
        kept: list[Poly] = []
        for p in operands:
            if len(kept) <= MAX_PAIRWISE:
                if any(self._dominates(op, q, p) for q in kept):
                    continue
                kept = [q for q in kept if not self._dominates(op, p, q)]
            kept.append(p)
        if len(kept) == 1:
            return kept[0]
        common, rests = _common_terms(kept)
        g = _common_scale(rests)
        rests = [exact_div(p, g) for p in rests]
        if self._flattened(op, rests) != rests:
            return add_scaled(common, self._extremum_of(op, rests), g)
        rests.sort(key=self.sort_key)
        total = self.emit(rests[0])
        for p in rests[1:]:
            total = binary(op, total, self.emit(p))
            better = self._rewrite(total) if isinstance(total, Binary) and total.op == op else None
            total = total if better is None else self._expr(better)
        if isinstance(total, Binary) and total.op == op:
            return self._recombined(add_scaled(common, self._atom(total), g))
        return self._recombined(add_scaled(common, self._poly(total), g))

    def _flattened(self, op: str, operands: list[Poly]) -> list[Poly]:
        out: list[Poly] = []
        stack = operands[::-1]
        while stack:
            p = stack.pop()
            if len(p) == 1:
                ((m, c),) = p.items()
                if c == 1 and len(m) == 1 and isinstance(m[0], Binary) and m[0].op == op:
                    stack += (self._poly(m[0].b), self._poly(m[0].a))
                    continue
            if p not in out:
                out.append(p)
        return out

    def _dominates(self, op: str, p: Poly, q: Poly) -> bool:
        """Whether p makes q redundant."""
        return self._nonneg(sub(q, p) if op == "min" else sub(p, q))

    def _select(self, cond: Expr, a: Poly, b: Poly) -> Poly:
        if isinstance(cond, Const):
            return a if cond.value else b
        gap = sub(a, b)
        if not gap:
            return a
        if isinstance(cond, Unary) and cond.op == "not":
            return self._select(cond.a, b, a)
        if isinstance(cond, Binary) and cond.op == "lt" and cond.a.dtype is INDEX:
            # select(a - b < 0, a, b) is min(a, b): if a equals b, either side is right.
            x = self._recombined(sub(self._poly(cond.a), self._poly(cond.b)))
            scaled = times(x, content(gap) // (content(x) or 1))
            if gap in (scaled, shifted(x, 1)):
                return self._extremum_of("min", [a, b])
            if times(gap, -1) in (scaled, shifted(x, 1)):
                return self._extremum_of("max", [a, b])
        if isinstance(cond, Binary) and cond.op in ("eq", "ne") and cond.a.dtype is INDEX:
            x = sub(self._poly(cond.a), self._poly(cond.b))
            if times(x, content(gap) // content(x)) in (gap, times(gap, -1)):
                return b if cond.op == "eq" else a
        common, (first, second) = _common_terms([a, b])
        g = _common_scale([first, second])
        e = select(cond, self.emit(exact_div(first, g)), self.emit(exact_div(second, g)))
        better = self._rewrite(e) if isinstance(e, Select) else e
        inner = self._atom(e) if better is None else self._poly(better)
        return self._recombined(add_scaled(common, inner, g))

    def _cancel_into_atom(self, p: Poly, m: Mono, atom: Expr) -> Poly | None:
        """Move a term into a min, max or select where it cancels: min(x + y, z) - x becomes min(y, z - x).
        None if nothing cancels.
        """
        k = p[m]
        operands = [self._poly(child) for child in atom.children[-2:]]
        moved = {n: c for q in operands for n, c in q.items() if n and p.get(n) == -k * c}
        if not moved:
            return None
        rest = add_scaled(p, moved, k)
        del rest[m]
        first, second = (self._recombined(sub(q, moved)) for q in operands)
        if isinstance(atom, Select):
            return add_scaled(rest, self._select(atom.cond, first, second), k)
        assert isinstance(atom, Binary)
        return add_scaled(rest, self._extremum_of(atom.op, [first, second]), k)


def _common_scale(polys: list[Poly]) -> int:
    """The common factor of all polys. It is 1 if one is a constant, because the result is more readable
    without a factor.
    """
    return 1 if any(constant_of(p) is not None for p in polys) else math.gcd(*map(content, polys))


def _common_terms(polys: list[Poly]) -> tuple[Poly, list[Poly]]:
    """The terms that all polys have, and the remaining terms of each."""
    first = polys[0]
    common = {m: c for m, c in first.items() if all(p.get(m) == c for p in polys[1:])}
    return common, [{m: c for m, c in p.items() if m not in common} for p in polys] if common else polys
