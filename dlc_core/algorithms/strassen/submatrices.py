"""The coefficients of Strassen's algorithm: the submatrices of each of the seven products, and the products
of each result.

Source: Strassen, Gaussian Elimination is not Optimal, 1969.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dlc_core import te
from dlc_core.algorithms.minimal_filtering.matrices import Matrix, transformed
from dlc_core.ir.expr import Expr, select
from dlc_core.ir.types import Dim

STAGE = "strassen"
"""The annotation of the blocks of such a product: the name of the stage."""

LEFT: Matrix = (
    (1, 0, 0, 1),
    (1, 0, 0, 0),
    (-1, 0, 1, 0),
    (0, 1, 0, -1),
    (0, 0, 0, 1),
    (1, 1, 0, 0),
    (0, 0, 1, 1),
)
"""The factors of submatrices 11, 12, 21, 22 of the left-hand side in each product."""
PAIRS = 5
"""The number of products by a difference of two submatrices of the right-hand side."""
SINGLES = 2
"""The number of products by a single submatrix, which come last."""
PRODUCTS = PAIRS + SINGLES
RESULT: Matrix = (
    (1, 0, 1, 0, 0, -1, -1),
    (1, 0, 0, -1, 0, 0, 0),
    (0, 1, 0, 0, 0, 0, -1),
    (0, 1, -1, -1, -1, 0, 0),
)
"""The factors of the products, the last two first, in each submatrix of the result."""

Submatrix = tuple[Expr, Expr]
"""The row and column of a submatrix, 0 or 1 each."""


def stage(
    name: str, shape: Sequence[Dim | Expr], body: Callable[..., Expr | te.tensor.Reduction]
) -> te.Tensor:
    """A stage of the algorithm, annotated by its name."""
    made: te.Tensor = te.compute(shape, body, f"{STAGE}_{name}", annotations={STAGE: name})
    return made


def minuend(f: Expr) -> Submatrix:
    """The first submatrix of the right-hand side in product `f`: 11 and 22 alternately."""
    return f % 2, f % 2


def subtrahend(f: Expr) -> Submatrix:
    """The submatrix that product `f` subtracts from the minuend: 22, 12, 12, 21 and 21 for the pairs.

    Products of a single submatrix subtract nothing; for these it is the minuend.
    """
    pair = f < PAIRS
    return select(pair, (f + 3) // 2 % 2, f % 2), select(pair, (f + 3) // 3 % 2, f % 2)


def combined(submatrix: Expr, product: Callable[[int], Expr]) -> Expr:
    """A submatrix of the result, combined from the products."""
    return transformed(RESULT, submatrix, lambda index: product((index - SINGLES) % PRODUCTS))


__all__ = [
    "LEFT",
    "PAIRS",
    "PRODUCTS",
    "SINGLES",
    "STAGE",
    "Submatrix",
    "combined",
    "minuend",
    "stage",
    "subtrahend",
]
