"""The lowering of two levels of Strassen's algorithm: 49 products of second-level submatrices instead of 64.

Each of the seven products of the first level is a product of two matrices, and uses the algorithm again.
"""

from __future__ import annotations

from collections.abc import Sequence

from dlc_core import te
from dlc_core.algorithms.minimal_filtering.matrices import transformed
from dlc_core.algorithms.strassen.submatrices import (
    LEFT,
    PAIRS,
    PRODUCTS,
    Submatrix,
    combined,
    minuend,
    stage,
    subtrahend,
)
from dlc_core.ir.expr import Expr, as_expr, const, const_value
from dlc_core.op.infer import ceil_div
from dlc_core.op.lower import unflattened
from dlc_core.tir.intrinsics import if_then_else


def lowered_two_level(lead: Sequence[Expr], a: te.Tensor, b: te.Tensor) -> te.Tensor:
    """The product as [rows, columns], for a known number of rows.

    The stages are the sums of submatrices of `a` ("sums"), the second-level sums ("rows"), the factors of `b`
    ("weights"), the products ("products"), the submatrices of each outer product ("submatrices"), and
    "results".
    """
    rows = as_expr(1)
    for extent in lead:
        rows = rows * extent
    inner, columns = (as_expr(d) for d in b.shape)
    half, depth, width = ceil_div(rows, 4), inner // 4, columns // 4
    exact = const_value(rows % 4) == 0
    zero = const(0, a.dtype)

    def left(submatrix: int, row_half: Expr, i: Expr, k: Expr) -> Expr:
        row = (submatrix // 2 * 2 + row_half) * half + i
        index = (*unflattened(row, lead), k + submatrix % 2 * 2 * depth)
        value = a[index]
        return value if exact else if_then_else(row < rows, value, zero)

    def right(outer: Submatrix, own: Submatrix, k: Expr, n: Expr) -> Expr:
        return b[(2 * outer[0] + own[0]) * depth + k, (2 * outer[1] + own[1]) * width + n]

    def factor(f: Expr, g: Expr, k: Expr, n: Expr) -> Expr:
        def difference(outer: Submatrix) -> Expr:
            other = right(outer, subtrahend(g), k, n)
            return right(outer, minuend(g), k, n) - if_then_else(g < PAIRS, other, zero)

        return difference(minuend(f)) - if_then_else(f < PAIRS, difference(subtrahend(f)), zero)

    sums = stage(
        "sums",
        (PRODUCTS, 2, half, 2 * depth),
        lambda f, row_half, i, k: transformed(LEFT, f, lambda submatrix: left(submatrix, row_half, i, k)),
    )
    made = stage(
        "rows",
        (PRODUCTS, PRODUCTS, half, depth),
        lambda f, g, i, k: transformed(
            LEFT, g, lambda submatrix: sums[f, const(submatrix // 2), i, k + submatrix % 2 * depth]
        ),
    )
    weights = stage("weights", (PRODUCTS, PRODUCTS, depth, width), factor)
    axis = te.reduce_axis(depth, "k")
    products = stage(
        "products",
        (PRODUCTS, PRODUCTS, half, width),
        lambda f, g, i, n: te.sum(made[f, g, i, axis.var] * weights[f, g, axis.var, n], axis=axis),
    )
    submatrices = stage(
        "submatrices",
        (PRODUCTS, 4, half, width),
        lambda f, submatrix, i, n: combined(submatrix, lambda g: products[f, const(g), i, n]),
    )

    def result(i: Expr, n: Expr) -> Expr:
        own = i // half % 2 * 2 + n // width % 2
        outer = i // half // 2 * 2 + n // width // 2
        return combined(outer, lambda f: submatrices[const(f), own, i % half, n % width])

    return stage("results", (rows, columns), result)


__all__ = ["lowered_two_level"]
