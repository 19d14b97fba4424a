"""One-dimensional minimal filtering: matrices that compute neighbouring results of a filter with fewer
multiplications.

For m results of r taps, for inputs d and taps g,

    result = Aᵀ ((G g) ∘ (Bᵀ d))        m + r - 1 products instead of m r

Source: Winograd, Arithmetic Complexity of Computations, 1980. The matrices are the transposed Toom-Cook
matrices for products of polynomials.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cache

from dlc_core.ir.expr import Expr, const, eq, select
from dlc_core.support.record import record

Matrix = tuple[tuple[float, ...], ...]
POINTS: dict[int, tuple[Fraction, ...]] = {
    len(texts): tuple(map(Fraction, texts))
    for texts in (
        ("0",),
        ("0", "1"),
        ("0", "1", "-1"),
        ("0", "3/4", "-3/4", "2"),
        ("0", "5/8", "-5/8", "3/2", "-3/2"),
        ("3/8", "-3/8", "7/8", "-7/8", "7/4", "-7/4"),
        ("0", "1/2", "-1/2", "1", "-1", "2", "-2"),
    )
}
"""The evaluation points of the polynomials, without ∞, by their number.

They have the smallest rounding errors of all fractions up to 3 with denominators of at most 8.  All matrices
except that of the weights are exact in float32.
"""


@record(frozen=True)
class Transforms:
    """The matrices of a filter: `weights` is G, `inputs` Bᵀ, `results` Aᵀ."""

    weights: Matrix
    inputs: Matrix
    results: Matrix


@cache
def filtering(results: int, taps: int) -> Transforms:
    """The matrices for numbers of results and taps with at most 8 products.

    For one result or one tap they give the direct products.
    """
    if taps == 1:
        one = tuple(tuple(float(i == j) for j in range(results)) for i in range(results))
        return Transforms(((1.0,),) * results, one, one)
    if results == 1:
        one = tuple(tuple(float(i == j) for j in range(taps)) for i in range(taps))
        return Transforms(one, one, ((1.0,) * taps,))
    size = results + taps - 1
    points = POINTS[size - 1]
    weights, inputs = [], []
    for point in points:
        others = [other for other in points if other != point]
        scale = Fraction(1)
        for other in others:
            scale *= point - other
        weights.append([point**k / scale for k in range(taps)])
        inputs.append([*_polynomial(others), Fraction(0)])
    weights.append([Fraction(k == taps - 1) for k in range(taps)])
    inputs.append(_polynomial(points))
    powers = [[*(point**i for point in points), Fraction(i == results - 1)] for i in range(results)]
    return Transforms(_floats(weights), _floats(inputs), _floats(powers))


def _polynomial(roots: Sequence[Fraction]) -> list[Fraction]:
    """The coefficients of the product of all (x - root), the constant first."""
    made = [Fraction(1)]
    for root in roots:
        made = [a - root * b for a, b in zip([Fraction(0), *made], [*made, Fraction(0)], strict=True)]
    return made


def _floats(rows: Sequence[Sequence[Fraction]]) -> Matrix:
    return tuple(tuple(float(value) for value in row) for row in rows)


def combination(factors: Sequence[float], terms: Callable[[int], Expr]) -> Expr:
    """The sum of terms times their factors; terms of factor 0 are omitted."""
    order = [index for index, factor in enumerate(factors) if factor]
    if factors[order[0]] == -1:
        # Begin with a term of factor 1: a difference is one operation, a negation and a sum are two.
        order.sort(key=lambda index: factors[index] != 1)
    total: Expr | None = None
    for index in order:
        factor, term = factors[index], terms(index)
        if total is None:
            total = term if factor == 1 else term * const(factor, term.dtype)
        elif factor == 1:
            total = total + term
        elif factor == -1:
            total = total - term
        else:
            total = total + term * const(factor, term.dtype)
    assert total is not None
    return total


def transformed(matrix: Matrix, row: Expr, terms: Callable[[int], Expr]) -> Expr:
    """Row `row` of a matrix times the terms; the row is selected at compile time if its loop is unrolled."""
    rows = [combination(factors, terms) for factors in matrix]
    value = rows[-1]
    for number in range(len(rows) - 2, -1, -1):
        value = select(eq(row, number), rows[number], value)
    return value


__all__ = ["Matrix", "Transforms", "combination", "filtering", "transformed"]
