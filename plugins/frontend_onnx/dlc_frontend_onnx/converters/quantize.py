"""Quantized operators: scales and zero points, and products of integers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dlc_core.graph.node import Node
from dlc_core.ir.dtype import DType
from dlc_core.ir.types import Dim
from dlc_core.op import std
from dlc_frontend_onnx.converters.base import Call, converter
from dlc_frontend_onnx.converters.casts import saturated
from dlc_frontend_onnx.converters.nn import check_image, kernel_of, per_dim, product_of, spatial_pads


def along(c: Call, vector: Node, like: Node, axis: int, block: int = 0) -> Node:
    """A scale or zero point as it meets a tensor: one number, one for each place of an axis, or one for each
    block along it."""
    rank = len(like.shape)
    if len(vector.shape) == 0 or vector.tensor_type.static_shape() == (1,):
        return std.reshape(vector, shape=()) if len(vector.shape) else vector
    place = c.check_axis(axis, rank)
    if block:
        return _blocks(c, vector, like, place, block)
    if len(vector.shape) != 1:
        raise c.error(f"a scale of {vector.type} for {like.type}")
    shape: list[Dim] = [1] * rank
    shape[place] = vector.shape[0]
    return std.reshape(vector, shape=tuple(shape))


def _blocks(c: Call, vector: Node, like: Node, axis: int, block: int) -> Node:
    if len(vector.shape) != len(like.shape):
        raise c.error(f"scales of {vector.type} for blocks of {like.type}")
    wide = std.repeat(vector, repeats=block, axis=axis) if block > 1 else vector
    if wide.shape[axis] is like.shape[axis] or wide.shape[axis] == like.shape[axis]:
        return wide
    return std.slice(wide, begins=(0,), ends=(like.shape[axis],), axes=(axis,))


def dequantized(c: Call, x: Node, scale: Node, zero: Node | None) -> Node:
    """(x - zero) scale, in the dtype of the scale; scale and zero broadcast already."""
    wide = c.cast(x, "int32" if x.dtype.is_int and zero is not None else scale.dtype)
    if zero is not None and not _is_zero(c, zero):
        wide = std.sub(wide, c.cast(zero, wide.dtype))
    return std.mul(c.cast(wide, scale.dtype), scale)


def _is_zero(c: Call, value: Node) -> bool:
    found = c.array(value)
    return found is not None and not np.any(found)


def quantized(c: Call, x: Node, scale: Node, zero: Node | None, to: DType) -> Node:
    """x / scale, rounded to even, plus zero, and limited to the range of the dtype."""
    if not to.is_int:
        moved = std.div(x, scale)
        if zero is not None and not _is_zero(c, zero):
            moved = std.add(moved, c.cast(zero, moved.dtype))
        return saturated(c, moved, to) if c.flag("saturate", True) else c.cast(moved, to)
    rounded = std.round(std.div(x, scale))
    if zero is not None and not _is_zero(c, zero):
        rounded = std.add(rounded, c.cast(zero, rounded.dtype))
    low, high = to.int_range()
    return c.cast(std.clip(rounded, min=low, max=high), to)


@converter("QuantizeLinear", 10)
def quantize_linear(c: Call, x: Node, scale: Node, zero: Node | None = None) -> Node:
    c.ignore("saturate", "output_dtype")
    axis, block = c.integer("axis", 1), c.integer("block_size", 0)
    declared = c.dtype("output_dtype", 0) if c.integer("output_dtype", 0) else None
    to = zero.dtype if zero is not None else declared or DType("uint8")
    if declared is not None and declared is not to:
        raise c.error(f"output_dtype is {declared}, but the zero point is {to}")
    wide = x if x.dtype.is_float and x.dtype.bits >= 32 else c.cast(x, "float32")
    if c.integer("precision", 0):
        wide = c.cast(x, c.dtype("precision"))
    step = along(c, c.cast(scale, wide.dtype), x, axis, block)
    return quantized(c, wide, step, None if zero is None else along(c, zero, x, axis, block), to)


@converter("DequantizeLinear", 10)
def dequantize_linear(c: Call, x: Node, scale: Node, zero: Node | None = None) -> Node:
    axis, block = c.integer("axis", 1), c.integer("block_size", 0)
    declared = c.dtype("output_dtype", 0) if c.integer("output_dtype", 0) else scale.dtype
    step = along(c, scale, x, axis, block)
    made = dequantized(c, x, step, None if zero is None else along(c, zero, x, axis, block))
    return c.cast(made, declared)


def centred(c: Call, x: Node, zero: Node | None) -> Node:
    """x - zero in int32; x itself where zero is 0."""
    if zero is None or _is_zero(c, zero):
        return x
    return std.sub(c.cast(x, "int32"), c.cast(zero, "int32"))


def _rows(zero: Node | None, rank: int) -> Node | None:
    """The zero point of a left operand: one number, or one for each row."""
    if zero is None or len(zero.shape) != 1 or zero.shape[0] == 1 or rank < 2:
        return zero
    return std.unsqueeze(zero, axes=(1,))


def integer_product(c: Call, a: Node, b: Node, a_zero: Node | None, b_zero: Node | None) -> Node:
    """The matrix product of integers less their zero points, in int32."""
    left, right = centred(c, a, _rows(a_zero, len(a.shape))), centred(c, b, b_zero)
    if left.dtype is not right.dtype and not (left.dtype.bits == right.dtype.bits == 8):
        left, right = c.cast(left, "int32"), c.cast(right, "int32")
    return product_of(left, right, out_dtype="int32")


@converter("MatMulInteger", 10)
def matmul_integer(c: Call, a: Node, b: Node, a_zero: Node | None = None, b_zero: Node | None = None) -> Node:
    return integer_product(c, a, b, a_zero, b_zero)


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
    total = c.cast(integer_product(c, a, b, a_zero, b_zero), "float32")
    left = c.cast(_rows(a_scale, len(a.shape)) or a_scale, "float32")
    scale = std.mul(left, c.cast(b_scale, "float32"))
    wide = c.cast(y_scale, "float32")
    return quantized(c, std.mul(total, scale), wide, y_zero, y_zero.dtype)


def _integer_conv(c: Call, x: Node, w: Node, x_zero: Node | None, w_zero: Node | None) -> Node:
    """A convolution of integers less their zero points, in int32; the border is the zero point."""
    rank = check_image(c, x)
    kernel = kernel_of(c, x, w)
    strides, dilation = per_dim(c, "strides", rank), per_dim(c, "dilations", rank)
    pads = spatial_pads(c, x, kernel, strides, dilation)
    vector = None if w_zero is None else along(c, w_zero, w, 0)
    left, right = centred(c, x, x_zero), centred(c, w, vector)
    if left.dtype is not right.dtype and not (left.dtype.bits == right.dtype.bits == 8):
        left, right = c.cast(left, "int32"), c.cast(right, "int32")
    return std.conv(
        left,
        right,
        strides=strides,
        padding=pads,
        dilation=dilation,
        groups=c.integer("group", 1),
        out_dtype="int32",
    )


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
    scale = std.mul(_scalar(x_scale), along(c, w_scale, total, 1))
    return quantized(
        c, std.mul(c.cast(total, "float32"), scale), _scalar(y_scale), _scalar(y_zero), y_zero.dtype
    )


def _scalar(value: Node) -> Node:
    return std.reshape(value, shape=()) if len(value.shape) else value


def through_floats(c: Call, xs: Sequence[tuple[Node, Node, Node | None]]) -> list[Node]:
    """Quantized tensors (value, scale, zero point) as floats."""
    return [dequantized(c, x, _scalar(s), None if z is None else _scalar(z)) for x, s, z in xs]
