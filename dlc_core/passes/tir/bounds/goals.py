"""Proofs that one index is in [0, dim), under all facts at its position."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import reduce

from dlc_core.arith import Analyzer
from dlc_core.arith.sets import set_of
from dlc_core.ir.dtype import INDEX
from dlc_core.ir.expr import (
    Binary,
    Expr,
    Var,
    conjuncts,
    const_value,
    free_vars,
    loads_in,
    logical_and,
    maximum,
    minimum,
    post_order,
    substitute,
    transform,
)


@dataclass(frozen=True)
class Goal:
    """The facts that a proof may use.

    `analyzer` knows all facts at the access, `dims` only the sizes of the program; `moving` are the variables
    of loops, lanes and names; `conds` are conditions that hold.
    """

    analyzer: Analyzer
    dims: Analyzer
    moving: tuple[Var, ...]
    conds: tuple[Expr, ...] = ()
    sizes: frozenset[Var] = frozenset()
    """The variables that `dims` knows."""
    sufficient: list[Expr] = field(default_factory=list)
    """Where no proof is found: conditions on sizes, each of which is enough; later ones ask for less."""

    def is_between(self, index: Expr, dim: Expr) -> bool:
        """Whether 0 <= index < dim.

        The first attempt compares the bounds of the index over all loops, as expressions over the sizes. The
        second also uses conditions such as `i * 16 + lane < n`: the bounded sum becomes a variable with that
        range. The third replaces quotients and remainders of loops by variables with their ranges, and lets
        the analyzer search for a proof. The last one searches with the unchanged index.
        """
        return (
            self._by_ends(index, dim)
            or self._under_conditions(index, dim)
            or self._by_digits(index, dim)
            or self._as_written(index, dim)
            or self._by_remainders(index, dim)
        )

    def _by_remainders(self, index: Expr, dim: Expr) -> bool:
        """Prove the goal with the dividend of a remainder written as quotient and remainder.

        An index `4 * x + lane` that a condition on `x % 24 * 4 + lane` keeps in a row becomes
        `96 * quotient + 4 * remainder + lane`.  A loop variable of the dividend is substituted.
        """
        az = self.analyzer
        conds = [self.dims.simplify(cond) for cond in self.conds]
        index = az.simplify(index)
        for one in dict.fromkeys(e for root in (*conds, index) for e in post_order(root) if _is_remainder(e)):
            var = self._substituted_in(one.children[0])
            ends = az.bounds(one.children[0], self.moving)
            if var is None or ends is None:
                continue
            dividend, divisor = one.children
            factor = az.linear(dividend)[0][var]
            with az.scope():
                quotient, remainder = Var("quotient"), Var("remainder")
                first, last = (az.simplify(end // divisor) for end in self._limited(dividend, ends))
                az.bind(quotient, first, az.simplify(last - first + 1))
                az.bind(remainder, 0, divisor)
                rest = dividend - factor * var
                value = {var: az.simplify((quotient * divisor + remainder - rest) * factor)}
                moving = (*(v for v in self.moving if v is not var), quotient, remainder)
                given = tuple(az.simplify(substitute(cond, value)) for cond in conds)
                az.suppose(*given)
                goal = Goal(az, self.dims, moving, given)
                moved = az.simplify(substitute(index, value))
                if goal._under_conditions(moved, dim) or goal._as_written(moved, dim):
                    return True
        return False

    def _limited(self, value: Expr, ends: tuple[Expr, Expr]) -> tuple[Expr, Expr]:
        """The ends of a value, no further than conditions on it alone allow."""
        az = self.analyzer
        first, last = ends
        for smaller, larger in self._comparisons():
            below, above = az.simplify(smaller - value), az.simplify(value - larger)
            if const_value(below) is not None:
                last = minimum(last, larger - below)
            if const_value(above) is not None:
                first = maximum(first, smaller + above)
        return az.simplify(first), az.simplify(last)

    def _substituted_in(self, dividend: Expr) -> Var | None:
        """A loop variable that a dividend contains once, with the factor 1 or -1."""
        terms, _ = self.analyzer.linear(dividend)
        for atom, factor in terms.items():
            others = (v for other in terms if other is not atom for v in free_vars(other))
            if isinstance(atom, Var) and abs(factor) == 1 and atom in self.moving and atom not in others:
                return atom
        return None

    def _as_written(self, index: Expr, dim: Expr) -> bool:
        """Prove the goal with its quotients and remainders, which conditions like `i // 2 % 6 < 5` bound."""
        return self.analyzer.prove(index >= 0) and self.analyzer.prove(index < dim)

    def _by_ends(self, index: Expr, dim: Expr, more: tuple[Var, ...] = ()) -> bool:
        az = self.analyzer
        ends = az.bounds(index, (*self.moving, *more))
        if ends is None:
            return False
        first, last = ends[0], az.simplify(ends[1])
        if self.dims.prove(first >= 0) and (self.dims.prove(last < dim) or az.prove(last < dim)):
            return True
        constant = min(az.linear(dim)[1], 0)
        if constant:  # conditions have the dim as it is, not less by the lanes and neighbours
            last, dim = az.simplify(last - constant), az.simplify(dim - constant)
        whole = logical_and(first >= 0, last < dim)
        if self.sizes.issuperset(free_vars(whole)) and not loads_in(whole):
            self.sufficient.append(whole)
        return False

    def _under_conditions(self, index: Expr, dim: Expr) -> bool:
        az = self.analyzer
        with az.scope():
            fresh = []
            if any(const_value(self.dims.simplify(cond)) == 0 for cond in self.conds):
                return True  # the conditions never hold
            if any(az.prove(larger < smaller) for smaller, larger in self._comparisons()):
                return True
            for sum_, (lows, highs) in self._bounded_sums().items():
                known = set_of(az, sum_, self.moving)
                lows += [known.low] if known.low is not None else []
                highs += [known.high] if known.high is not None else []
                if not lows or not highs:
                    continue
                first, last = az.simplify(reduce(maximum, lows)), az.simplify(reduce(minimum, highs))
                if az.prove(last < first):
                    return True
                if self._occurs(index, sum_):
                    bounded = Var("bounded")
                    az.bind(bounded, first, az.simplify(last - first + 1))
                    index = self._replaced(index, sum_, bounded)
                    fresh.append(bounded)
            return bool(fresh) and self._by_ends(index, dim, tuple(fresh))

    def _bounded_sums(self) -> dict[Expr, tuple[list[Expr], list[Expr]]]:
        """Sums of moving variables, without constants, and their bounds from conditions."""
        az = self.analyzer
        found: dict[Expr, tuple[list[Expr], list[Expr]]] = {}
        for smaller, larger in self._comparisons():
            for side, other, at_least in ((larger, smaller, True), (smaller, larger, False)):
                constant = az.linear(side)[1]
                sum_ = az.simplify(side - constant)
                if set(free_vars(sum_)).isdisjoint(self.moving):
                    continue
                lows, highs = found.setdefault(sum_, ([], []))
                (lows if at_least else highs).append(other - constant)
        return found

    def _comparisons(self) -> Iterator[tuple[Expr, Expr]]:
        """Pairs of index expressions of which the first is at most the second."""
        for cond in self.conds:
            for part in conjuncts(self.dims.simplify(cond)):
                if isinstance(part, Binary) and part.a.dtype is INDEX and not loads_in(part):
                    a, b = self.analyzer.simplify(part.a), self.analyzer.simplify(part.b)
                    if part.op == "lt":
                        yield from self._undivided(a, b - 1)
                    elif part.op == "eq":
                        yield from ((a, b), (b, a))

    def _undivided(self, smaller: Expr, larger: Expr) -> Iterator[tuple[Expr, Expr]]:
        """A comparison, and the implied comparison of the dividend if one side is a quotient."""
        az = self.analyzer
        yield smaller, larger
        if isinstance(smaller, Binary) and smaller.op == "floordiv" and az.prove(smaller.b > 0):
            yield smaller.a, az.simplify((larger + 1) * smaller.b - 1)

    def _occurs(self, index: Expr, sum_: Expr) -> bool:
        """Whether a sum is a part of an index, or of a dividend in it."""
        return any(self._factor(part, sum_) is not None for part in self._parts(index))

    def _parts(self, index: Expr) -> list[Expr]:
        return [index, *(e.children[0] for e in post_order(index) if _is_quotient(e))]

    def _replaced(self, index: Expr, sum_: Expr, bounded: Expr) -> Expr:
        """An index with another value in place of a sum, wherever it occurs."""
        az = self.analyzer

        def without(e: Expr) -> Expr:
            factor = self._factor(e, sum_)
            return e if factor is None else az.simplify(e - factor * sum_ + factor * bounded)

        def visit(e: Expr) -> Expr | None:
            return e.rebuild((without(e.children[0]), e.children[1])) if _is_quotient(e) else None

        return without(az.simplify(transform(index, visit)))

    def _factor(self, index: Expr, sum_: Expr) -> Expr | None:
        """How often a sum is part of an index that has none of its terms otherwise."""
        az = self.analyzer
        terms, _ = az.linear(sum_)
        atoms = {e: k for e, k in terms.items() if not set(free_vars(e)).isdisjoint(self.moving)}
        variables = {v for e in atoms for v in free_vars(e)}.intersection(self.moving)
        found = None
        for atom, own in atoms.items():
            stand_in = Var("term")
            whole = az.coefficient_of(transform(az.simplify(index), {atom: stand_in}.get), stand_in)
            if whole is None:
                continue
            factor = az.simplify(whole // own)
            rest = az.simplify(index - factor * sum_)
            if const_value(factor) != 0 and atoms.keys().isdisjoint(az.linear(rest)[0]):
                if variables.isdisjoint(free_vars(rest)):
                    return factor
                found = factor if found is None else found
        return found

    def _by_digits(self, index: Expr, dim: Expr) -> bool:
        az = self.analyzer
        digits: dict[Expr, Expr] = {}
        with az.scope():
            simple = az.simplify(index)
            for e in post_order(simple):
                if _is_quotient(e) and not set(free_vars(e)).isdisjoint(self.moving):
                    ends = az.bounds(e, self.moving)
                    if ends is not None:
                        digits[e] = digit = Var("digit")
                        az.bind(digit, ends[0], az.simplify(ends[1] - ends[0] + 1))
            simple = transform(simple, lambda e: digits.get(e), dict(digits))
            return az.prove(simple >= 0) and az.prove(simple < dim)


def _is_remainder(e: Expr) -> bool:
    return isinstance(e, Binary) and e.op == "floormod" and (const_value(e.b) or 0) > 0


def _is_quotient(e: Expr) -> bool:
    return isinstance(e, Binary) and e.op in ("floordiv", "floormod")


__all__ = ["Goal"]
