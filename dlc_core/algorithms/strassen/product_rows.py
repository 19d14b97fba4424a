"""Selected rows of a matrix product by definition, for rows that a faster algorithm cannot compute."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from dlc_core import te
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.expr import Expr, Var, as_expr, const, const_value, load
from dlc_core.ir.types import TensorType, Type
from dlc_core.op.declare import ErrorSample, NDArray, Sample, Tensor, op, tensor_types
from dlc_core.op.infer import Attrs, check_dtype, check_rank, fail, merge_dims
from dlc_core.op.lower import block_nest, nest, region
from dlc_core.tir.stmt import LANES, Alloc, If, Region, Stmt, loop, seq, store

COLUMNS = 64
"""The maximum number of columns that are summed together."""


def _infer(types: Sequence[Type], attrs: Attrs) -> Type:
    a, b, mask = tensor_types(types)
    check_rank(a, 1, None, "a")
    check_rank(b, 2, 2, "b")
    check_dtype(mask.dtype, ("bool",), "the mask")
    if a.dtype is not b.dtype:
        raise fail(f"inputs have dtypes {a.dtype} and {b.dtype}", "they must have one dtype")
    merge_dims(a.shape[-1], b.shape[0], "the inner dims")
    check_rank(mask, a.ndim, a.ndim, "the mask")
    lead = tuple(
        merge_dims(x, y, "the rows and the mask") for x, y in zip(a.shape[:-1], mask.shape, strict=False)
    )
    merge_dims(mask.shape[-1], 1, "the mask's last dim and 1")
    return TensorType((*lead, b.shape[1]), a.dtype)


def _reference(a: NDArray, b: NDArray, mask: NDArray) -> NDArray:
    rows = np.broadcast_to(mask, (*a.shape[:-1], 1))[..., 0]
    made = np.zeros((*a.shape[:-1], b.shape[1]), a.dtype)
    made[rows] = a[rows] @ b
    return made


def _lower(type_: TensorType, attrs: Attrs, a: te.Tensor, b: te.Tensor, mask: te.Tensor) -> te.Tensor:
    size = as_expr(b.shape[1])
    width = math.gcd(const_value(size) or 1, COLUMNS)

    def body(ins: list[Buffer], outs: list[Buffer]) -> Stmt:
        rows, columns, mask_buffer = ins
        (out,) = outs

        def lanes(each: Callable[[Expr], Stmt]) -> Stmt:
            lane = Var("lane", "int64")
            return loop(lane, width, each(lane), annotations={LANES: True})

        def row(at: list[Expr]) -> Stmt:
            total = Buffer("total", (width,), out.dtype)
            n, k = (Var(name, "int64") for name in "nk")

            def sums(lane: Expr) -> Stmt:
                term = load(rows, [*at, k]) * load(columns, [k, n * width + lane])
                return store(total, [lane], load(total, [lane]) + term)

            zero = lanes(lambda lane: store(total, [lane], const(0, out.dtype)))
            stored = lanes(lambda lane: store(out, [*at, n * width + lane], load(total, [lane])))
            block = seq(zero, loop(k, rows.shape[-1], lanes(sums)), stored)
            summed = loop(n, size // width, Alloc(total, block))
            zeros = nest([size], lambda i: store(out, [*at, *i], const(0, out.dtype)))
            return If(load(mask_buffer, [*at, const(0)]), summed, zeros)

        def row_regions(at: list[Expr]) -> tuple[list[Region], list[Region]]:
            read = [
                region(rows, [*at, None]),
                region(columns, [None, None]),
                region(mask_buffer, [*at, None]),
            ]
            return read, [region(out, [*at, None])]

        return block_nest("row", rows.shape[:-1], row, row_regions)

    made: te.Tensor = te.extern(
        type_.shape, [a, b, mask], body, "product_rows", dtype_=type_.dtype, blocks=True
    )
    return made


ROWS = op(
    "product_rows",
    "the rows of the product of `a` and a matrix for which a mask of one column is true; other rows are"
    " zeros",
    ["a", "b", "mask"],
    kind="opaque",
    infer=_infer,
    reference=_reference,
    lower=_lower,
    dtypes=("float32", "float64"),
    samples=(
        Sample((Tensor((4, 6)), Tensor((6, 8)), Tensor((4, 1), "bool", "bool"))),
        Sample((Tensor((2, 2, 3)), Tensor((3, 5)), Tensor((2, 2, 1), "bool", "bool"))),
        Sample((Tensor((3, 7)), Tensor((7, 128)), Tensor((3, 1), "bool", "bool"))),
    ),
    error_samples=(
        ErrorSample((Tensor((4, 6)), Tensor((5, 8)), Tensor((4, 1), "bool", "bool")), {}, "must be equal"),
        ErrorSample((Tensor((4, 6)), Tensor((6, 8)), Tensor((4, 2), "bool", "bool")), {}, "must be equal"),
        ErrorSample((Tensor((4, 6)), Tensor((6, 8)), Tensor((4,), "bool", "bool")), {}, "rank"),
        ErrorSample((Tensor((4, 6)), Tensor((6, 8)), Tensor((4, 1))), {}, "mask"),
    ),
)

OPS = (ROWS,)
