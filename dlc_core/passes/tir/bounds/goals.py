"""Proofs that one index is in [0, dim), under all that is known where it stands."""

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
    transform,
)


@dataclass(frozen=True)
class Goal:
    """What a proof may use.

    `analyzer` knows all that holds there, `dims` the sizes of the program alone; `moving` are the variables
    of loops, lanes and names; `conds` conditions that hold.
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

        First by the ends of the index over all loops, as expressions over the sizes.  Then conditions such as
        `i * 16 + lane < n` take part: what they bound becomes a variable with that range.  Then quotients and
        remainders of loops become variables, each in its own range, and the analyzer searches for a proof.
        """
        return self._by_ends(index, dim) or self._under_conditions(index, dim) or self._by_digits(index, dim)

    def _by_ends(self, index: Expr, dim: Expr, more: tuple[Var, ...] = ()) -> bool:
        az = self.analyzer
        ends = az.bounds(index, (*self.moving, *more))
        if ends is None:
            return False
        first, last = ends[0], az.simplify(ends[1])
        if self.dims.prove(first >= 0) and (self.dims.prove(last < dim) or az.prove(last < dim)):
            return True
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
        """Sums of moving variables, without constants, and what conditions say that they are at least and at
        most.
        """
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
        """A comparison, and what it says of a dividend where one side is a quotient."""
        az = self.analyzer
        yield smaller, larger
        if isinstance(smaller, Binary) and smaller.op == "floordiv" and az.prove(smaller.b > 0):
            yield smaller.a, az.simplify((larger + 1) * smaller.b - 1)

    def _occurs(self, index: Expr, sum_: Expr) -> bool:
        """Whether a sum is a part of an index, or of what is divided in it."""
        return any(self._factor(part, sum_) is not None for part in self._parts(index))

    def _parts(self, index: Expr) -> list[Expr]:
        return [index, *(e.children[0] for e in post_order(index) if _is_quotient(e))]

    def _replaced(self, index: Expr, sum_: Expr, bounded: Expr) -> Expr:
        """An index with another value in the place of a sum, wherever it occurs."""
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


def _is_quotient(e: Expr) -> bool:
    return isinstance(e, Binary) and e.op in ("floordiv", "floormod")


__all__ = ["Goal"]
