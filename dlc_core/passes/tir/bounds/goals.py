"""Proofs that one index is in [0, dim), under all facts at its position."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from functools import reduce

from dlc_core.arith import Analyzer
from dlc_core.arith.sets import set_of
from dlc_core.ir.dtype import INDEX
from dlc_core.ir.expr import (
    Binary,
    Const,
    Expr,
    Load,
    Select,
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
from dlc_core.passes.tir.bounds.ranges import LARGEST
from dlc_core.support.record import record


@record(frozen=True)
class Goal:
    """The facts that a proof may use.

    `analyzer` knows all facts at the access, `dims` only the sizes of the program. `variables` are those of
    loops, lanes and names. `conds` are conditions that hold.
    """

    analyzer: Analyzer
    dims: Analyzer
    variables: tuple[Var, ...]
    conds: tuple[Expr, ...] = ()
    sizes: frozenset[Var] = frozenset()
    """The variables that `dims` knows."""
    sufficient: list[Expr] = field(default_factory=list)
    """If no proof is found: conditions on sizes, each of which is sufficient; later ones are weaker."""

    def is_between(self, index: Expr, dim: Expr) -> bool:
        """Whether 0 <= index < dim.

        The first attempt takes clamped coordinates for variables. The next one compares the bounds of the
        index over all loops, as expressions over the sizes. The following also uses conditions such as
        `i * 16 + lane < n`: the bounded sum becomes a variable with that range. Another replaces quotients
        and remainders by variables with their ranges. The last ones let the analyzer search for a proof with
        the unchanged index, and with a dividend as quotient and remainder.
        """
        parts = [e for e in post_order(index) if _is_clamp(e) or _is_quotient(e)]
        if any(map(_is_clamp, parts)):
            inside = self._by_coordinates(index, dim)
            if inside is not None:
                return inside
        return (
            self._by_bounds(index, dim)
            or self._under_conditions(index, dim)
            or (bool(parts) and self._coordinates_are_inside(index, dim))
            or self._unchanged(index, dim)
            or self._by_remainders(index, dim)
        )

    def _by_coordinates(self, index: Expr, dim: Expr) -> bool | None:
        """Prove a flattened index of clamped coordinates: `n * max(min(m - 1, y), 0) + x` for `m * n`.

        A clamp to an empty dim leaves it. Where a proof needs that sizes are at least 1 and this is not
        known, it is a sufficient condition and the result is False: the slower attempts rarely find more.
        None if there is no proof of this kind.
        """
        if self._coordinates_are_inside(index, dim):
            return True
        az = self.analyzer
        positive = [v >= 1 for v in dict.fromkeys(free_vars(dim)) if v in self.sizes and not az.prove(v >= 1)]
        with az.scope():
            az.add_assumptions(*positive)
            if not positive or not self._coordinates_are_inside(index, dim):
                return None
        self.sufficient.append(logical_and(*positive))
        return False

    def _coordinates_are_inside(self, index: Expr, dim: Expr) -> bool:
        """Whether the goal holds with each clamp or quotient as a variable from 0 or 1 to a bound."""
        az = self.analyzer
        with az.scope():
            simple = az.simplify(index)
            coordinates: dict[Expr, Var] = {}
            for e in dict.fromkeys(_outermost_clamps(simple)):
                last = self._upper(e)
                if last is not None and az.prove(e >= 0):
                    coordinates[e] = coordinate = Var("coordinate")
                    first = 1 if az.prove(e >= 1) else 0
                    az.bind(coordinate, first, az.simplify(last + 1 - first))
            simple = az.simplify(transform(simple, coordinates.get, dict(coordinates)))
            ends = az.bounds(simple, (*self.variables, *coordinates.values()))
            return ends is not None and az.prove(ends[0] >= 0) and az.prove(ends[1] < dim)

    def _upper(self, e: Expr) -> Expr | None:
        """Return an upper bound of a clamp or quotient over the sizes, if its form gives one."""
        az = self.analyzer
        if _is_clamp(e):
            first, second = (self._upper(child) for child in e.children[-2:])
            if isinstance(e, Binary) and e.op == "min" and (first is not None or second is not None):
                return second if first is None else first
            if first is not None and second is not None:
                return az.simplify(maximum(first, second))
        elif self.sizes.issuperset(free_vars(e)) and not _is_quotient(e) and not loads_in(e):
            return e
        sizes = [v for v in free_vars(e) if v in self.sizes]
        return next((end for size in sizes for end in (size - 1, size) if az.prove(e <= end)), None)

    def _coefficient(self, index: Expr, atom: Expr) -> Expr | None:
        """Return the factor of an atom in an index; None if the atom also occurs elsewhere in the index."""
        placeholder = Var("term")
        return self.analyzer.coefficient_of(transform(index, {atom: placeholder}.get), placeholder)

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
            ends = az.bounds(one.children[0], self.variables)
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
                variables = (*(v for v in self.variables if v is not var), quotient, remainder)
                given = tuple(az.simplify(substitute(cond, value)) for cond in conds)
                az.add_assumptions(*given)
                goal = Goal(az, self.dims, variables, given)
                moved = az.simplify(substitute(index, value))
                if goal._under_conditions(moved, dim) or goal._unchanged(moved, dim):
                    return True
        return False

    def _limited(self, value: Expr, ends: tuple[Expr, Expr]) -> tuple[Expr, Expr]:
        """Tighten the bounds of a value by the conditions on this value alone."""
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
        """Return a loop variable that a dividend contains once, with the factor 1 or -1."""
        terms, _ = self.analyzer.linear(dividend)
        for atom, factor in terms.items():
            others = (v for other in terms if other is not atom for v in free_vars(other))
            if isinstance(atom, Var) and abs(factor) == 1 and atom in self.variables and atom not in others:
                return atom
        return None

    def _unchanged(self, index: Expr, dim: Expr) -> bool:
        """Prove the unchanged goal. Conditions like `i // 2 % 6 < 5` bound its quotients and remainders."""
        return self.analyzer.prove(index >= 0) and self.analyzer.prove(index < dim)

    def _by_bounds(self, index: Expr, dim: Expr, more: tuple[Var, ...] = ()) -> bool:
        az = self.analyzer
        ends = az.bounds(index, (*self.variables, *more))
        if ends is None:
            return False
        first, last = ends[0], az.simplify(ends[1])
        if self.dims.prove(first >= 0) and (self.dims.prove(last < dim) or az.prove(last < dim)):
            return True
        constant = min(az.linear(dim)[1], 0)
        if constant:  # conditions compare with the dim itself, without the constant of lanes and groups
            last, dim = az.simplify(last - constant), az.simplify(dim - constant)
        condition = logical_and(first >= 0, last < dim)
        if self.sizes.issuperset(free_vars(condition)) and not loads_in(condition):
            self.sufficient.append(condition)
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
                known = set_of(az, sum_, self.variables)
                lows += [known.low] if known.low is not None else []
                highs += [known.high] if known.high is not None else []
                if not lows or not highs:
                    continue
                first, last = az.simplify(reduce(maximum, lows)), az.simplify(reduce(minimum, highs))
                if any(abs(end.value) >= LARGEST for end in (first, last) if isinstance(end, Const)):
                    continue
                if az.prove(last < first):
                    return True
                if self._occurs(index, sum_):
                    bounded = Var("bounded")
                    az.bind(bounded, first, az.simplify(last - first + 1))
                    index = self._replaced(index, sum_, bounded)
                    fresh.append(bounded)
            return bool(fresh) and self._by_bounds(index, dim, tuple(fresh))

    def _bounded_sums(self) -> dict[Expr, tuple[list[Expr], list[Expr]]]:
        """Return the sums of moving variables, without constants, with their bounds from conditions."""
        az = self.analyzer
        found: dict[Expr, tuple[list[Expr], list[Expr]]] = {}
        for smaller, larger in self._comparisons():
            for side, other, at_least in ((larger, smaller, True), (smaller, larger, False)):
                constant = az.linear(side)[1]
                sum_ = az.simplify(side - constant)
                if set(free_vars(sum_)).isdisjoint(self.variables):
                    continue
                lows, highs = found.setdefault(sum_, ([], []))
                (lows if at_least else highs).append(other - constant)
        return found

    def _comparisons(self) -> Iterator[tuple[Expr, Expr]]:
        """Yield pairs (a, b) of index expressions with a <= b."""
        for cond in self.conds:
            for part in conjuncts(self.dims.simplify(cond)):
                if isinstance(part, Binary) and part.a.dtype is INDEX and not loads_in(part):
                    a, b = self.analyzer.simplify(part.a), self.analyzer.simplify(part.b)
                    if part.op == "lt":
                        yield from self._undivided(a, b - 1)
                    elif part.op == "eq":
                        yield from ((a, b), (b, a))

    def _undivided(self, smaller: Expr, larger: Expr) -> Iterator[tuple[Expr, Expr]]:
        """Yield a comparison, and the implied comparison of the dividend if one side is a quotient."""
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
        """Replace each occurrence of a sum in an index by another value."""
        az = self.analyzer

        def without(e: Expr) -> Expr:
            factor = self._factor(e, sum_)
            return e if factor is None else az.simplify(e - factor * sum_ + factor * bounded)

        def visit(e: Expr) -> Expr | None:
            return e.rebuild((without(e.children[0]), e.children[1])) if _is_quotient(e) else None

        return without(az.simplify(transform(index, visit)))

    def _factor(self, index: Expr, sum_: Expr) -> Expr | None:
        """Return the factor of a sum in an index; None if removing the sum leaves some of its terms.

        A factor is preferred if removing the sum removes its variables too.
        """
        az = self.analyzer
        terms, _ = az.linear(sum_)
        atoms = {e: k for e, k in terms.items() if not set(free_vars(e)).isdisjoint(self.variables)}
        variables = {v for e in atoms for v in free_vars(e)}.intersection(self.variables)
        found = None
        for atom, own in atoms.items():
            condition = self._coefficient(az.simplify(index), atom)
            if condition is None:
                continue
            factor = az.simplify(condition // own)
            rest = az.simplify(index - factor * sum_)
            if const_value(factor) != 0 and atoms.keys().isdisjoint(az.linear(rest)[0]):
                if variables.isdisjoint(free_vars(rest)):
                    return factor
                found = factor if found is None else found
        return found


def _is_clamp(e: Expr) -> bool:
    return isinstance(e, Select) or (isinstance(e, Binary) and e.op in ("min", "max"))


def _outermost_clamps(e: Expr) -> Iterator[Expr]:
    """Yield the outermost clamps and quotients of an expression."""
    if _is_clamp(e) or _is_quotient(e):
        yield e
    elif e.dtype is INDEX and not isinstance(e, Load):
        for child in e.children:
            yield from _outermost_clamps(child)


def _is_remainder(e: Expr) -> bool:
    return isinstance(e, Binary) and e.op == "floormod" and (const_value(e.b) or 0) > 0


def _is_quotient(e: Expr) -> bool:
    return isinstance(e, Binary) and e.op in ("floordiv", "floormod")


__all__ = ["Goal"]
