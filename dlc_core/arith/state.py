"""The state of an analyzer: ranges of variables, assumed facts, and the memo tables that depend on them."""

from __future__ import annotations

from dataclasses import dataclass, field

from dlc_core.arith.interval import EVERYTHING, INF, Interval
from dlc_core.arith.poly import Algebra, Poly
from dlc_core.ir.dtype import INDEX
from dlc_core.ir.expr import Expr, Var


@dataclass(frozen=True)
class VarRange:
    """The range of a variable: constant bounds, and inclusive symbolic bounds if an end is not constant."""

    interval: Interval
    low: Poly | None = None
    high: Poly | None = None
    order: int = 0


@dataclass
class Memo:
    """Results that hold under one set of ranges and facts."""

    polys: dict[Expr, Poly] = field(default_factory=dict)
    exprs: dict[Expr, Expr] = field(default_factory=dict)
    bounds: dict[Expr, Interval] = field(default_factory=dict)
    negations: dict[Expr, Expr] = field(default_factory=dict)
    """Negations of simplified conditions. Nested conditions share operands, so that a search without memo
    takes exponential time."""
    nonneg: dict[tuple[frozenset[tuple[tuple[Expr, ...], int]], int], bool] = field(default_factory=dict)


@dataclass
class Knowledge:
    """The facts of a scope. They are copied when an inner scope opens, and restored when it closes."""

    ranges: dict[Var, VarRange] = field(default_factory=dict)
    facts: list[Poly] = field(default_factory=list)
    """Polys known to be >= 0."""
    values: dict[Expr, Poly] = field(default_factory=dict)
    """Atoms known to equal a poly."""
    residues: dict[Expr, tuple[int, int]] = field(default_factory=dict)
    """Variables known to be r modulo m, as (m, r)."""
    truths: dict[Expr, bool] = field(default_factory=dict)
    """Simplified conditions known to be true or false."""
    symbolic: bool = False
    """Whether any range has a symbolic end."""

    def copy(self) -> Knowledge:
        return Knowledge(
            dict(self.ranges),
            list(self.facts),
            dict(self.values),
            dict(self.residues),
            dict(self.truths),
            self.symbolic,
        )


class State(Algebra):
    """Knowledge and memo tables. A change of the knowledge clears the memo tables."""

    def __init__(self) -> None:
        super().__init__()
        self._known = Knowledge()
        self._memo = Memo()
        self._looked_up: set[Var] = set()
        self._order = 0

    def _range_of(self, var: Var) -> VarRange:
        found = self._known.ranges.get(var)
        if found is not None:
            return found
        self._looked_up.add(var)
        if var.bounds is not None:
            return VarRange(self._own_range(var))
        if var.dtype is INDEX or not (var.dtype.is_int or var.dtype.is_bool):
            return _UNKNOWN
        return VarRange(var.dtype.int_range())

    @staticmethod
    def _own_range(var: Var) -> Interval:
        """The bounds in a variable's declaration."""
        if var.bounds is None:
            return EVERYTHING
        return var.bounds.low, INF if var.bounds.high is None else var.bounds.high

    def _set_range(
        self, var: Var, interval: Interval, low: Poly | None = None, high: Poly | None = None
    ) -> None:
        low_value, high_value = interval
        if high_value < low_value:
            # Code under an empty range never runs, so any range is right. One point keeps the interval valid.
            interval, low, high = (low_value, low_value), None, None
        old = self._known.ranges.get(var)
        if old is not None and (old.interval, old.low, old.high) == (interval, low, high):
            return
        self._order += 1
        self._known.ranges[var] = VarRange(interval, low, high, self._order)
        self._known.symbolic = self._known.symbolic or low is not None or high is not None
        if old is not None or var in self._looked_up:
            self._clear_memo()

    def _clear_memo(self) -> None:
        """Drop memoised results that new facts may improve."""
        self._memo = Memo()
        self._looked_up = set()


_UNKNOWN = VarRange(EVERYTHING)
