"""Products with weights in packed groups, and such weights as a matrix. See `op/quant_format.py`.

The inner loop of the product loads packed codes and converts them, so the weights are never unpacked as a
whole. With few rows the product is memory-bound, and packed weights reduce its time.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dlc_core import te
from dlc_core.diag import UsageError
from dlc_core.ir.dtype import DType, dtype
from dlc_core.ir.expr import Expr, as_expr, cast_to, const
from dlc_core.ir.types import TensorType, Type
from dlc_core.op.declare import FLOATS, Attr, ErrorSample, NDArray, Sample, Tensor, op, tensor_types
from dlc_core.op.formats import quant_format
from dlc_core.op.infer import Attrs, check_dtype, check_rank, fail, merge_dims
from dlc_core.op.lower import compute, compute_type, flattened, narrow, unflattened
from dlc_core.op.quant_format import QuantFormat

_FLOATS = ("float32", "float16", "bfloat16")
FORMAT = Attr("format", "str", help="the name of the quantisation format")


def _format_of(attrs: Attrs, parts: Sequence[TensorType]) -> QuantFormat:
    """The format, whose arrays `parts` must be."""
    try:
        made = quant_format(attrs["format"])
    except UsageError as error:
        raise fail(error.what, "; ".join([*error.details, error.hint])) from None
    packed, scale, *zero = parts
    check_rank(packed, 3, 3, "the codes")
    check_dtype(packed.dtype, ("uint8",), "the codes")
    check_dtype(scale.dtype, (made.scale,), "the scale")
    if packed.shape[1] != made.bytes:
        raise fail(f"a group has {packed.shape[1]} bytes", f"{made.bytes} are needed for {made.name}")
    if bool(zero) is not made.zero:
        raise fail(f"{made.name} has {'' if made.zero else 'no '}zero points")
    for value in zero:
        check_dtype(value.dtype, (made.element,), "the zero point")
    wanted = (packed.shape[0], packed.shape[2])
    for value, what in ((scale, "the scale"), *((z, "the zero point") for z in zero)):
        if tuple(value.shape) != wanted:
            shown = ", ".join(map(str, wanted))
            raise fail(f"{what} is {value}", f"one number for each group and column is needed: [{shown}]")
    return made


def _matmul_infer(types: Sequence[Type], attrs: Attrs) -> Type:
    x, *parts = tensor_types(types)
    check_rank(x, 2, None, "x")
    check_dtype(x.dtype, _FLOATS)
    made = _format_of(attrs, parts)
    groups, _, columns = parts[0].shape
    merge_dims(x.shape[-1], groups * made.group, "the weights' rows and the dims of x")
    return TensorType((*x.shape[:-1], columns), x.dtype)


def _matmul_reference(x: NDArray, *parts: NDArray, format: str) -> NDArray:  # noqa: A002
    return np.asarray(np.matmul(x, quant_format(format).dequantize(*parts)))


def _matmul_lower(type_: TensorType, attrs: Attrs, x: te.Tensor, *parts: te.Tensor) -> te.Tensor:
    made, wide = quant_format(attrs["format"]), compute_type(type_.dtype)
    packed, scale, *zero = parts
    groups, _, columns = packed.shape
    extents = made.layout.axes(made.group, made.bits)
    b = te.reduce_axis(groups, "b")
    inner = [te.reduce_axis(extent, f"h{i}") for i, extent in enumerate(extents)]
    lead = [as_expr(d) for d in type_.shape[:-1]]
    rows: Expr = const(1)
    for extent in lead:
        rows = rows * extent

    def product(row: Expr, n: Expr) -> te.tensor.Reduction:
        at = [axis.var for axis in inner]
        code = made.layout.code(lambda i: packed[b.var, i, n], at, made.group, made.bits)
        point = zero[0][b.var, n] if zero else None
        weight = made.weight(code, scale[b.var, n], point, str(wide))
        k = b.var * made.group + flattened(at, [const(extent) for extent in extents])
        left = (*unflattened(row, lead), k)
        return te.sum(cast_to(wide, x[left]) * weight, axis=[b, *inner])

    total = te.compute((rows, columns), product, "matmul")
    return compute(
        type_.shape, lambda *i: narrow(total[flattened(i[:-1], lead), i[-1]], type_.dtype), "matmul_end"
    )


def _matrix_infer(types: Sequence[Type], attrs: Attrs) -> Type:
    parts = tensor_types(types)
    check_dtype(attrs["dtype"], FLOATS, "the result")
    made = _format_of(attrs, parts)
    groups, _, columns = parts[0].shape
    return TensorType((groups * made.group, columns), attrs["dtype"])


def _matrix_reference(*parts: NDArray, format: str, dtype: DType) -> NDArray:  # noqa: A002
    found = quant_format(format).dequantize(*parts)
    return found.astype(np.float64) if dtype.bits == 64 else found


def _matrix_lower(type_: TensorType, attrs: Attrs, packed: te.Tensor, *rest: te.Tensor) -> te.Tensor:
    made = quant_format(attrs["format"])
    extents = [const(extent) for extent in made.layout.axes(made.group, made.bits)]

    def element(k: Expr, n: Expr) -> Expr:
        group, at = k // made.group, unflattened(k % made.group, extents)
        code = made.layout.code(lambda i: packed[group, i, n], at, made.group, made.bits)
        scale, *zero = (value[group, n] for value in rest)
        return cast_to(type_.dtype, made.weight(code, scale, zero[0] if zero else None, "float32"))

    return compute(type_.shape, element, "dequantize_groups")


MX = "mxfp4"
_RNG = np.random.default_rng(0)
_CODES = Tensor((2, 16, 5), "special", "uint8")
_SCALES = Tensor((2, 5), 2.0 ** _RNG.integers(-3, 3, (2, 5)), "float8_e8m0fnu")

QUANTIZED_MATMUL = op(
    "quantized_matmul",
    "rows of x times weights in packed groups of a quantisation format: codes [groups, bytes, columns], and a"
    " scale, and in some formats a zero point, for each group and column",
    ["x", "codes", "scale", "zero?"],
    [FORMAT],
    kind="contraction",
    infer=_matmul_infer,
    reference=_matmul_reference,
    lower=_matmul_lower,
    dtypes=_FLOATS,
    raw=False,
    samples=(
        Sample((Tensor((3, 64)), _CODES, _SCALES), {"format": MX}),
        Sample((Tensor((2, 1, 64)), _CODES, _SCALES), {"format": MX}, ("float32",)),
    ),
    error_samples=[
        ErrorSample((Tensor((3, 32)), _CODES, _SCALES), {"format": MX}, "must be equal"),
        ErrorSample((Tensor((3, 64)), _CODES, _SCALES), {"format": "mxfp5"}, "no quantisation format"),
        ErrorSample((Tensor((3, 64)), _CODES, Tensor((2, 5))), {"format": MX}, "the scale has dtype"),
    ],
    tolerance={"float32": 1e-4},
)

DEQUANTIZE_GROUPS = op(
    "dequantize_groups",
    "weights in packed groups of a quantisation format as a matrix [rows, columns]",
    ["codes", "scale", "zero?"],
    [FORMAT, Attr("dtype", "dtype", dtype("float32"), help="the result's dtype")],
    kind="opaque",
    infer=_matrix_infer,
    reference=_matrix_reference,
    lower=_matrix_lower,
    dtypes=("uint8",),
    samples=(
        Sample((_CODES, _SCALES), {"format": MX}),
        Sample((_CODES, _SCALES), {"format": MX, "dtype": "bfloat16"}),
    ),
    error_samples=[
        ErrorSample((_CODES, _SCALES, _CODES), {"format": MX}, "has no zero points"),
        ErrorSample((Tensor((2, 8, 5), dtype="uint8"), _SCALES), {"format": MX}, "16 are needed"),
    ],
)

OPS = (QUANTIZED_MATMUL, DEQUANTIZE_GROUPS)
