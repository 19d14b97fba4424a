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


def _found(work: Buffer, best: Buffer, k: Var, n: Expr) -> Stmt:
    """Find the pivot of column k: set `best` to the row from k on with the greatest magnitude."""
    i = Var("i", "int64")
    row = load(best, [0])
    greater = absolute(load(work, [i, k])) > absolute(load(work, [row, k]))
    return seq(store(best, [0], k), loop(i, n - k - 1, If(greater, store(best, [0], i)), begin=k + 1))


def _swapped(rows: Buffer, at: list[Expr], a: Expr, b: Expr, n: Expr) -> Stmt:
    """Swap rows a and b."""
    j, held = Var("j", "int64"), Var("held", rows.dtype)
    first, second = [*at, a, j], [*at, b, j]
    stored = seq(store(rows, first, load(rows, second)), store(rows, second, held))
    return loop(j, n, Let(held, load(rows, first), stored))


def _eliminated(work: Buffer, best: Buffer, det: Buffer, at: list[Expr], n: Expr) -> Stmt:
    """Gaussian elimination in place with partial pivoting. `det[at]` becomes the product of the pivots."""
    k, below, right = (Var(name, "int64") for name in ("k", "below", "right"))
    factor = Var("factor", work.dtype)
    row = load(best, [0])
    swapped = If(ne(row, k), seq(store(det, at, -load(det, at)), _swapped(work, [], k, row, n)))
    cleared = store(work, [below, right], load(work, [below, right]) - factor * load(work, [k, right]))
    ratio = load(work, [below, k]) / load(work, [k, k])
    reduced = loop(below, n - k - 1, Let(factor, ratio, loop(right, n, cleared)), begin=k + 1)
    return loop(
        k,
        n,
        seq(
            _found(work, best, k, n),
            swapped,
            store(det, at, load(det, at) * load(work, [k, k])),
            If(ne(load(work, [k, k]), const(0, work.dtype)), reduced),
        ),
    )


_Step = Callable[[Buffer, Buffer, Buffer, list[Expr], Expr], Stmt]


def _each(type_: TensorType, x: te.Tensor, step: _Step, name: str) -> te.Tensor:
    """Apply `step(work, best, out, at, n)` to each matrix; `work` is a copy of it."""
    held = compute_type(type_.dtype)
    n = x.shape[-1]

    def body(ins: list[Buffer], outs: list[Buffer]) -> Stmt:
        work, best = Buffer("work", (n, n), held), Buffer("best", (1,), "int64")

        def one(at: list[Expr]) -> Stmt:
            copied = nest((n, n), lambda i: store(work, i, cast_to(held, load(ins[0], [*at, *i]))))
            return seq(copied, step(work, best, outs[0], at, n))

        return Alloc(work, Alloc(best, nest(x.shape[:-2], one)))

    made: te.Tensor = te.extern(type_.shape, [x], body, name, dtype_=held)
    return rounded(made, type_.dtype, f"{name}_end")


def _det_lower(type_: TensorType, attrs: Attrs, x: te.Tensor) -> te.Tensor:
    def step(work: Buffer, best: Buffer, out: Buffer, at: list[Expr], n: Expr) -> Stmt:
        return seq(store(out, at, const(1, work.dtype)), _eliminated(work, best, out, at, n))

    return _each(type_, x, step, "det")


def _det_reference(x: NDArray) -> NDArray:
    return np.asarray(np.linalg.det(x))


DET = op(
    "det",
    "determinants of square matrices, by elimination with the greatest pivot of each column",
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
        Sample((Tensor((1, 0, 0)),), note="of no rows"),
    ),
    error_samples=[
        ErrorSample((Tensor((2, 3)),), {}, "square"),
        ErrorSample((Tensor((3,)),), {}, "rank"),
    ],
)


def _inverted(work: Buffer, best: Buffer, made: Buffer, at: list[Expr], n: Expr) -> Stmt:
    """Gauss-Jordan elimination: eliminate every row but the pivot's in `work`. `made[at]` starts as the unit
    matrix and becomes the inverse.
    """
    k, i = (Var(name, "int64") for name in ("k", "i"))
    factor, pivot = Var("factor", work.dtype), Var("pivot", work.dtype)
    row = load(best, [0])

    def scaled(rows: Buffer, place: list[Expr]) -> Stmt:
        j = Var("j", "int64")
        return loop(j, n, store(rows, [*place, k, j], load(rows, [*place, k, j]) / pivot))

    def cleared(rows: Buffer, place: list[Expr]) -> Stmt:
        j = Var("j", "int64")
        below = load(rows, [*place, i, j]) - factor * load(rows, [*place, k, j])
        return loop(j, n, store(rows, [*place, i, j], below))

    both: tuple[tuple[Buffer, list[Expr]], ...] = ((work, []), (made, at))
    swaps = [_swapped(rows, place, k, row, n) for rows, place in both]
    scales = [scaled(rows, place) for rows, place in both]
    clears = [cleared(rows, place) for rows, place in both]
    others = loop(i, n, If(ne(i, k), Let(factor, load(work, [i, k]), seq(*clears))))
    unit = nest((n, n), lambda p: store(made, [*at, *p], cast_to(made.dtype, eq(p[0], p[1]))))
    step = seq(
        _found(work, best, k, n),
        If(ne(row, k), seq(*swaps)),
        Let(pivot, load(work, [k, k]), seq(*scales)),
        others,
    )
    return seq(unit, loop(k, n, step))


def _inverse_lower(type_: TensorType, attrs: Attrs, x: te.Tensor) -> te.Tensor:
    return _each(type_, x, _inverted, "inverse")


def _inverse_reference(x: NDArray) -> NDArray:
    return np.asarray(np.linalg.inv(x))


INVERSE = op(
    "inverse",
    "inverses of square matrices, by elimination with the greatest pivot of each column; of a singular one"
    " infinities and NaNs, where the reference raises an error",
    ["x"],
    kind="opaque",
    infer=of_input(_square_infer, FLOATS),
    reference=_inverse_reference,
    lower=_inverse_lower,
    samples=(
        Sample((Tensor((2, 2), [[0, 1], [2, 0]]),), note="a pivot of 0"),
        Sample((Tensor((3, 3), [[2, 1, 0], [1, 3, 1], [0, 1, 4]]),)),
        Sample((Tensor((2, 2, 2), [[[1, 0], [0, 2]], [[4, 3], [2, 1]]]),)),
        Sample((Tensor((1, 0, 0)),), note="of no rows"),
    ),
    error_samples=[
        ErrorSample((Tensor((2, 3)),), {}, "square"),
        ErrorSample((Tensor((3,)),), {}, "rank"),
    ],
)

OPS = (DET, INVERSE)
