"""Matrix products.

Floats of 16 bits accumulate in float32, and may be multiplied by float32 from the left.  Integers accumulate
in the result's dtype, which is int32 for inputs narrower than that; the two inputs may then be of different
8-bit types.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dlc_core import te
from dlc_core.ir.dtype import DType
from dlc_core.ir.expr import Expr, as_expr, cast_to
from dlc_core.ir.types import Dim, TensorType, Type
from dlc_core.op.declare import (
    FLOATS,
    INTS,
    NUMBERS,
    Attr,
    ErrorSample,
    NDArray,
    Sample,
    Tensor,
    op,
    tensor_types,
)
from dlc_core.op.infer import Attrs, broadcast_dims, check_dtype, check_rank, fail, merge_dims
from dlc_core.op.lower import broadcast_indices, compute, compute_type, flattened, rounded, unflattened
from dlc_core.tir.stmt import IterVar


def product_dtype(a: DType, b: DType, out_dtype: DType | None) -> DType:
    """The result dtype of a contraction of two dtypes: `wanted`, if it is given and possible."""
    check_dtype(a, NUMBERS)
    check_dtype(b, NUMBERS)
    mixed_bytes = a.is_int and b.is_int and a.bits == b.bits == 8 and a.decl is b.decl is None
    narrow_weights = a.name == "float32" and b.name in ("bfloat16", "float16")
    if a is not b and not mixed_bytes and not narrow_weights:
        raise fail(
            f"inputs have dtypes {a} and {b}",
            "both must have one dtype, or 8 bits, or the second one narrower than float32: insert a cast",
        )
    if out_dtype is None:
        return DType("int32") if a.is_int and a.bits < 32 else a
    check_dtype(out_dtype, FLOATS if a.is_float else INTS, "the result")
    if out_dtype.bits < a.bits:
        raise fail(f"the result {out_dtype} is narrower than the inputs {a}")
    return out_dtype


def accumulator(result: DType) -> DType:
    """The dtype of the accumulator for a result dtype."""
    return compute_type(result)


def _swapped(shape: Sequence[Dim], swap: bool) -> tuple[Dim, ...]:
    return (*shape[:-2], shape[-1], shape[-2]) if swap else tuple(shape)


def _infer(types: Sequence[Type], attrs: Attrs) -> Type:
    a, b = tensor_types(types)
    check_rank(a, 2, None, "a")
    check_rank(b, 2, None, "b")
    left, right = _swapped(a.shape, attrs["transpose_a"]), _swapped(b.shape, attrs["transpose_b"])
    merge_dims(left[-1], right[-2], "the inner dims")
    batch = broadcast_dims(left[:-2], right[:-2])
    return TensorType((*batch, left[-2], right[-1]), product_dtype(a.dtype, b.dtype, attrs["out_dtype"]))


def _reference(
    a: NDArray, b: NDArray, *, transpose_a: bool, transpose_b: bool, out_dtype: DType | None
) -> NDArray:
    left = np.swapaxes(a, -1, -2) if transpose_a else a
    right = np.swapaxes(b, -1, -2) if transpose_b else b
    if a.dtype.kind != "f":
        result = product_dtype(DType.of(a.dtype), DType.of(b.dtype), out_dtype).numpy
        left, right = left.astype(result), right.astype(result)
    return np.asarray(np.matmul(left, right))


def _lower(type_: TensorType, attrs: Attrs, a: te.Tensor, b: te.Tensor) -> te.Tensor:
    transpose_a, transpose_b = attrs["transpose_a"], attrs["transpose_b"]
    wide = accumulator(type_.dtype)
    k = te.reduce_axis(a.shape[-2] if transpose_a else a.shape[-1], "k")
    batch = type_.shape[:-2]
    if a.ndim > 2 and b.ndim == 2 and not transpose_a:
        return _lower_rows(type_, a, b, k, wide, transpose_b)

    def body(*indices: Expr) -> te.tensor.Reduction:
        *outer, i, j = indices
        left = (*broadcast_indices(a.shape[:-2], outer, batch), *((k.var, i) if transpose_a else (i, k.var)))
        right = (*broadcast_indices(b.shape[:-2], outer, batch), *((j, k.var) if transpose_b else (k.var, j)))
        return te.sum(cast_to(wide, a[left]) * cast_to(wide, b[right]), axis=k)

    return rounded(compute(type_.shape, body, "matmul"), type_.dtype, "matmul_end")


def _lower_rows(
    type_: TensorType, a: te.Tensor, b: te.Tensor, k: IterVar, wide: DType, transpose_b: bool
) -> te.Tensor:
    """Many matrices times one matrix: one GEMM over all rows, so that tiles span matrices."""
    lead = [as_expr(d) for d in type_.shape[:-1]]
    rows = lead[0]
    for extent in lead[1:]:
        rows = rows * extent

    def product(row: Expr, j: Expr) -> te.tensor.Reduction:
        left = (*unflattened(row, lead), k.var)
        right = (j, k.var) if transpose_b else (k.var, j)
        return te.sum(cast_to(wide, a[left]) * cast_to(wide, b[right]), axis=k)

    total = te.compute((rows, type_.shape[-1]), product, "matmul")

    def element(*indices: Expr) -> Expr:
        return cast_to(type_.dtype, total[flattened(indices[:-1], lead), indices[-1]])

    return compute(type_.shape, element, "matmul_end")


def _pair(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    return Tensor(a), Tensor(b)


MATMUL = op(
    "matmul",
    "products of matrices in the last two dims; the other dims broadcast",
    ["a", "b"],
    [
        Attr("transpose_a", "bool", False, "swap the last two dims of a"),
        Attr("transpose_b", "bool", False, "swap the last two dims of b"),
        Attr("out_dtype", "dtype", None, "dtype of the result"),
    ],
    kind="contraction",
    infer=_infer,
    reference=_reference,
    lower=_lower,
    dtypes=NUMBERS,
    samples=(
        Sample(_pair((3, 4), (4, 5))),
        Sample(_pair((4, 3), (5, 4)), {"transpose_a": True, "transpose_b": True}),
        Sample(_pair((2, 1, 3, 4), (5, 4, 2))),
        Sample(_pair((3, 1, 4), (3, 4, 1))),
        Sample(_pair((2, 0), (0, 3)), note="empty sums are 0"),
        Sample(
            (Tensor((3, 4), dtype="uint8"), Tensor((4, 5), dtype="int8")), {"out_dtype": "int32"}, ("int32",)
        ),
        Sample(_pair((3, 4), (4, 5)), {"out_dtype": "float32"}, ("float16", "bfloat16")),
    ),
    error_samples=[
        ErrorSample(_pair((3, 4), (3, 4)), {}, "inner dims must be equal, not 4 and 3"),
        ErrorSample(_pair((4,), (4, 3)), {}, "rank"),
        ErrorSample(_pair((2, 3, 4), (3, 4, 5)), {}, "do not broadcast"),
        ErrorSample((Tensor((3, 4)), Tensor((4, 5), dtype="float64")), {}, "dtypes"),
        ErrorSample(_pair((3, 4), (4, 5)), {"out_dtype": "float16"}, "narrower"),
        ErrorSample((Tensor((2, 2), dtype="bool"),) * 2, {}, "dtype bool"),
    ],
)

OPS = (MATMUL,)
