"""GEMM with low-bit weights, which are packed in memory and unpacked after each load.

A weight takes `bits` bits: byte j of a block holds 8 / bits weights that are consecutive along the reduction,
the first in the lowest bits.  The weights of a block of a column have one scale and one zero point:

    weight[k, n] = (number - zero[block of k, n]) scale[block of k, n]

With few rows the GEMM is memory-bound, so packed weights reduce its time.  Source: com.microsoft MatMulNBits.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dlc_core import te
from dlc_core.ir.expr import Expr, as_expr, cast_to, const
from dlc_core.ir.types import TensorType, Type
from dlc_core.op.declare import Attr, ErrorSample, NDArray, Sample, Tensor, op, tensor_types
from dlc_core.op.infer import Attrs, check_dtype, check_rank, fail, merge_dims
from dlc_core.op.lower import compute, compute_type, flattened, narrow, unflattened

WIDTHS = (2, 4, 8)
_FLOATS = ("float32", "float16", "bfloat16")


def _infer(types: Sequence[Type], attrs: Attrs) -> Type:
    x, q, scale, *zero = tensor_types(types)
    check_rank(x, 2, None, "x")
    check_rank(q, 3, 3, "the weights")
    check_dtype(x.dtype, _FLOATS)
    check_dtype(q.dtype, ("uint8",), "the weights")
    check_dtype(scale.dtype, (x.dtype.name,), "the scale")
    blocks, size, columns = q.shape
    merge_dims(x.shape[-1], blocks * size * (8 // attrs["bits"]), "the weights' rows and the dims of x")
    for value, dtype, what in (
        (scale, scale.dtype.name, "the scale"),
        *((z, "uint8", "the zero point") for z in zero),
    ):
        check_dtype(value.dtype, (dtype,), what)
        if tuple(value.shape) != (blocks, columns):
            raise fail(
                f"{what} is {value}", f"one number for each block and column is needed: [{blocks}, {columns}]"
            )
    return TensorType((*x.shape[:-1], columns), x.dtype)


def unpacked(q: NDArray, bits: int) -> NDArray:
    """Unpack weights: [blocks, bytes, columns] -> [blocks, numbers of a block, columns]."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8).reshape(1, 1, -1, 1)
    numbers = (q[:, :, None, :] >> shifts) & ((1 << bits) - 1)
    return np.asarray(numbers.reshape(q.shape[0], -1, q.shape[2]))


def packed(numbers: NDArray, bits: int) -> NDArray:
    """The inverse of `unpacked`: pack numbers in [0, 2^bits) into bytes."""
    each = 8 // bits
    split = numbers.astype(np.uint8).reshape(numbers.shape[0], -1, each, numbers.shape[2])
    shifts = np.arange(0, 8, bits, dtype=np.uint8).reshape(1, 1, -1, 1)
    return np.asarray(np.bitwise_or.reduce(split << shifts, axis=2))


def _reference(x: NDArray, q: NDArray, scale: NDArray, *zero: NDArray, bits: int) -> NDArray:
    numbers = unpacked(q, bits).astype(np.float32)
    middle = zero[0].astype(np.float32)[:, None] if zero else np.float32(1 << (bits - 1))
    weights = (numbers - middle) * scale[:, None].astype(np.float32)
    return np.asarray(np.matmul(x, weights.reshape(-1, q.shape[2])))


def _lower(
    type_: TensorType, attrs: Attrs, x: te.Tensor, q: te.Tensor, scale: te.Tensor, *zero: te.Tensor
) -> te.Tensor:
    bits, wide = attrs["bits"], compute_type(type_.dtype)
    each = 8 // bits
    lead = [as_expr(d) for d in type_.shape[:-1]]
    rows: Expr = const(1)
    for extent in lead:
        rows = rows * extent
    blocks, size, columns = q.shape
    b, j, h = (te.reduce_axis(n, name) for n, name in ((blocks, "b"), (size, "j"), (each, "h")))

    def product(row: Expr, n: Expr) -> te.tensor.Reduction:
        number = cast_to("int32", q[b.var, j.var, n])
        if each > 1:
            number = (number >> cast_to("int32", h.var * bits)) & const((1 << bits) - 1, "int32")
        middle = cast_to("int32", zero[0][b.var, n]) if zero else const(1 << (bits - 1), "int32")
        weight = cast_to(wide, number - middle) * cast_to(wide, scale[b.var, n])
        left = (*unflattened(row, lead), (b.var * size + j.var) * each + h.var)
        return te.sum(cast_to(wide, x[left]) * weight, axis=[b, j, h])

    total = te.compute((rows, columns), product, "matmul")
    return compute(
        type_.shape, lambda *i: narrow(total[flattened(i[:-1], lead), i[-1]], type_.dtype), "matmul_end"
    )


def _q(*shape: int) -> Tensor:
    return Tensor(shape, "special", "uint8")


PACKED_MATMUL = op(
    "packed_matmul",
    "rows of x times low-bit weights, q [blocks, bytes of a block, columns], each block and column with a"
    " scale and a zero point, by default 2^(bits - 1)",
    ["x", "q", "scale", "zero?"],
    [Attr("bits", "int", 4, "of a weight", choices=WIDTHS)],
    kind="contraction",
    infer=_infer,
    reference=_reference,
    lower=_lower,
    dtypes=_FLOATS,
    samples=(
        Sample((Tensor((3, 32)), _q(2, 8, 5), Tensor((2, 5), "positive"))),
        Sample((Tensor((1, 32)), _q(2, 8, 20), Tensor((2, 20)), Tensor((2, 20), "index:16", "uint8"))),
        Sample((Tensor((2, 3, 12)), _q(3, 1, 4), Tensor((3, 4))), {"bits": 2}, ("float32",)),
        Sample((Tensor((1, 12)), _q(1, 12, 4), Tensor((1, 4), "unit")), {"bits": 8}, ("float32",)),
    ),
    error_samples=[
        ErrorSample((Tensor((3, 32)), _q(2, 4, 5), Tensor((2, 5))), {}, "must be equal"),
        ErrorSample((Tensor((3, 32)), _q(2, 8, 5), Tensor((2, 1))), {}, "the scale is"),
        ErrorSample((Tensor((3, 32)), _q(2, 8, 5), Tensor((2, 5))), {"bits": 3}, "bits"),
    ],
    tolerance={"float32": 1e-4},
)

OPS = (PACKED_MATMUL,)
