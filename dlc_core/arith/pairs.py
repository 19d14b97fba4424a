"""Simplification of pairs of comparisons in a conjunction or disjunction."""

from __future__ import annotations

from typing import NamedTuple

from dlc_core.arith.division import Division
from dlc_core.arith.poly import ONE, Poly, add_scaled, shifted, sub, times
from dlc_core.ir.dtype import INDEX
from dlc_core.ir.expr import Binary, Expr, Load, post_order

MAX_PAIRS = 8
"""Comparisons of one conjunction that are compared pairwise; a longer conjunction stays as it is.

It limits the number of comparisons, which is quadratic. Not measured.
"""


class Fact(NamedTuple):
    """p >= 0, p == 0 or p != 0."""

    kind: str
    p: Poly


class Pairs(Division):
    """Removes implied terms from conjunctions. Disjunctions are handled by negation."""

    def _less(self, p: Poly) -> Expr:
        raise NotImplementedError

    def _equal(self, op: str, p: Poly) -> Expr:
        raise NotImplementedError

    def _merged(self, op: str, terms: list[Expr]) -> list[Expr] | None:
        """Drop terms that another term implies. None if two contradict each other (for "or": if one of two
        always holds).
        """
        linear = [i for i, term in enumerate(terms) if is_linear(term)]
        if not 2 <= len(linear) <= MAX_PAIRS:
            return terms
        facts: dict[int, Fact] = {i: self._fact(op, terms[i]) for i in linear}
        replaced: dict[int, Expr] = {}
        changed = True
        while changed:
            changed = False
            for i in list(facts):
                for j in list(facts):
                    if i >= j or i not in facts or j not in facts:
                        continue
                    first, second = facts[i], facts[j]
                    both = self._conjunction(first, second)
                    if both is None:
                        continue
                    if not both:
                        return None
                    del facts[i], facts[j]
                    changed = True
                    (kept,) = both
                    at = i if kept is first else j if kept is second else i
                    facts[at] = kept
                    if kept is not first and kept is not second:
                        replaced[at] = self._to_expr(op, kept)
        return [replaced.get(i, term) for i, term in enumerate(terms) if i in facts or i not in linear]

    def _fact(self, op: str, term: Expr) -> Fact:
        assert isinstance(term, Binary)
        p = sub(self._poly(term.b), self._poly(term.a))
        if term.op == "lt":
            p = shifted(p, -1)
            return Fact("ge", p if op == "and" else shifted(times(p, -1), -1))
        return Fact(term.op if op == "and" else {"eq": "ne", "ne": "eq"}[term.op], p)

    def _to_expr(self, op: str, fact: Fact) -> Expr:
        if fact.kind == "ge":
            p = fact.p if op == "and" else shifted(times(fact.p, -1), -1)
            return self._less(shifted(times(p, -1), -1))
        return self._equal(fact.kind if op == "and" else {"eq": "ne", "ne": "eq"}[fact.kind], fact.p)

    def _conjunction(self, a: Fact, b: Fact) -> tuple[Fact, ...] | None:
        """One fact equivalent to both; () if they contradict each other; None if there is no such fact."""
        if a.kind > b.kind:
            a, b = b, a
        if a.kind == "eq":
            return self._given_equality(a, b)
        if a.kind == b.kind == "ge":
            if self._poly_bounds(sub(a.p, b.p))[0] >= 0:
                return (b,)
            if self._poly_bounds(sub(b.p, a.p))[0] >= 0:
                return (a,)
            total = add_scaled(a.p, b.p)
            if self._poly_bounds(total)[1] < 0:
                return ()
            return None if total else (Fact("eq", a.p),)
        if a.kind == "ge":
            for other in (b.p, times(b.p, -1)):
                gap = sub(other, a.p)
                if not gap:
                    return (Fact("ge", shifted(a.p, -1)),)
                if self._poly_bounds(gap)[0] > 0:
                    return (a,)
        return None

    def _given_equality(self, equal: Fact, other: Fact) -> tuple[Fact, ...] | None:
        """Simplify a fact under p == 0. The result may be true or false."""
        lead = next((m for m in equal.p if m != ONE), None)
        if lead is None or other.p.get(lead, 0) % equal.p[lead]:
            return None
        rest = add_scaled(other.p, equal.p, -(other.p.get(lead, 0) // equal.p[lead]))
        low, high = self._poly_bounds(rest)
        if other.kind == "ge":
            holds, fails = low >= 0, high < 0
        else:
            holds, fails = not rest, low > 0 or high < 0
            if other.kind == "ne":
                holds, fails = fails, holds
        return () if fails else (equal,) if holds else None


def is_linear(e: Expr) -> bool:
    """Whether a simplified condition compares indices, which never wrap around. Loaded data may."""
    return (
        isinstance(e, Binary)
        and e.op in ("lt", "eq", "ne")
        and e.a.dtype is INDEX
        and not any(isinstance(part, Load) for part in post_order(e))
    )
