"""Reductions: sums, products, extremes, their indices, and user-defined ones.

A reducer may combine values in any order; results of floats then differ by rounding. Its value over no
elements is the neutral value.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, overload

from dlc_core.diag import UsageError
from dlc_core.ir.dtype import INDEX, DType
from dlc_core.ir.expr import (
    Expr,
    ExprLike,
    Var,
    as_expr,
    binary,
    const,
    eq,
    free_vars,
    loads_in,
    logical_and,
    maximum,
    minimum,
    select,
)
from dlc_core.te.tensor import Combiner, Reduction
from dlc_core.tir.intrinsics import isnan
from dlc_core.tir.stmt import IterVar

Axes = IterVar | Sequence[IterVar]


def _reducer(name: str, op: str, identity: Callable[[DType], int | float]) -> Combiner:
    return Combiner(
        name,
        lambda a, b: (binary(op, a[0], b[0]),),
        lambda dtypes: (const(identity(dtypes[0]), dtypes[0]),),
    )


def lowest(type_: DType) -> int | float:
    """The lowest value of a dtype, -inf for floats."""
    if type_.decl is not None:
        return type_.decl.limits[0]
    return float("-inf") if type_.is_float else type_.int_range()[0]


def highest(type_: DType) -> int | float:
    """The highest value of a dtype, inf for floats."""
    if type_.decl is not None:
        return type_.decl.limits[1]
    return float("inf") if type_.is_float else type_.int_range()[1]


SUM = _reducer("sum", "add", lambda _: 0)
PROD = _reducer("prod", "mul", lambda _: 1)
MAX = _reducer("max", "max", lowest)
MIN = _reducer("min", "min", highest)
CORE = (SUM, PROD, MAX, MIN)


def _axes(axis: Axes) -> tuple[IterVar, ...]:
    axes = tuple(axis) if isinstance(axis, Sequence) else (axis,)
    wrong = [a for a in axes if not isinstance(a, IterVar) or a.kind != "reduce"]
    if wrong or not axes:
        raise UsageError("a reduction runs over reduce axes", hint="make them with te.reduce_axis")
    return axes


def reduce(
    combiner: Combiner, sources: Sequence[ExprLike], axis: Axes, where: Expr | None = None
) -> Reduction:
    """A reduction with any combiner. `sources` has one value for each value that the combiner combines.

    Points where `where` does not hold are skipped. Raises UsageError if the combiner does not return one
    value of each source's dtype, or depends on more than its arguments.
    """
    axes = _axes(axis)
    values = tuple(as_expr(s) for s in sources)
    if where is not None and not where.dtype.is_bool:
        raise UsageError(f"the condition of a reduction is {where.dtype}, not bool")
    if combiner not in CORE or len(values) != 1:
        _check(combiner, values)
    return Reduction(combiner, values, axes, where)


def _check(combiner: Combiner, sources: tuple[Expr, ...]) -> None:
    dtypes = tuple(s.dtype for s in sources)
    left = tuple(Var(f"x{i}", t) for i, t in enumerate(dtypes))
    right = tuple(Var(f"y{i}", t) for i, t in enumerate(dtypes))
    combined = combiner.combine(left, right)
    for what, values in (("combination", combined), ("neutral value", combiner.identity(dtypes))):
        found = tuple(v.dtype for v in values)
        if found != dtypes:
            raise UsageError(
                f"the {what} of reducer {combiner.name!r} is ({', '.join(map(str, found))})",
                why=f"its sources are ({', '.join(map(str, dtypes))})",
                hint="cast the sources, or the result of the reducer, with .astype(...)",
            )
    foreign = [v.name for v in free_vars(*combined) if v not in left and v not in right]
    foreign += [e.buffer.name for e in loads_in(*combined)]
    if foreign:
        raise UsageError(
            f"reducer {combiner.name!r} depends on {', '.join(foreign)}",
            why="it may depend only on the values that it combines",
            hint="add them to the sources",
        )


def sum(source: ExprLike, axis: Axes, where: Expr | None = None) -> Reduction:
    """Sum; 0 for an empty domain. Integers wrap around."""
    return reduce(SUM, (source,), axis, where)


def prod(source: ExprLike, axis: Axes, where: Expr | None = None) -> Reduction:
    """Product; 1 for an empty domain. Integers wrap around."""
    return reduce(PROD, (source,), axis, where)


@overload
def max(source: ExprLike, axis: Axes, where: Expr | None = None) -> Reduction: ...
@overload
def max(source: ExprLike, axis: ExprLike) -> Expr: ...
def max(source: ExprLike, axis: Axes | ExprLike, where: Expr | None = None) -> Reduction | Expr:
    """Maximum; NaN if any source is NaN. `max(a, b)` of two values is the greater one."""
    if isinstance(axis, (IterVar, Sequence)):
        return reduce(MAX, (source,), axis, where)
    return maximum(source, axis)


@overload
def min(source: ExprLike, axis: Axes, where: Expr | None = None) -> Reduction: ...
@overload
def min(source: ExprLike, axis: ExprLike) -> Expr: ...
def min(source: ExprLike, axis: Axes | ExprLike, where: Expr | None = None) -> Reduction | Expr:
    """Minimum; NaN if any source is NaN. `min(a, b)` of two values is the smaller one."""
    if isinstance(axis, (IterVar, Sequence)):
        return reduce(MIN, (source,), axis, where)
    return minimum(source, axis)


def _arg_combiner(largest: bool) -> Combiner:
    """A combiner of pairs (value, int64 index): the greatest or smallest value, at its first index.

    NaN is preferred to any number, as in NumPy. The index of the neutral pair is 2**63 - 1.
    """

    def combine(left: tuple[Expr, ...], right: tuple[Expr, ...]) -> tuple[Expr, ...]:
        (a, i), (b, j) = left, right
        better = a > b if largest else a < b
        same = eq(a, b)
        if a.dtype.is_float:
            better = logical_and(isnan(a), ~isnan(b)) | better
            same = same | logical_and(isnan(a), isnan(b))
        take_left = better | logical_and(same, i < j)
        return select(take_left, a, b), select(take_left, i, j)

    def identity(dtypes: tuple[DType, ...]) -> tuple[Expr, ...]:
        worst = lowest(dtypes[0]) if largest else highest(dtypes[0])
        return const(worst, dtypes[0]), const(INDEX.int_range()[1], dtypes[1])

    return Combiner("argmax" if largest else "argmin", combine, identity)


def argmax(
    source: ExprLike, axis: Axes, where: Expr | None = None, *, index: ExprLike | None = None
) -> Reduction:
    """The greatest value and its int64 index. A compute of it gives two tensors, (values, indices).

    Of equal values the first index is taken. NaN counts as greater than any number, so the index of the first
    NaN is taken, as in NumPy. The index is the axis's value, or for several axes the row-major index in their
    domains. `index`, an int64 expression, replaces it and orders equal values. If no point is included, the
    result is the lowest value at 2**63 - 1.
    """
    return _arg_reduction(True, source, axis, where, index)


def argmin(
    source: ExprLike, axis: Axes, where: Expr | None = None, *, index: ExprLike | None = None
) -> Reduction:
    """The smallest value and its index. As `argmax`, but NaN counts as smaller than any number."""
    return _arg_reduction(False, source, axis, where, index)


def _arg_reduction(
    largest: bool, source: ExprLike, axis: Axes, where: Expr | None, index: ExprLike | None
) -> Reduction:
    axes = _axes(axis)
    position: Expr = axes[0].var
    if index is not None:
        position = as_expr(index)
    elif len(axes) > 1:
        position = axes[0].var - axes[0].dom.begin
        for one in axes[1:]:
            position = position * one.dom.extent + (one.var - one.dom.begin)
    if position.dtype is not INDEX:
        raise UsageError(f"the index of an extreme is {INDEX}, not {position.dtype}", hint="cast it")
    return reduce(_arg_combiner(largest), (source, position), axes, where)


@dataclass(frozen=True)
class Reducer:
    """A user's commutative reducer: `reducer(source, axis)`, or `reducer((a, b), axis)` of several values."""

    fcombine: Callable[..., Any]
    fidentity: Callable[..., Any]
    name: str = "reduce"

    def __call__(
        self, source: ExprLike | Sequence[ExprLike], axis: Axes, where: Expr | None = None
    ) -> Reduction:
        """Reduce one value, or a tuple of values at once, over reduce axes."""
        several = isinstance(source, (tuple, list))
        sources: Sequence[ExprLike] = source if isinstance(source, (tuple, list)) else (source,)
        return reduce(self._combiner(several), sources, axis, where)

    def _combiner(self, several: bool) -> Combiner:
        def combine(a: tuple[Expr, ...], b: tuple[Expr, ...]) -> tuple[Expr, ...]:
            found = self.fcombine(a, b) if several else self.fcombine(a[0], b[0])
            return self._values(found, tuple(x.dtype for x in a), "combination")

        def identity(dtypes: tuple[DType, ...]) -> tuple[Expr, ...]:
            return self._values(self.fidentity(*dtypes), dtypes, "neutral value")

        return Combiner(self.name, combine, identity)

    def _values(self, found: Any, dtypes: tuple[DType, ...], what: str) -> tuple[Expr, ...]:
        values = tuple(found) if isinstance(found, (tuple, list)) else (found,)
        if len(values) != len(dtypes):
            raise UsageError(
                f"the {what} of reducer {self.name!r} has {len(values)} values, its sources are {len(dtypes)}"
            )
        return tuple(v if isinstance(v, Expr) else as_expr(v, t) for v, t in zip(values, dtypes, strict=True))


def comm_reducer(
    fcombine: Callable[..., Any], fidentity: Callable[..., Any], name: str = "reduce"
) -> Reducer:
    """A reducer from a commutative and associative function `fcombine(x, y)` and its neutral value.

        product = te.comm_reducer(lambda x, y: x * y, lambda t: te.const(1, t), "product")
        B = te.compute((n,), lambda i: product(A[i, k], axis=k))

    To reduce several values at once, x and y are tuples, `fidentity` takes one dtype for each value, and both
    functions return tuples. Python numbers take the dtype of their value. The reducer raises UsageError on
    use if counts or dtypes do not fit the sources.
    """
    count = len(
        [
            p
            for p in inspect.signature(fcombine).parameters.values()
            if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
        ]
    )
    if count != 2:
        raise UsageError(
            f"the combination of reducer {name!r} takes {count} arguments", hint="it combines two: f(x, y)"
        )
    return Reducer(fcombine, fidentity, name)
