"""Constant bounds of simplified expressions, and proofs that a poly is never negative.

Proofs are sound and incomplete. A goal G >= 0 is proved by intervals, else by replacing one atom at a time
with a bound of it that makes G smaller: a variable with its symbolic bound, a quotient with the bounds of
rounding, min, max and select with each of their cases; or by subtracting assumed facts.
"""

from __future__ import annotations

import math
from collections import Counter

from dlc_core.arith import interval as iv
from dlc_core.arith.interval import EVERYTHING, Interval, Num
from dlc_core.arith.poly import (
    ONE,
    Poly,
    add_scaled,
    atoms_of,
    constant_of,
    degree,
    poly_key,
    shifted,
    split_by,
    sub,
    times,
)
from dlc_core.arith.state import State
from dlc_core.ir.dtype import INDEX
from dlc_core.ir.expr import Binary, Cast, Const, Expr, Select, Unary, Var, free_vars

DEPTH_SIMPLIFY = 3
"""Nested steps of a proof during simplification, which tries many proofs that fail."""
DEPTH_PROVE = 7
"""Nested steps of a proof that a caller requests. More steps prove more, and take exponentially longer to
fail."""
STEPS = {DEPTH_SIMPLIFY: 40, DEPTH_PROVE: 600}
"""Goals that one proof may try, by its depth. They limit the time of proofs that fail. Not measured.

The depths and the steps decide only what is proved, never what is true: an unproved bound costs a check, and
an unproved condition is kept.
"""
QUERY_STEPS = 20_000
"""Goals that all proofs of one query may try together: the simplification of one expression may need many.
Further goals are proved by intervals alone. Queries about ordinary programs take at most some thousands.
"""

_BINARY = {
    "add": iv.add,
    "mul": iv.mul,
    "floordiv": iv.floordiv,
    "floormod": iv.floormod,
    "truncdiv": iv.truncdiv,
    "truncmod": iv.truncmod,
    "div": iv.truncdiv,
    "min": iv.minimum,
    "max": iv.maximum,
}


class Prover(State):
    """Bounds and proofs over polys of simplified atoms."""

    def __init__(self) -> None:
        super().__init__()
        self._case_facts: list[Poly] = []
        """Facts that hold in the case that is being proved."""
        self._steps_left: int | None = None
        self._query_left = QUERY_STEPS
        self.steps = 0
        """Goals tried so far, by all queries. Long goals count more than once."""

    # Intervals.

    def _poly_bounds(self, p: Poly) -> Interval:
        low: Num = 0
        high: Num = 0
        for m, c in p.items():
            if not m:
                low, high = low + c, high + c
                continue
            if len(m) == 1:
                a, b = self._atom_bounds(m[0])
            else:
                a, b = self._mono_bounds(m)
            if c > 0:
                low, high = low + (a * c if a else 0), high + (b * c if b else 0)
            else:
                low, high = low + (b * c if b else 0), high + (a * c if a else 0)
        return low, high

    def _mono_bounds(self, m: tuple[Expr, ...]) -> Interval:
        total: Interval = (1, 1)
        for atom in m:
            total = iv.mul(total, self._atom_bounds(atom))
        if len(m) == 2 and m[0] is m[1]:
            total = max(total[0], 0), total[1]
        return total

    def _atom_bounds(self, e: Expr) -> Interval:
        if type(e) is Var:
            known = self._known.ranges.get(e)
            return self._range_of(e).interval if known is None else known.interval
        found = self._memo.bounds.get(e)
        if found is None:
            found = self._memo.bounds[e] = self._compute_bounds(e)
        return found

    def _bounds_of(self, e: Expr) -> Interval:
        """Bounds of any simplified expression."""
        if e.dtype is INDEX:
            return self._poly_bounds(self.parse(e))
        return self._atom_bounds(e)

    def _compute_bounds(self, e: Expr) -> Interval:
        kind = e.dtype.kind
        if e.dtype.lanes != 1 or kind not in ("int", "uint", "bool"):
            return EVERYTHING
        natural = EVERYTHING if e.dtype is INDEX else e.dtype.int_range()
        if isinstance(e, Const):
            return int(e.value), int(e.value)
        bounds = EVERYTHING
        if isinstance(e, Binary) and e.a.dtype is e.dtype:
            a, b = self._bounds_of(e.a), self._bounds_of(e.b)
            if e.op in _BINARY:
                bounds = _BINARY[e.op](a, b)
            elif e.op == "sub":
                bounds = iv.add(a, iv.scale(b, -1))
            elif e.op == "bitand" and (a[0] >= 0 or b[0] >= 0):
                bounds = 0, min(side[1] for side in (a, b) if side[0] >= 0)
            elif e.op in ("bitor", "bitxor") and a[0] >= 0 and b[0] >= 0 and max(a[1], b[1]) < math.inf:
                bounds = 0, (1 << max(int(a[1]).bit_length(), int(b[1]).bit_length())) - 1
        elif isinstance(e, Select):
            bounds = iv.union(self._bounds_of(e.a), self._bounds_of(e.b))
        elif isinstance(e, Cast) and e.a.dtype.lanes == 1 and (e.a.dtype.is_int or e.a.dtype.is_bool):
            bounds = self._bounds_of(e.a)
        elif isinstance(e, Unary) and e.op == "neg":
            bounds = iv.scale(self._bounds_of(e.a), -1)
        elif isinstance(e, Unary) and e.op == "bitnot":
            low, high = self._bounds_of(e.a)
            bounds = -1 - high, -1 - low
        # A result outside of the type's range wraps, so every value of the type is possible.
        return bounds if natural[0] <= bounds[0] and bounds[1] <= natural[1] else natural

    # Proofs.

    def _nonneg(self, p: Poly, depth: int = DEPTH_SIMPLIFY) -> bool:
        """Whether p >= 0 for all values of its atoms."""
        low, high = self._poly_bounds(p)
        if low >= 0:
            return True
        if high < 0 or depth <= 0 or (len(p) == 1 and ONE in p):
            return False
        if self._steps_left is None:
            self._steps_left = min(STEPS.get(depth, 40), self._query_left)
            try:
                return self._nonneg(p, depth)
            finally:
                self._steps_left = None
        # A step costs more for a longer goal, because it has more cases, and each case is long.
        cost = 1 + len(p) ** 2 // 256
        self._steps_left -= cost
        if self._steps_left < 0:
            return False
        self._query_left -= cost
        self.steps += cost
        if self._case_facts:
            return self._nonneg_by_steps(p, depth)
        key = (poly_key(p), depth)
        found = self._memo.nonneg.get(key)
        if found is None:
            found = self._nonneg_by_steps(p, depth)
            # A failure for lack of steps is not memoised, because the goal may be provable on its own.
            if found or (self._steps_left or 0) >= 0:
                self._memo.nonneg[key] = found
        return found

    def _nonneg_by_steps(self, p: Poly, depth: int) -> bool:
        nonlinear = degree(p) > 1
        if self._known.symbolic or nonlinear:
            smaller = self._eliminate_variable(p)
            if smaller is None:
                smaller = self._eliminate_factor(p)
            if smaller is not None and self._nonneg(smaller, depth):
                return True
        if (self._known.facts or self._case_facts) and self._by_facts(p, depth):
            return True
        if nonlinear and self._shift_to_zero(p):
            return True
        occurrences: Counter[Var] | None = None
        for atom in atoms_of(p):
            if isinstance(atom, Binary) and atom.op in ("floordiv", "floormod"):
                if self._by_rounding(p, atom, depth):
                    return True
            elif _has_cases(atom):
                occurrences = occurrences or self._occurrences(p)
                if not self._cases_are_redundant(p, atom, occurrences) and self._by_cases(p, atom, depth):
                    return True
        return False

    def _cases_are_redundant(self, p: Poly, atom: Expr, occurrences: Counter[Var]) -> bool:
        """Whether the cases of an atom give no more information than its interval does: they consist of
        constants, and of variables that occur nowhere else.

        The offsets in a concatenation of many bounded results are such sums of dozens of minima.
        """
        for child in atom.children[-2:]:
            case = self.parse(child)
            if len(case) - (ONE in case) > 1 or degree(case) > 1:
                return False
            for inner in atoms_of(case):
                if type(inner) is not Var or occurrences[inner] > 1:
                    return False
                known = self._known.ranges.get(inner)
                if known is not None and (known.low is not None or known.high is not None):
                    return False
        return not any(atom in m and len(m) > 1 for m in p)

    def _occurrences(self, p: Poly) -> Counter[Var]:
        """For each variable, the number of atoms of the goal and of the known facts in which it occurs."""
        facts = (*self._known.facts, *self._case_facts)
        atoms = {atom for q in (p, *facts) for atom in atoms_of(q)}
        return Counter(v for atom in atoms for v in free_vars(atom))

    def _sign(self, p: Poly) -> int:
        """1 if p >= 0, -1 if p <= 0, 0 if unknown."""
        low, high = self._poly_bounds(p)
        if low >= 0:
            return 1
        if high <= 0:
            return -1
        if len(p) > 1 and self._known.symbolic:
            return 1 if self._nonneg(p, 1) else -1 if self._nonneg(times(p, -1), 1) else 0
        return 0

    def _eliminate_variable(self, p: Poly) -> Poly | None:
        """Bound p from below: replace the innermost variable with a symbolic range by an end of its range."""
        best: tuple[int, Poly] | None = None
        for atom in atoms_of(p):
            if type(atom) is not Var:
                continue
            known = self._known.ranges.get(atom)
            if (
                known is None
                or (known.low is None and known.high is None)
                or (best and known.order < best[0])
            ):
                continue
            parts = split_by(p, atom)
            if parts is None:
                continue
            factor, rest = parts
            sign = self._sign(factor)
            end = known.low if sign > 0 else known.high
            if sign and end is not None:
                best = known.order, add_scaled(rest, self.mul(factor, end))
        return best[1] if best else None

    def _eliminate_factor(self, p: Poly) -> Poly | None:
        """Bound p from below: replace an atom in a product by one of its constant bounds."""
        for atom in atoms_of({m: c for m, c in p.items() if len(m) > 1}):
            parts = split_by(p, atom)
            sign = self._sign(parts[0]) if parts else 0
            end = self._atom_bounds(atom)[0 if sign > 0 else 1]
            if parts is not None and sign and abs(end) != math.inf:
                return add_scaled(parts[1], parts[0], int(end))
        return None

    def _by_facts(self, p: Poly, depth: int) -> bool:
        """Prove G >= 0 from a fact Q >= 0: s*G - k*Q > -s suffices for s, k > 0. s and k are chosen to cancel
        a shared monomial.
        """
        for fact in (*self._known.facts, *self._case_facts):
            for m, c in fact.items():
                d = p.get(m, 0)
                if not m or not d or (c > 0) != (d > 0):
                    continue
                g = math.gcd(c, d)
                s, k = abs(c) // g, abs(d) // g
                goal = shifted(add_scaled(times(p, s), fact, -k), s - 1)
                if self._nonneg(goal, depth - 1):
                    return True
        return False

    def _shift_to_zero(self, p: Poly) -> bool:
        """Rewrite each bounded atom as its bound plus or minus a non-negative atom. p >= 0 if no coefficient
        is then negative.
        """
        shifts: dict[Expr, tuple[int, int]] = {}
        for atom in atoms_of(p):
            low, high = self._atom_bounds(atom)
            if low != -math.inf:
                shifts[atom] = int(low), 1
            elif high != math.inf:
                shifts[atom] = int(high), -1
            else:
                return False
        for atom, (start, sign) in shifts.items():
            p = self.replace(p, atom, shifted({(atom,): sign}, start))
        return all(c >= 0 for c in p.values())

    def _by_rounding(self, p: Poly, atom: Binary, depth: int) -> bool:
        """Bound x//d and x%d by d*(x//d) <= x <= d*(x//d) + d - 1 and x%d <= d - 1, for d > 0."""
        parts = split_by(p, atom)
        if parts is None:
            return False
        factor, rest = parts
        x, d = self.parse(atom.a), self.parse(atom.b)
        value = constant_of(d)
        if self._poly_bounds(d)[0] <= 0 and not (len(d) > 1 and self._nonneg(shifted(d, -1), depth - 1)):
            return False
        sign = self._sign(factor)
        if not sign:
            return False
        if atom.op == "floormod":
            if sign > 0:
                return self._nonneg(rest, depth - 1)
            if value is None and self._nonneg(add_scaled(rest, self.mul(factor, shifted(d, -1))), depth - 1):
                return True
            return self._poly_bounds(x)[0] >= 0 and self._nonneg(
                add_scaled(rest, self.mul(factor, x)), depth - 1
            )
        end = x if sign < 0 else shifted(sub(x, d), 1)
        if value is not None and self._known.residues:
            modulus, residue = self._poly_residue(x)
            if modulus % value == 0:
                end = shifted(x, -(residue % value))
        if value is not None:
            goal = shifted(add_scaled(times(rest, value), self.mul(factor, end)), value - 1)
            return self._nonneg(goal, depth - 1)
        multiple = _multiple_of(factor, d)
        if multiple is not None:
            return self._nonneg(add_scaled(rest, end, multiple), depth - 1)
        # As for a literal: d*G > -d suffices.
        goal = shifted(add_scaled(add_scaled(self.mul(rest, d), self.mul(factor, end)), d), -1)
        return self._nonneg(goal, depth - 1)

    def _by_cases(self, p: Poly, atom: Expr, depth: int) -> bool:
        first, second = (self.parse(child) for child in atom.children[-2:])
        goals = self.replace(p, atom, first), self.replace(p, atom, second)
        if isinstance(atom, Select):
            return all(self._nonneg(goal, depth - 1) for goal in goals)
        parts = split_by(p, atom)
        sign = self._sign(parts[0]) if parts else 0
        either = sign == (1 if isinstance(atom, Binary) and atom.op == "max" else -1)
        if either and any(self._nonneg(goal, depth - 1) for goal in goals):
            return True
        gap = sub(second, first) if isinstance(atom, Binary) and atom.op == "min" else sub(first, second)
        return all(
            self._nonneg(goal, depth - 1) or (depth > 2 and self._nonneg_given(goal, fact, depth - 2))
            for goal, fact in zip(goals, (gap, times(gap, -1)), strict=True)
        )

    def _nonneg_given(self, p: Poly, fact: Poly, depth: int) -> bool:
        """Whether p >= 0 is proved under the assumption fact >= 0."""
        self._case_facts.append(fact)
        try:
            return self._nonneg(p, depth)
        finally:
            self._case_facts.pop()

    def _zero(self, p: Poly, depth: int = DEPTH_SIMPLIFY) -> bool:
        """Whether p is proved to be always zero."""
        return not p or (self._nonneg(p, depth) and self._nonneg(times(p, -1), depth))

    # Divisibility.

    def _poly_residue(self, p: Poly) -> tuple[int, int]:
        """(m, r) with p ≡ r modulo m; m is 0 if p is the constant r."""
        modulus, residue = 0, p.get(ONE, 0)
        for m, c in p.items():
            if not m:
                continue
            a, r = 0, 1
            for atom in m:
                b, s = self._atom_residue(atom)
                a, r = math.gcd(a * b, a * s, b * r), r * s
            modulus, residue = math.gcd(modulus, a * c), residue + r * c
            if modulus == 1:
                return 1, 0
        return modulus, residue % modulus if modulus else residue

    def _atom_residue(self, e: Expr) -> tuple[int, int]:
        if type(e) is Var:
            return self._known.residues.get(e, (1, 0))
        if isinstance(e, Binary) and e.dtype is INDEX:
            if e.op in ("min", "max"):
                return _residue_of_either(
                    self._poly_residue(self.parse(e.a)), self._poly_residue(self.parse(e.b))
                )
            if e.op in ("floordiv", "floormod") and isinstance(e.b, Const):
                d = int(e.b.value)
                m, r = self._poly_residue(self.parse(e.a))
                if e.op == "floormod" and d:
                    g = math.gcd(m, d)
                    return g, r % g
                if d > 0 and m and m % d == 0:
                    return m // d, (r // d) % (m // d)
        elif isinstance(e, Select) and e.dtype is INDEX:
            return _residue_of_either(
                self._poly_residue(self.parse(e.a)), self._poly_residue(self.parse(e.b))
            )
        return 1, 0


def _has_cases(e: Expr) -> bool:
    return isinstance(e, Select) or (isinstance(e, Binary) and e.op in ("min", "max"))


def _residue_of_either(a: tuple[int, int], b: tuple[int, int]) -> tuple[int, int]:
    m = math.gcd(a[0], b[0], a[1] - b[1])
    return m, a[1] % m if m else a[1]


def _multiple_of(p: Poly, d: Poly) -> int | None:
    """k with p == k*d; None if there is none."""
    if p.keys() != d.keys():
        return None
    k, r = divmod(next(iter(p.values())), next(iter(d.values())))
    return k if r == 0 and p == times(d, k) else None
