"""Division of index bindings into an outer and an inner part, for `blockize`.

Loops are divided into outer and inner ones. A binding over both, such as `io*32 + ii*4 + l`, is written as
`base + outer * inner_extent + inner`, where `outer` uses outer loops only and `inner` inner loops only. Each
takes all values from zero to its extent.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from dlc_core.arith.analyzer import Analyzer
from dlc_core.arith.iter_map import IterMark, IterSplit, IterSum, detect_iter_map
from dlc_core.ir.dtype import BOOL
from dlc_core.ir.expr import (
    Expr,
    ExprLike,
    Var,
    as_expr,
    conjuncts,
    const,
    free_vars,
    logical_and,
)
from dlc_core.support.record import record


@record(frozen=True)
class DividedIter:
    """base + outer * inner_extent + inner, with 0 <= outer < outer_extent and 0 <= inner < inner_extent."""

    outer: Expr
    outer_extent: Expr
    inner: Expr
    inner_extent: Expr
    base: Expr

    def to_expr(self) -> Expr:
        return self.outer * self.inner_extent + self.inner + self.base


@record(frozen=True)
class IterDivision:
    """One `DividedIter` for each binding, and the predicate in two parts, whose conjunction it is."""

    parts: tuple[DividedIter, ...]
    outer_predicate: Expr
    """The conditions that use outer loops and symbols only."""
    inner_predicate: Expr
    """The other conditions. They use inner loops, and may use outer ones too."""


def divide_iter_map(
    values: Sequence[ExprLike],
    ranges: Mapping[Var, ExprLike],
    inner: Collection[Var],
    predicate: ExprLike = True,
) -> IterDivision | None:
    """Divide `values` over the loops `ranges` (variable to extent, from zero) at the loops `inner`.

    Other variables are symbolic dims, at least 1. None if a value is not a sum of splits of loops, if two
    values use the same part of a loop, or if the scales of the outer loops are not multiples of the range of
    the inner loops.

    >>> i, j, k = Var("i"), Var("j"), Var("k")
    >>> found = divide_iter_map([i * 16 + j * 4 + k], {i: 8, j: 4, k: 4}, inner=[k])
    >>> print(found.parts[0].outer, found.parts[0].outer_extent, found.parts[0].inner_extent)
    i * 4 + j 32 4
    """
    analyzer = Analyzer()
    for extent in map(as_expr, ranges.values()):
        for dim in free_vars(extent):
            if dim not in ranges and dim.dtype is not BOOL:
                analyzer.declare_dim(dim)
    analyzer.bind_extents(dict(ranges))
    found = detect_iter_map(values, ranges)
    if found is None:
        return None
    divider = _Divider(analyzer, frozenset(inner))
    parts = [divider.divide(total) for total in found.sums]
    known = tuple(part for part in parts if part is not None)
    if len(known) != len(parts):
        return None
    conditions = conjuncts(as_expr(predicate))
    inner_loops = frozenset(inner)
    within = [any(v in inner_loops for v in free_vars(c)) for c in conditions]
    return IterDivision(
        known,
        logical_and(*(c for c, inside in zip(conditions, within, strict=True) if not inside)),
        logical_and(*(c for c, inside in zip(conditions, within, strict=True) if inside)),
    )


@record(frozen=True)
class _Term:
    """The term `value * scale` of a sum, where `value` takes 0 … extent-1."""

    value: Expr
    extent: Expr
    scale: Expr


class _Divider:
    def __init__(self, analyzer: Analyzer, inner: frozenset[Var]) -> None:
        self.az = analyzer
        self.inner = inner
        self.marks: dict[IterMark, DividedIter | None] = {}

    def divide(self, total: IterSum) -> DividedIter | None:
        outer: list[_Term] = []
        inner: list[_Term] = []
        for split in total.splits:
            if not self._divide_split(split, outer, inner):
                return None
        inner_part = self._compact(inner, const(1))
        if inner_part is None:
            return None
        value, extent = inner_part
        outer_part = self._compact(outer, extent)
        if outer_part is None:
            return None
        return DividedIter(*outer_part, value, extent, total.base)

    def _compact(self, terms: list[_Term], unit: Expr) -> tuple[Expr, Expr] | None:
        """(sum / unit, its extent), if the terms are digits of one number in units of `unit`."""
        step, value = unit, as_expr(0)
        reach: Expr = const(1)
        left = list(terms)
        while left:
            following = next((t for t in left if self.az.prove_equal(t.scale, step)), None)
            if following is None:
                return None
            left.remove(following)
            value = following.value * reach + value
            step = self.az.simplify(step * following.extent)
            reach = self.az.simplify(reach * following.extent)
        return self.az.simplify(value), reach

    def _divide_split(self, split: IterSplit, outer: list[_Term], inner: list[_Term]) -> bool:
        """Add the split to the outer part, the inner part, or both."""
        source = split.mark.source
        if isinstance(source, Var):
            digit = source // split.lower
            value = digit if split.topmost else digit % split.extent
            side = inner if source in self.inner else outer
            side.append(_Term(self.az.simplify(value), split.extent, split.scale))
            return True
        if split.mark not in self.marks:
            self.marks[split.mark] = self.divide(source)
        divided = self.marks[split.mark]
        return divided is not None and self._divide_fused(split, divided, outer, inner)

    def _divide_fused(
        self, split: IterSplit, divided: DividedIter, outer: list[_Term], inner: list[_Term]
    ) -> bool:
        """Assign a digit of outer * E + inner: outer above E, inner below E, and both if it crosses E."""
        extent, lower = divided.inner_extent, split.lower
        upper = self.az.simplify(lower * split.extent)
        if self._divides(extent, lower):
            digit = divided.outer // (lower // extent)
            value = digit if split.topmost else digit % split.extent
            outer.append(_Term(self.az.simplify(value), split.extent, split.scale))
            return True
        if self._divides(upper, extent):
            value = divided.inner // lower % split.extent
            inner.append(_Term(self.az.simplify(value), split.extent, split.scale))
            return True
        if self._divides(lower, extent) and self._divides(extent, upper):
            low, high = self.az.simplify(extent // lower), self.az.simplify(upper // extent)
            inner.append(_Term(self.az.simplify(divided.inner // lower), low, split.scale))
            value = divided.outer if split.topmost else divided.outer % high
            outer.append(_Term(self.az.simplify(value), high, self.az.simplify(split.scale * low)))
            return True
        return False

    def _divides(self, d: Expr, e: Expr) -> bool:
        return self.az.prove_equal(e % d, 0)
