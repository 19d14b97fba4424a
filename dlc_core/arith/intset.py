"""Symbolic bounds: the least and greatest value of an index expression over the ranges of some of its
variables."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from dlc_core.arith.poly import (
    Poly,
    add_scaled,
    atoms_of,
    constant,
    shifted,
    split_by,
    sub,
    times,
)
from dlc_core.arith.simplify import Simplifier
from dlc_core.ir.expr import Binary, Expr, Select, Var, free_vars

Ends = tuple[Poly, Poly]
MAX_ELIMINATIONS = 64
"""Atoms that are replaced to find one bound; there is no bound if more would be
needed. Not measured.
"""


class SetEvaluator:
    """Computes bounds of polys over the ranges of `varying` variables."""

    def __init__(self, analyzer: Simplifier, varying: Iterable[Var]) -> None:
        self._az = analyzer
        self._varying = frozenset(varying)
        self._depends: dict[Expr, bool] = {}
        self._ends: dict[Expr, tuple[Poly | None, Poly | None]] = {}

    def ends(self, p: Poly) -> Ends | None:
        """(low, high): polys without varying variables, with low <= p <= high. None if one is unknown."""
        low = self._lower(p)
        high = None if low is None else self._lower(times(p, -1))
        return None if low is None or high is None else (low, times(high, -1))

    def low_and_high(self, p: Poly) -> tuple[Poly | None, Poly | None]:
        """The two bounds, computed separately."""
        low, high = self._lower(p), self._lower(times(p, -1))
        return low, None if high is None else times(high, -1)

    def _varies(self, atom: Expr) -> bool:
        found = self._depends.get(atom)
        if found is None:
            found = self._depends[atom] = any(v in self._varying for v in free_vars(atom))
        return found

    def _lower(self, p: Poly) -> Poly | None:
        """A lower bound: replace each varying atom by the end of its range that makes p smaller."""
        for _ in range(MAX_ELIMINATIONS):
            varying = [atom for atom in atoms_of(p) if self._varies(atom)]
            if not varying:
                return p
            smaller = None
            for atom in sorted(varying, key=self._precedence):
                smaller = self._without(p, atom)
                if smaller is not None:
                    break
            if smaller is None:
                low, _ = self._az._poly_bounds(p)
                return None if low == -math.inf else constant(int(low))
            p = smaller
        return None

    def _precedence(self, atom: Expr) -> int:
        """The order of elimination: compound atoms first, then variables from the innermost outward, because
        inner ranges may mention outer variables.
        """
        return -self._az._range_of(atom).order if isinstance(atom, Var) else -(1 << 60)

    def _without(self, p: Poly, atom: Expr) -> Poly | None:
        parts = split_by(p, atom)
        if parts is None:
            return None
        factor, rest = parts
        sign = self._az._sign(factor)
        end = self._atom_ends(atom)[0 if sign > 0 else 1] if sign else None
        return None if end is None else add_scaled(rest, self._az.mul(factor, end))

    def _atom_ends(self, atom: Expr) -> tuple[Poly | None, Poly | None]:
        found = self._ends.get(atom)
        if found is None:
            found = self._compute(atom)
            if found is None:
                low, high = self._az._atom_bounds(atom)
                found = (
                    None if low == -math.inf else constant(int(low)),
                    None if high == math.inf else constant(int(high)),
                )
            self._ends[atom] = found
        return found

    def _compute(self, atom: Expr) -> Ends | None:
        az = self._az
        if isinstance(atom, Var):
            known = az._range_of(atom)
            return None if known.low is None or known.high is None else (known.low, known.high)
        if isinstance(atom, Select):
            a, b = self.ends(az._poly(atom.a)), self.ends(az._poly(atom.b))
            if a is None or b is None:
                return None
            return az._extremum_of("min", [a[0], b[0]]), az._extremum_of("max", [a[1], b[1]])
        if not isinstance(atom, Binary):
            return None
        if atom.op in ("min", "max"):
            a, b = self.ends(az._poly(atom.a)), self.ends(az._poly(atom.b))
            if a is None or b is None:
                return None
            return az._extremum_of(atom.op, [a[0], b[0]]), az._extremum_of(atom.op, [a[1], b[1]])
        if atom.op not in ("floordiv", "floormod") or self._varies(atom.b):
            return None
        divisor = az._poly(atom.b)
        if not az._nonneg(shifted(divisor, -1)):
            return None
        ends = self.ends(az._poly(atom.a))
        if atom.op == "floordiv":
            return None if ends is None else (az._floordiv(ends[0], divisor), az._floordiv(ends[1], divisor))
        return self._remainder(ends, divisor)

    def _remainder(self, ends: Ends | None, divisor: Poly) -> Ends:
        az = self._az
        everything: Ends = {}, shifted(divisor, -1)
        if ends is None:
            return everything
        if not sub(az._floordiv(ends[0], divisor), az._floordiv(ends[1], divisor)):
            return az._floormod(ends[0], divisor), az._floormod(ends[1], divisor)
        if az._nonneg(ends[0]):
            return {}, az._extremum_of("min", [ends[1], everything[1]])
        return everything


def symbolic_bounds(
    analyzer: Simplifier, p: Poly, varying: Iterable[Var] | Mapping[Var, object]
) -> tuple[Expr, Expr] | None:
    """(min, max) expressions without the varying variables; None if no finite bound is known."""
    ends = SetEvaluator(analyzer, varying).ends(p)
    return None if ends is None else (analyzer.emit(ends[0]), analyzer.emit(ends[1]))
