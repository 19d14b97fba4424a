"""Matrices: determinants."""

from __future__ import annotations

import numpy as np

from dlc_core import te
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.expr import Expr, Var, cast_to, const, load, ne
from dlc_core.ir.types import TensorType
from dlc_core.op.declare import FLOATS, ErrorSample, NDArray, Sample, Tensor, op
from dlc_core.op.infer import Attrs, check_rank, fail, of_input
from dlc_core.op.lower import compute_type, nest, rounded
from dlc_core.tir.intrinsics import absolute
from dlc_core.tir.stmt import Alloc, If, Let, Stmt, loop, seq, store


def _det_infer(x: TensorType, attrs: Attrs) -> TensorType:
    check_rank(x, 2)
    rows, columns = x.shape[-2:]
    if isinstance(rows, int) and isinstance(columns, int) and rows != columns:
        raise fail(f"the matrices are {x}", "they must be square")
    return TensorType(x.shape[:-2], x.dtype)


def _eliminated(work: Buffer, best: Buffer, det: Buffer, at: list[Expr], n: Expr) -> Stmt:
    """Gaussian elimination in place with the greatest pivot of each column; `det[at]` takes the product."""
    k, i, j, below, right = (Var(name, "int64") for name in ("k", "i", "j", "below", "right"))
    held, factor = Var("held", work.dtype), Var("factor", work.dtype)
    row = load(best, [0])
    search = loop(
        i,
        n - k - 1,
        If(absolute(load(work, [i, k])) > absolute(load(work, [row, k])), store(best, [0], i)),
        begin=k + 1,
    )
    swap = Let(
        held,
        load(work, [k, j]),
        seq(store(work, [k, j], load(work, [row, j])), store(work, [row, j], held)),
    )
    swapped = If(ne(row, k), seq(store(det, at, -load(det, at)), loop(j, n, swap)))
    cleared = store(work, [below, right], load(work, [below, right]) - factor * load(work, [k, right]))
    ratio = load(work, [below, k]) / load(work, [k, k])
    reduced = loop(below, n - k - 1, Let(factor, ratio, loop(right, n, cleared)), begin=k + 1)
    return loop(
        k,
        n,
        seq(
            store(best, [0], k),
            search,
            swapped,
            store(det, at, load(det, at) * load(work, [k, k])),
            If(ne(load(work, [k, k]), const(0, work.dtype)), reduced),
        ),
    )


def _det_lower(type_: TensorType, attrs: Attrs, x: te.Tensor) -> te.Tensor:
    held = compute_type(type_.dtype)
    n = x.shape[-1]

    def body(ins: list[Buffer], outs: list[Buffer]) -> Stmt:
        work, best = Buffer("work", (n, n), held), Buffer("best", (1,), "int64")

        def one(at: list[Expr]) -> Stmt:
            copied = nest((n, n), lambda i: store(work, i, cast_to(held, load(ins[0], [*at, *i]))))
            return seq(copied, store(outs[0], at, const(1, held)), _eliminated(work, best, outs[0], at, n))

        return Alloc(work, Alloc(best, nest(x.shape[:-2], one)))

    return rounded(te.extern(type_.shape, [x], body, "det", dtype_=held), type_.dtype, "det_end")


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

OPS = (DET,)
