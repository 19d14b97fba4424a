"""Scaling for Strassen's algorithm, so that errors are relative to the largest element of each row and each
column.

    x @ w   =>   where(scalable, multiply(x', w') · c · s, direct)

s has a power of two for each row of x, and c one for each column of w, so that x' = x d / s and w' = w / (d
c) have elements of at most about 1 (outside scaling). d has a power of two for each index of K (inside
scaling). It is computed from w alone, and makes the rows of w equally large. All scaling is exact.

Rows of x that are not finite, or too small for inside scaling, are zeros in x'. `product_rows` computes
exactly these rows by definition. Rows and columns of zeros have results of 0.

Source: Ballard, Benson, Druinsky, Lipshitz and Schwartz, Improving the Numerical Stability of Fast Matrix
Multiplication, 2016.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dlc_core.algorithms.strassen.product_rows import ROWS
from dlc_core.graph.node import Node, constant
from dlc_core.op.declare import NDArray
from dlc_core.op.std import BY_NAME as OPS

ABS, MAX, MUL, SUB = (OPS[name] for name in ("abs", "reduce_max", "mul", "sub"))
WHERE, LESS, EQUAL, NOT = (OPS[name] for name in ("where", "less", "equal", "logical_not"))
BITS, AND, MAXIMUM, MINIMUM = (OPS[name] for name in ("bitcast", "bitwise_and", "maximum", "minimum"))
LOGICAL_AND, LOGICAL_OR = OPS["logical_and"], OPS["logical_or"]

EXPONENT = 0x7F800000
"""The bits of a float32's exponent."""
ONE = 127 << 23
"""The bits of 1."""
LEAST, MOST = 1 << 23, 253 << 23
"""The bits of the least and the greatest normal power of two with a normal inverse."""
FACTORS = 60
"""The exponents of inside scaling are at least -FACTORS; those of outside scaling of columns are from
-FACTORS to FACTORS. Beyond these limits, rows and columns are negligible, or Strassen's algorithm is not
used."""
MIN_RATIO = 1 / 8
"""Rows are not scaled if all are at least this fraction of the largest row of a matrix."""


def can_scale(w: NDArray) -> bool:
    """Whether a matrix can be scaled: its elements are finite and far below the maximum of float32."""
    return bool(np.isfinite(w).all() and np.abs(w).max(initial=0.0) < 2.0**FACTORS)


def scaled_product(x: Node, w: NDArray, multiply: Callable[[Node, Node], Node]) -> Node:
    """The product of x and a matrix by the function `multiply`, with scaled operands."""
    inside, columns = _factors(w)
    operand, size = x, _row_maxima(x)
    zero = constant(np.float32(0))
    is_zero, scalable = EQUAL.build(size, zero), LESS.build(size, constant(np.float32(np.inf)))
    if not (inside == 1).all():
        # The factors of tiny elements would not be exact.
        normal = LESS.build(constant(np.float32(2.0**-FACTORS)), size)
        scalable = LOGICAL_AND.build(scalable, LOGICAL_OR.build(is_zero, normal))
        operand = MUL.build(x, constant(inside))
        size = _row_maxima(operand)
    bits = AND.build(BITS.build(size, to="int32"), constant(np.int32(EXPONENT)))
    bits = MINIMUM.build(MAXIMUM.build(bits, constant(np.int32(LEAST))), constant(np.int32(MOST)))
    inverse = BITS.build(SUB.build(constant(np.int32(2 * ONE)), bits), to="float32")
    rows = WHERE.build(is_zero, zero, BITS.build(bits, to="float32"))
    scaled = WHERE.build(scalable, MUL.build(operand, inverse), zero)
    with np.errstate(divide="ignore", invalid="ignore"):
        weights = w / np.where(inside == 0, 1, inside)[:, None] / np.where(columns == 0, 1, columns)
    product = multiply(scaled, constant(weights.astype(np.float32)))
    results = MUL.build(MUL.build(product, constant(columns)), rows)
    return WHERE.build(scalable, results, ROWS.build(x, constant(w), NOT.build(scalable)))


def _row_maxima(x: Node) -> Node:
    return MAX.build(ABS.build(x), axes=(-1,), keepdims=True)


def _factors(w: NDArray) -> tuple[NDArray, NDArray]:
    """Factors of each row of a matrix, at most 1, and of each column of the scaled matrix.

    Rows and columns of zeros have the factor 0.  The sizes of columns do not affect the factors of rows.
    """
    sizes = np.abs(w).astype(np.float64)
    columns = _power(sizes.max(0))
    rows = _power((sizes / np.where(columns == 0, 1, columns)).max(1))
    inside = np.maximum(rows / rows.max(initial=2.0**-FACTORS), 2.0**-FACTORS) * (rows > 0)
    if inside.min(initial=1.0) >= MIN_RATIO:
        inside = np.ones_like(inside)
    columns = _power((sizes / np.where(inside == 0, 1, inside)[:, None]).max(0))
    columns = np.maximum(columns, 2.0**-FACTORS) * (columns > 0)
    return inside.astype(np.float32), columns.astype(np.float32)


def _power(sizes: NDArray) -> NDArray:
    """The greatest power of two that is not above each size; 0 for 0."""
    return np.asarray(np.where(sizes > 0, np.ldexp(1.0, np.frexp(sizes)[1] - 1), 0.0))


__all__ = ["can_scale", "scaled_product"]
