"""Sets of consecutive integers with symbolic ends.

A computed set contains every value that occurs, and may contain more: unions fill the gap between their
parts, and ends are exact only for expressions that are affine in the varying variables.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce

from dlc_core.arith.analyzer import Analyzer
from dlc_core.arith.intset import SetEvaluator
from dlc_core.diag import UsageError
from dlc_core.ir.expr import Expr, ExprLike, Var, as_expr, maximum, minimum
from dlc_core.support.record import record


@record(frozen=True)
class IntSet:
    """All integers from `low` to `high`, both included; an end of None is infinite."""

    low: Expr | None
    high: Expr | None

    @staticmethod
    def point(value: ExprLike) -> IntSet:
        e = as_expr(value)
        return IntSet(e, e)

    @staticmethod
    def of(begin: ExprLike, extent: ExprLike) -> IntSet:
        """begin, …, begin + extent - 1."""
        return IntSet(as_expr(begin), as_expr(begin) + extent - 1)

    def __str__(self) -> str:
        low = "-inf" if self.low is None else self.low
        return f"[{low}, {'inf' if self.high is None else self.high}]"


EVERYTHING = IntSet(None, None)


def set_of(
    analyzer: Analyzer, expr: ExprLike, varying: Iterable[Var] | Mapping[Var, tuple[ExprLike, ExprLike]]
) -> IntSet:
    """The values of an index expression over all values of the `varying` variables. The ranges are the bound
    ones, or (begin, extent) from a mapping.

    >>> i, j, n = Var("i"), Var("j"), Var("n")
    >>> print(set_of(Analyzer(), n + i * 8 + j, {i: (0, 4), j: (0, 8)}))
    [n, n + 31]
    """
    if isinstance(varying, Mapping):
        with analyzer.scope():
            for var, (begin, extent) in varying.items():
                analyzer.bind(var, begin, extent)
            return set_of(analyzer, expr, list(varying))
    evaluator = SetEvaluator(analyzer, varying)
    low, high = evaluator.low_and_high(analyzer.poly_of(expr))
    return IntSet(None if low is None else analyzer.emit(low), None if high is None else analyzer.emit(high))


def union(analyzer: Analyzer, sets: Sequence[IntSet]) -> IntSet:
    """The smallest interval that contains all sets. There must be at least one set."""
    if not sets:
        raise UsageError("the union of no sets has no ends")
    return IntSet(
        _joined(analyzer, minimum, [s.low for s in sets]), _joined(analyzer, maximum, [s.high for s in sets])
    )


def _joined(analyzer: Analyzer, choose: object, ends: list[Expr | None]) -> Expr | None:
    known = [e for e in ends if e is not None]
    assert callable(choose)
    return analyzer.simplify(reduce(choose, known)) if len(known) == len(ends) else None


def intersection(analyzer: Analyzer, sets: Sequence[IntSet]) -> IntSet:
    """The intersection of sets; everything if there are none. It is empty if `high < low`."""
    lows = [s.low for s in sets if s.low is not None]
    highs = [s.high for s in sets if s.high is not None]
    return IntSet(
        analyzer.simplify(reduce(maximum, lows)) if lows else None,
        analyzer.simplify(reduce(minimum, highs)) if highs else None,
    )
