"""GEMM by Strassen's algorithm: seven products of submatrices instead of eight.

Both matrices and the result are divided into four submatrices of half the rows and columns.  Each product
multiplies a sum of submatrices of `a` with a sum of submatrices of `b`, and each submatrix of the result is a
sum of products.  This saves an eighth of the multiplications and adds sums of fewer elements.  In float32 the
root mean square error is about one and a half times that of a plain GEMM, on two levels about twice.

If the number of rows is symbolic, whole blocks of rows are computed this way, and the tail by a plain GEMM.
A known number of rows may be computed in blocks too.

Source: Strassen, Gaussian Elimination is not Optimal, 1969.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from dlc_core import te
from dlc_core.algorithms.minimal_filtering.matrices import transformed
from dlc_core.algorithms.strassen.submatrices import (
    LEFT,
    PAIRS,
    PRODUCTS,
    SINGLES,
    combined,
    stage,
)
from dlc_core.algorithms.strassen.two_level import lowered_two_level
from dlc_core.arith import Analyzer
from dlc_core.ir.expr import Expr, as_expr, const, const_value
from dlc_core.ir.types import TensorType, Type
from dlc_core.op.declare import Attr, ErrorSample, NDArray, Sample, Tensor, op, tensor_types
from dlc_core.op.infer import Attrs, ceil_div, check_rank, fail, merge_dims
from dlc_core.op.lower import compute, flattened, unflattened
from dlc_core.tir.intrinsics import if_then_else

BLOCK = 64
"""The default block size for a symbolic number of rows."""


def _infer(types: Sequence[Type], attrs: Attrs) -> Type:
    a, b = tensor_types(types)
    parts = 2 ** attrs["levels"]
    block = attrs["block"]
    if block < 0 or block % 2 or (block and parts > 2):
        raise fail(f"blocks of {block} rows", "an even number is needed, on one level, or 0")
    check_rank(a, 2, None, "a")
    check_rank(b, 2, 2, "b")
    if a.dtype is not b.dtype:
        raise fail(f"inputs have dtypes {a.dtype} and {b.dtype}", "they must have one dtype")
    merge_dims(a.shape[-1], b.shape[0], "the inner dims")
    for size in b.shape:
        if not isinstance(size, int) or size % parts or not size:
            needed = "even" if parts == 2 else f"multiples of {parts}"
            raise fail(f"b has a dim of {size}", f"both must be {needed}")
    rows = math.prod(size for size in a.shape[:-1] if isinstance(size, int))
    if block and all(isinstance(size, int) for size in a.shape[:-1]) and rows % block:
        raise fail(f"{rows} rows in blocks of {block}", "blocks must divide them")
    return TensorType((*a.shape[:-1], b.shape[1]), a.dtype)


def _reference(a: NDArray, b: NDArray, *, levels: int, block: int) -> NDArray:
    return np.asarray(np.matmul(a, b))


def _lower(type_: TensorType, attrs: Attrs, a: te.Tensor, b: te.Tensor) -> te.Tensor:
    lead = [as_expr(d) for d in type_.shape[:-1]]
    rows = lead[0]
    for extent in lead[1:]:
        rows = rows * extent
    static_rows = const_value(rows)
    if static_rows is not None and attrs["levels"] == 2:
        return _unflattened(type_, lead, lowered_two_level(lead, a, b))
    inner, columns = (as_expr(d) for d in b.shape)
    depth, width = inner // 2, columns // 2
    size = attrs["block"] or (BLOCK if static_rows is None else 0)
    blocks = [rows // size] if size else []
    half = const(size // 2) if size else ceil_div(rows, 2)

    def left(submatrix: int, begin: Expr, i: Expr, k: Expr) -> Expr:
        row = begin + i + submatrix // 2 * half
        index = (*unflattened(row, lead), k + submatrix % 2 * depth)
        value = a[index]
        return value if blocks or submatrix < 2 else if_then_else(row < rows, value, const(0, a.dtype))

    def right(row: Expr, column: Expr, k: Expr, n: Expr) -> Expr:
        return b[row * depth + k, column * width + n]

    def row_sum(f: Expr, *index: Expr) -> Expr:
        *block, i, k = index
        begin = block[0] * size if block else const(0)
        return transformed(LEFT, f, lambda submatrix: left(submatrix, begin, i, k))

    def difference(f: Expr, k: Expr, n: Expr) -> Expr:
        """Submatrix 11 or 22 of B, alternately, minus submatrix 22, 12, 12, 21 or 21."""
        other = ((f + 3) // 2 % 2, (f + 3) // 3 % 2)
        return right(f % 2, f % 2, k, n) - right(*other, k, n)

    def products(name: str, count: int, factor: Callable[[Expr, Expr, Expr], Expr], first: int) -> te.Tensor:
        axis = te.reduce_axis(depth, "k")

        def body(f: Expr, *index: Expr) -> te.tensor.Reduction:
            *row, n = index
            operand_index = (f + first, *row, axis.var)
            return te.sum(sums[operand_index] * factor(f, axis.var, n), axis=axis)

        return stage(name, (count, *blocks, half, width), body)

    sums = stage("rows", (PRODUCTS, *blocks, half, depth), row_sum)
    weights = stage("weights", (PAIRS, depth, width), difference)
    pairs = products("pairs", PAIRS, lambda f, k, n: weights[f, k, n], 0)
    singles = products("singles", SINGLES, lambda f, k, n: right(1 - f, 1 - f, k, n), PAIRS)

    def result(i: Expr, n: Expr) -> Expr:
        row_in_block = i % size if blocks else i
        index = (*([i // size] if blocks else []), row_in_block % half, n % width)

        def product(number: int) -> Expr:
            operand_index = (const(number if number < PAIRS else number - PAIRS), *index)
            return pairs[operand_index] if number < PAIRS else singles[operand_index]

        value = combined(row_in_block // half * 2 + n // width, product)
        return value if tail is None else if_then_else(i < blocked_rows, value, tail[i - blocked_rows, n])

    tail: te.Tensor | None = None
    blocked_rows = rows // size * size if size else rows
    if static_rows is None and Analyzer().modular(rows)[0] % size:

        def tail_product(i: Expr, n: Expr) -> te.tensor.Reduction:
            axis = te.reduce_axis(inner, "k")
            index = (*unflattened(blocked_rows + i, lead), axis.var)
            return te.sum(a[index] * b[axis, n], axis=axis)

        tail = stage("rest", (rows - blocked_rows, columns), tail_product)
    return _unflattened(type_, lead, stage("results", (rows, columns), result))


def _unflattened(type_: TensorType, lead: Sequence[Expr], total: te.Tensor) -> te.Tensor:
    """The product in the shape of the result."""
    if len(lead) == 1:
        return total
    return compute(type_.shape, lambda *i: total[flattened(i[:-1], lead), i[-1]], "strassen_end")


MATMUL = op(
    "strassen_matmul",
    "the product of one or several matrices and one, by Strassen's algorithm",
    ["a", "b"],
    [
        Attr(
            "levels",
            "int",
            1,
            "2: the seven products use the algorithm too, if the number of rows is known",
            choices=(1, 2),
        ),
        Attr(
            "block",
            "int",
            0,
            f"rows that are computed together, on one level; 0: all, {BLOCK} where their number is not known",
        ),
    ],
    kind="contraction",
    infer=_infer,
    reference=_reference,
    lower=_lower,
    dtypes=("float32", "float64"),
    samples=(
        Sample((Tensor((4, 6)), Tensor((6, 8)))),
        Sample((Tensor((5, 4)), Tensor((4, 2)))),
        Sample((Tensor((2, 3, 8)), Tensor((8, 32)))),
        Sample((Tensor((2, 6, 4)), Tensor((4, 8))), {"block": 4}),
        Sample((Tensor((8, 12)), Tensor((12, 16))), {"levels": 2}),
        Sample((Tensor((2, 5, 8)), Tensor((8, 4))), {"levels": 2}, note="rows with a tail on two levels"),
    ),
    error_samples=(
        ErrorSample((Tensor((4,)), Tensor((4, 2))), {}, "rank"),
        ErrorSample((Tensor((4, 4)), Tensor((2, 4, 2))), {}, "rank"),
        ErrorSample((Tensor((4, 6)), Tensor((4, 2))), {}, "must be equal"),
        ErrorSample((Tensor((4, 4)), Tensor((4, 3))), {}, "even"),
        ErrorSample((Tensor((4, 4)), Tensor((4, 6))), {"levels": 2}, "multiples of 4"),
        ErrorSample((Tensor((6, 4)), Tensor((4, 6))), {"block": 3}, "an even number"),
        ErrorSample((Tensor((6, 4)), Tensor((4, 6))), {"block": 4}, "must divide"),
    ),
)

OPS = (MATMUL,)
