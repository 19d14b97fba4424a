"""Quantized operators of the standard: scales and zero points, and integer matrix products."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from dlc_core.graph.node import Node, const_array, constant
from dlc_core.ir.dtype import DType
from dlc_core.ir.types import Dim
from dlc_core.op import std
from dlc_core.op.std.integer_product import BYTES
from dlc_core.op.std.quantization import QUANTIZED
from dlc_frontend_onnx.converters.base import Call, converter
from dlc_frontend_onnx.converters.casts import saturated
from dlc_frontend_onnx.converters.nn import check_image, kernel_of, per_dim, product_of, spatial_pads


def shaped(value: Node, shape: tuple[Dim, ...]) -> Node:
    """The value reshaped; a constant stays a constant."""
    array = const_array(value)
    if tuple(value.shape) == shape:
        return value
    made = std.reshape(value, shape=shape)  # raises the error if the sizes differ
    known = made.tensor_type.static_shape()
    return made if array is None or known is None else constant(array.reshape(known))


def transposed(value: Node, axes: tuple[int, ...] = (1, 0)) -> Node:
    """The value with its axes permuted; a constant stays a constant."""
    array = const_array(value)
    return std.transpose(value, axes=axes) if array is None else constant(array.transpose(axes))


def plain(value: Node) -> Node:
    """A scale or zero point of a whole tensor as a scalar."""
    return shaped(value, ())


def along(c: Call, vector: Node, like: Node, axis: int, block: int = 0) -> Node:
    """A scale or zero point in a shape that broadcasts to `like`: per tensor, per index of an axis, or per
    block along it.
    """
    rank = len(like.shape)
    if len(vector.shape) == 0 or vector.tensor_type.static_shape() == (1,):
        return plain(vector)
    position = c.check_axis(axis, rank)
    if block:
        return _blocks(c, vector, like, position, block)
    if len(vector.shape) != 1:
        raise c.error(f"a scale of {vector.type} for {like.type}")
    return shaped(vector, (vector.shape[0], *(1,) * (rank - 1 - position)))


def _blocks(c: Call, vector: Node, like: Node, axis: int, block: int) -> Node:
    if len(vector.shape) != len(like.shape):
        raise c.error(f"scales of {vector.type} for blocks of {like.type}")
    wide = std.repeat(vector, repeats=block, axis=axis) if block > 1 else vector
    if wide.shape[axis] == like.shape[axis]:
        return wide
    return std.slice(wide, begins=(0,), ends=(like.shape[axis],), axes=(axis,))


def is_zero(c: Call, value: Node | None) -> bool:
    """Whether a zero point is omitted or known to be 0."""
    found = None if value is None else c.array(value)
    return value is None or (found is not None and not np.any(found))


def dequantized(c: Call, x: Node, scale: Node, zero: Node | None) -> Node:
    """(x - zero) scale, in the dtype of the scale. Scale and zero point must broadcast to x."""
    if x.dtype.name in (*QUANTIZED, "int32"):
        points = () if zero is None or is_zero(c, zero) else (zero,)
        return std.dequantize(x, scale, *points)
    wide = c.cast(x, scale.dtype)
    if zero is not None and not is_zero(c, zero):
        wide = std.sub(wide, c.cast(zero, wide.dtype))
    return std.mul(wide, scale)


def quantized(c: Call, x: Node, scale: Node, zero: Node | None, to: DType) -> Node:
    """x / scale, rounded to even, plus zero, saturated to the range of the dtype."""
    points = () if zero is None or is_zero(c, zero) else (zero,)
    if to.is_int:
        return std.quantize(x, scale, *points, to=to)
    moved = std.div(x, scale)
    if points:
        moved = std.add(moved, c.cast(points[0], moved.dtype))
    return saturated(c, moved, to) if c.flag("saturate", True) else c.cast(moved, to)


@converter("QuantizeLinear", 10)
def quantize_linear(c: Call, x: Node, scale: Node, zero: Node | None = None) -> Node:
    c.ignore("saturate", "output_dtype")
    axis, block = c.integer("axis", 1), c.integer("block_size", 0)
    declared = c.dtype("output_dtype", 0) if c.integer("output_dtype", 0) else None
    to = zero.dtype if zero is not None else declared or DType("uint8")
    if declared is not None and declared is not to:
        raise c.error(f"output_dtype is {declared}, but the zero point is {to}")
    # The quotient is computed in the attribute's precision, by default in that of the scale.
    precise = c.dtype("precision") if c.integer("precision", 0) else scale.dtype
    if not precise.is_float:
        raise c.error(f"a scale of {precise}")
    step = along(c, c.cast(scale, precise), x, axis, block)
    points = None if zero is None else along(c, zero, x, axis, block)
    return quantized(c, c.cast(x, precise), step, points, to)


@converter("DequantizeLinear", 10)
def dequantize_linear(c: Call, x: Node, scale: Node, zero: Node | None = None) -> Node:
    axis, block = c.integer("axis", 1), c.integer("block_size", 0)
    declared = c.dtype("output_dtype", 0) if c.integer("output_dtype", 0) else scale.dtype
    step = along(c, scale, x, axis, block)
    made = dequantized(c, x, step, None if zero is None else along(c, zero, x, axis, block))
    return c.cast(made, declared)


def _extreme(x: Node, reduce: Callable[..., Node]) -> Node:
    """The minimum or maximum. If only outer dims are symbolic, rows are reduced first, which vectorizes."""
    known = x.tensor_type.static_shape() is not None or not isinstance(x.shape[-1], int)
    return reduce(x) if known else reduce(reduce(x, axes=(-1,)))


@converter("DynamicQuantizeLinear", 11)
def dynamic_quantize_linear(c: Call, x: Node) -> Sequence[Node]:
    """x as uint8 by its own range, extended to 0. If all elements are 0, the scale is 0."""
    zero = c.const(0, x.dtype)
    low = std.minimum(_extreme(x, std.reduce_min), zero)
    high = std.maximum(_extreme(x, std.reduce_max), zero)
    scale = std.div(std.sub(high, low), c.const(255, x.dtype))
    step = std.where(std.equal(scale, zero), c.const(1, x.dtype), scale)
    point = std.cast(std.round(std.clip(std.sub(zero, std.div(low, step)), min=0, max=255)), to="uint8")
    return [std.quantize(x, step, point, to="uint8"), scale, point]


def _rows(value: Node | None, rank: int) -> Node | None:
    """Parameters of a left operand: one number, or one per row."""
    if value is None or len(value.shape) != 1 or rank < 2:
        return value
    return plain(value) if value.shape[0] == 1 else shaped(value, (value.shape[0], 1))


def columns(value: Node | None, rank: int) -> Node | None:
    """Parameters of a right operand: one number, or one per column."""
    if value is None or len(value.shape) != 1:
        return value
    return plain(value) if value.shape[0] == 1 else value


def integer_product(c: Call, a: Node, b: Node, a_zero: Node | None, b_zero: Node | None) -> Node:
    """The matrix product of integers minus their zero points, in int32."""
    for value, what in ((a, "the left"), (b, "the right")):
        if value.dtype.name not in BYTES:
            raise c.unsupported(f"{c.node.op} with {what} operand of {value.dtype}")
    left, right = _rows(a_zero, len(a.shape)), columns(b_zero, len(b.shape))
    zeros: list[Node] = []
    if left is not None or right is not None:
        zeros.append(c.const(0, a.dtype) if left is None else left)
    if right is not None and not is_zero(c, right):
        zeros.append(right)
    if len(zeros) == 1 and is_zero(c, zeros[0]):
        zeros = []
    return product_of(a, b, lambda x, y: std.integer_matmul(x, y, *zeros))


@converter("MatMulInteger", 10)
def matmul_integer(c: Call, a: Node, b: Node, a_zero: Node | None = None, b_zero: Node | None = None) -> Node:
    return integer_product(c, a, b, a_zero, b_zero)


def requantized(c: Call, total: Node, scale: Node, y_scale: Node, y_zero: Node | None, to: DType) -> Node:
    """A sum of products times scale / y_scale, rounded, plus y_zero, saturated to the range of the dtype.

    The three scales are combined to one float32 factor, as in onnxruntime; the standard does not define the
    order.
    """
    factor = std.div(c.cast(scale, "float32"), c.cast(y_scale, "float32"))
    if not to.is_int:
        return quantized(c, c.cast(total, "float32"), std.reciprocal(factor), y_zero, to)
    points = () if y_zero is None or is_zero(c, y_zero) else (y_zero,)
    return std.requantize(total, factor, *points, to=to)


@converter("QLinearMatMul", 10)
def qlinear_matmul(
    c: Call,
    a: Node,
    a_scale: Node,
    a_zero: Node,
    b: Node,
    b_scale: Node,
    b_zero: Node,
    y_scale: Node,
    y_zero: Node,
) -> Node:
    total = integer_product(c, a, b, a_zero, b_zero)
    rank = len(a.shape)
    left, right = _rows(a_scale, rank) or a_scale, columns(b_scale, len(b.shape)) or b_scale
    scale = std.mul(c.cast(left, "float32"), c.cast(right, "float32"))
    own, zero = _rows(y_scale, rank) or y_scale, _rows(y_zero, rank)
    return requantized(c, total, scale, own, zero, y_zero.dtype)


def _integer_conv(c: Call, x: Node, w: Node, x_zero: Node | None, w_zero: Node | None) -> Node:
    """A convolution of integers minus their zero points, in int32; the padding is the zero point."""
    rank = check_image(c, x)
    kernel = kernel_of(c, x, w)
    strides, dilation = per_dim(c, "strides", rank), per_dim(c, "dilations", rank)
    pads = spatial_pads(c, x, kernel, strides, dilation)
    for value, what in ((x, "an input"), (w, "a kernel")):
        if value.dtype.name not in BYTES:
            raise c.unsupported(f"{c.node.op} with {what} of {value.dtype}")
    zeros: list[Node] = []
    if not is_zero(c, x_zero) or not is_zero(c, w_zero):
        zeros.append(c.const(0, x.dtype) if x_zero is None else plain(x_zero))
    if w_zero is not None and not is_zero(c, w_zero):
        c.static(w_zero, "the zero point of the kernel")
        zeros.append(along(c, w_zero, w, 0))
    groups = c.integer("group", 1)
    return std.integer_conv(x, w, *zeros, strides=strides, padding=pads, dilation=dilation, groups=groups)


@converter("ConvInteger", 10)
def conv_integer(c: Call, x: Node, w: Node, x_zero: Node | None = None, w_zero: Node | None = None) -> Node:
    return _integer_conv(c, x, w, x_zero, w_zero)


@converter("QLinearConv", 10)
def qlinear_conv(
    c: Call,
    x: Node,
    x_scale: Node,
    x_zero: Node,
    w: Node,
    w_scale: Node,
    w_zero: Node,
    y_scale: Node,
    y_zero: Node,
    bias: Node | None = None,
) -> Node:
    total = _integer_conv(c, x, w, x_zero, w_zero)
    if bias is not None:
        total = std.add(total, along(c, bias, total, 1) if len(bias.shape) else bias)
    scale = std.mul(plain(x_scale), along(c, w_scale, total, 1))
    return requantized(c, total, scale, plain(y_scale), plain(y_zero), y_zero.dtype)
