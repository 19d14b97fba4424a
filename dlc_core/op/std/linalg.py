"""Matrices: determinants and inverses."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dlc_core import te
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.conditions import EQUAL
from dlc_core.ir.expr import Expr, Var, cast_to, const, eq, load, ne
from dlc_core.ir.types import TensorType
from dlc_core.op.assume import assume
from dlc_core.op.declare import FLOATS, ErrorSample, NDArray, Sample, Tensor, op
from dlc_core.op.infer import Attrs, check_rank, fail, of_input
from dlc_core.op.lower import compute_type, nest, rounded
from dlc_core.tir.intrinsics import absolute
from dlc_core.tir.stmt import Alloc, If, Let, Stmt, loop, seq, store


def _square_infer(x: TensorType, attrs: Attrs) -> TensorType:
    _det_infer(x, attrs)
    return x


def _det_infer(x: TensorType, attrs: Attrs) -> TensorType:
    check_rank(x, 2)
    rows, columns = x.shape[-2:]
    if isinstance(rows, int) and isinstance(columns, int) and rows != columns:
        raise fail(f"the matrices are {x}", "they must be square")
    assume(EQUAL, columns, rows, f"the matrices {x} must be square")
    return TensorType(x.shape[:-2], x.dtype)


def _find_pivot(work: Buffer, pivot_row: Buffer, k: Var, n: Expr) -> Stmt:
    """Find the pivot of column k: set `pivot_row` to the row from k on with the greatest magnitude."""
    i = Var("i", "int64")
    row = load(pivot_row, [0])
    greater = absolute(load(work, [i, k])) > absolute(load(work, [row, k]))
    return seq(
        store(pivot_row, [0], k), loop(i, n - k - 1, If(greater, store(pivot_row, [0], i)), begin=k + 1)
    )


def _swap_rows(rows: Buffer, at: list[Expr], a: Expr, b: Expr, n: Expr) -> Stmt:
    """Swap rows a and b."""
    j, temporary = Var("j", "int64"), Var("held", rows.dtype)
    first, second = [*at, a, j], [*at, b, j]
    stored = seq(store(rows, first, load(rows, second)), store(rows, second, temporary))
    return loop(j, n, Let(temporary, load(rows, first), stored))


def _eliminate(work: Buffer, pivot_row: Buffer, det: Buffer, at: list[Expr], n: Expr) -> Stmt:
    """Gaussian elimination in place with partial pivoting. `det[at]` becomes the product of the pivots."""
    k, lower_row, right = (Var(name, "int64") for name in ("k", "lower_row", "right"))
    factor = Var("factor", work.dtype)
    row = load(pivot_row, [0])
    swapped = If(ne(row, k), seq(store(det, at, -load(det, at)), _swap_rows(work, [], k, row, n)))
    cleared = store(
        work, [lower_row, right], load(work, [lower_row, right]) - factor * load(work, [k, right])
    )
    ratio = load(work, [lower_row, k]) / load(work, [k, k])
    reduced = loop(lower_row, n - k - 1, Let(factor, ratio, loop(right, n, cleared)), begin=k + 1)
    return loop(
        k,
        n,
        seq(
            _find_pivot(work, pivot_row, k, n),
            swapped,
            store(det, at, load(det, at) * load(work, [k, k])),
            If(ne(load(work, [k, k]), const(0, work.dtype)), reduced),
        ),
    )


_Step = Callable[[Buffer, Buffer, Buffer, list[Expr], Expr], Stmt]


def _per_matrix(type_: TensorType, x: te.Tensor, step: _Step, name: str) -> te.Tensor:
    """Apply `step(work, pivot_row, out, at, n)` to each matrix; `work` is a copy of it."""
    wide = compute_type(type_.dtype)
    n = x.shape[-1]

    def body(ins: list[Buffer], outs: list[Buffer]) -> Stmt:
        work, pivot_row = Buffer("work", (n, n), wide), Buffer("best", (1,), "int64")

        def for_matrix(at: list[Expr]) -> Stmt:
            copied = nest((n, n), lambda i: store(work, i, cast_to(wide, load(ins[0], [*at, *i]))))
            return seq(copied, step(work, pivot_row, outs[0], at, n))

        return Alloc(work, Alloc(pivot_row, nest(x.shape[:-2], for_matrix)))

    made: te.Tensor = te.extern(type_.shape, [x], body, name, dtype_=wide)
    return rounded(made, type_.dtype, f"{name}_end")


def _det_lower(type_: TensorType, attrs: Attrs, x: te.Tensor) -> te.Tensor:
    def step(work: Buffer, pivot_row: Buffer, out: Buffer, at: list[Expr], n: Expr) -> Stmt:
        return seq(store(out, at, const(1, work.dtype)), _eliminate(work, pivot_row, out, at, n))

    return _per_matrix(type_, x, step, "det")


def _det_reference(x: NDArray) -> NDArray:
    return np.asarray(np.linalg.det(x))


DET = op(
    "det",
    "determinants of square matrices, by Gaussian elimination with partial pivoting",
    ["x"],
    kind="opaque",
    infer=of_input(_det_infer, FLOATS),
    reference=_det_reference,
    lower=_det_lower,
    samples=(
        Sample((Tensor((3, 3)),)),
        Sample((Tensor((2, 4, 4)),), {}, ("float32", "float64")),
        Sample((Tensor((2, 2), [[0, 1], [1, 0]]),)),
        Sample((Tensor((2, 2), [[1, 2], [2, 4]]),), note="singular"),
        Sample((Tensor((1, 0, 0)),), note="no rows"),
    ),
    error_samples=[
        ErrorSample((Tensor((2, 3)),), {}, "square"),
        ErrorSample((Tensor((3,)),), {}, "rank"),
    ],
)


def _invert(work: Buffer, pivot_row: Buffer, made: Buffer, at: list[Expr], n: Expr) -> Stmt:
    """Gauss-Jordan elimination in `work` of all rows but the pivot's. `made[at]` starts as the identity
    matrix and becomes the inverse.
    """
    k, i = (Var(name, "int64") for name in ("k", "i"))
    factor, pivot = Var("factor", work.dtype), Var("pivot", work.dtype)
    row = load(pivot_row, [0])

    def scaled(rows: Buffer, prefix: list[Expr]) -> Stmt:
        j = Var("j", "int64")
        return loop(j, n, store(rows, [*prefix, k, j], load(rows, [*prefix, k, j]) / pivot))

    def cleared(rows: Buffer, prefix: list[Expr]) -> Stmt:
        j = Var("j", "int64")
        value = load(rows, [*prefix, i, j]) - factor * load(rows, [*prefix, k, j])
        return loop(j, n, store(rows, [*prefix, i, j], value))

    both: tuple[tuple[Buffer, list[Expr]], ...] = ((work, []), (made, at))
    swaps = [_swap_rows(rows, prefix, k, row, n) for rows, prefix in both]
    scales = [scaled(rows, prefix) for rows, prefix in both]
    clears = [cleared(rows, prefix) for rows, prefix in both]
    others = loop(i, n, If(ne(i, k), Let(factor, load(work, [i, k]), seq(*clears))))
    unit = nest((n, n), lambda p: store(made, [*at, *p], cast_to(made.dtype, eq(p[0], p[1]))))
    step = seq(
        _find_pivot(work, pivot_row, k, n),
        If(ne(row, k), seq(*swaps)),
        Let(pivot, load(work, [k, k]), seq(*scales)),
        others,
    )
    return seq(unit, loop(k, n, step))


def _inverse_lower(type_: TensorType, attrs: Attrs, x: te.Tensor) -> te.Tensor:
    return _per_matrix(type_, x, _invert, "inverse")


def _inverse_reference(x: NDArray) -> NDArray:
    return np.asarray(np.linalg.inv(x))


INVERSE = op(
    "inverse",
    "inverses of square matrices, by Gauss-Jordan elimination with partial pivoting; infinities and NaNs for"
    " a singular matrix, for which the reference raises an error",
    ["x"],
    kind="opaque",
    infer=of_input(_square_infer, FLOATS),
    reference=_inverse_reference,
    lower=_inverse_lower,
    samples=(
        Sample((Tensor((2, 2), [[0, 1], [2, 0]]),), note="a pivot of 0"),
        Sample((Tensor((3, 3), [[2, 1, 0], [1, 3, 1], [0, 1, 4]]),)),
        Sample((Tensor((2, 2, 2), [[[1, 0], [0, 2]], [[4, 3], [2, 1]]]),)),
        Sample((Tensor((1, 0, 0)),), note="no rows"),
    ),
    error_samples=[
        ErrorSample((Tensor((2, 3)),), {}, "square"),
        ErrorSample((Tensor((3,)),), {}, "rank"),
    ],
)

OPS = (DET, INVERSE)
