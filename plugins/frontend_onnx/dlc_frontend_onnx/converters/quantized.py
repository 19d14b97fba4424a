"""Quantized operators of com.microsoft: in floats, or by integer products."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps

from dlc_core.graph.node import Node
from dlc_core.op import std
from dlc_frontend_onnx.converters.attention import self_attention
from dlc_frontend_onnx.converters.base import MICROSOFT, Call, add_entry, converter
from dlc_frontend_onnx.converters.microsoft import embed_layer_norm
from dlc_frontend_onnx.converters.nn import (
    average_pool,
    channels_first,
    channels_last,
    product_of,
    scaled,
)
from dlc_frontend_onnx.converters.quantize import (
    columns,
    dequantize_linear,
    dequantized,
    dynamic_quantize_linear,
    integer_product,
    plain,
    qlinear_conv,
    quantize_linear,
    quantized,
    requantized,
    transposed,
)
from dlc_frontend_onnx.entries import Function

_SAME: dict[str, Function] = {"DequantizeLinear": dequantize_linear, "QuantizeLinear": quantize_linear}
for _op, _function in _SAME.items():
    add_entry(_op, 1, _function, MICROSOFT)


@converter("DynamicQuantizeMatMul", 1, MICROSOFT)
def dynamic_quantize_matmul(
    c: Call, a: Node, b: Node, b_scale: Node, b_zero: Node | None = None, bias: Node | None = None
) -> Node:
    """a is quantized by its own range, as by DynamicQuantizeLinear."""
    whole, scale, point = dynamic_quantize_linear(c, a)
    total = c.cast(integer_product(c, whole, b, point, b_zero), a.dtype)
    made = std.mul(total, std.mul(scale, columns(b_scale, len(b.shape)) or b_scale))
    return made if bias is None else std.add(made, bias)


@converter("MatMulIntegerToFloat", 1, MICROSOFT)
def matmul_integer_to_float(
    c: Call,
    a: Node,
    b: Node,
    a_scale: Node,
    b_scale: Node,
    a_zero: Node | None = None,
    b_zero: Node | None = None,
    bias: Node | None = None,
) -> Node:
    total = c.cast(integer_product(c, a, b, a_zero, b_zero), a_scale.dtype)
    made = std.mul(total, std.mul(plain(a_scale), columns(b_scale, len(b.shape)) or b_scale))
    return made if bias is None else std.add(made, bias)


def _float(c: Call, x: Node, scale: Node, zero: Node | None) -> Node:
    return dequantized(c, x, plain(scale), None if zero is None else plain(zero))


@converter("QLinearAdd QLinearMul", 1, MICROSOFT)
def qlinear_binary(
    c: Call,
    a: Node,
    a_scale: Node,
    a_zero: Node | None,
    b: Node,
    b_scale: Node,
    b_zero: Node | None,
    y_scale: Node,
    y_zero: Node | None = None,
) -> Node:
    combine = std.add if c.node.op == "QLinearAdd" else std.mul
    made = combine(_float(c, a, a_scale, a_zero), _float(c, b, b_scale, b_zero))
    return quantized(c, made, plain(y_scale), None if y_zero is None else plain(y_zero), a.dtype)


@converter("QLinearSigmoid QLinearLeakyRelu QLinearSoftmax", 1, MICROSOFT)
def qlinear_unary(
    c: Call, x: Node, x_scale: Node, x_zero: Node | None, y_scale: Node, y_zero: Node | None = None
) -> Node:
    wide = _float(c, x, x_scale, x_zero)
    if c.node.op == "QLinearSigmoid":
        made = std.sigmoid(wide)
    elif c.node.op == "QLinearLeakyRelu":
        made = std.leaky_relu(wide, alpha=c.real("alpha", 0.01))
    else:
        if c.integer("opset", 13) < 13:
            raise c.unsupported("QLinearSoftmax of an opset before 13")
        made = std.softmax(wide, axis=c.integer("axis", -1))
    return quantized(c, made, plain(y_scale), None if y_zero is None else plain(y_zero), x.dtype)


def _either_layout(function: Callable[..., Node]) -> Callable[..., Node]:
    """The converter of an operator with an attribute `channels_last`."""

    @wraps(function)
    def convert(c: Call, x: Node, *rest: Node | None) -> Node:
        if not c.flag("channels_last"):
            return function(c, x, *rest)
        return channels_last(function(c, channels_first(x), *rest))

    return convert


add_entry("QLinearConv", 1, _either_layout(qlinear_conv), MICROSOFT)


@converter("QLinearGlobalAveragePool QLinearAveragePool", 1, MICROSOFT)
@_either_layout
def qlinear_pool(
    c: Call, x: Node, x_scale: Node, x_zero: Node | None, y_scale: Node, y_zero: Node | None = None
) -> Node:
    wide = _float(c, x, x_scale, x_zero)
    whole = c.node.op == "QLinearGlobalAveragePool"
    mean = std.global_avg_pool(wide) if whole else average_pool(c, wide)
    return quantized(c, mean, plain(y_scale), None if y_zero is None else plain(y_zero), x.dtype)


@converter("QLinearConcat", 1, MICROSOFT)
def qlinear_concat(c: Call, y_scale: Node, y_zero: Node, *xs: Node) -> Node:
    if not xs or len(xs) % 3:
        raise c.error(f"{len(xs)} inputs are not (tensor, scale, zero point) each")
    parts = [_float(c, *xs[index : index + 3]) for index in range(0, len(xs), 3)]
    return quantized(
        c, std.concat(*parts, axis=c.integer("axis")), plain(y_scale), plain(y_zero), y_zero.dtype
    )


@converter("QGemm", 1, MICROSOFT)
def qgemm(
    c: Call,
    a: Node,
    a_scale: Node,
    a_zero: Node,
    b: Node,
    b_scale: Node,
    b_zero: Node,
    bias: Node | None = None,
    y_scale: Node | None = None,
    y_zero: Node | None = None,
) -> Node:
    left = transposed(a) if c.flag("transA") else a
    right = transposed(b) if c.flag("transB") else b
    total = integer_product(c, left, right, plain(a_zero), b_zero)
    if bias is not None:
        total = std.add(total, bias)
    steps = columns(b_scale, 2) or b_scale
    scale = scaled(c, std.mul(plain(a_scale), steps), c.real("alpha", 1.0))
    if y_scale is None:
        return std.mul(c.cast(total, "float32"), scale)
    to = y_zero.dtype if y_zero is not None else a.dtype
    return requantized(c, total, scale, plain(y_scale), None if y_zero is None else plain(y_zero), to)


@converter("QLinearWhere", 1, MICROSOFT)
def qlinear_where(
    c: Call,
    condition: Node,
    a: Node,
    a_scale: Node,
    a_zero: Node,
    b: Node,
    b_scale: Node,
    b_zero: Node,
    y_scale: Node,
    y_zero: Node,
) -> Node:
    made = std.where(condition, _float(c, a, a_scale, a_zero), _float(c, b, b_scale, b_zero))
    return quantized(c, made, plain(y_scale), plain(y_zero), y_zero.dtype)


@converter("QAttention", 1, MICROSOFT)
def quantized_attention(
    c: Call,
    x: Node,
    weights: Node,
    bias: Node,
    x_scale: Node,
    w_scale: Node,
    mask: Node | None = None,
    x_zero: Node | None = None,
    w_zero: Node | None = None,
    past: Node | None = None,
) -> Sequence[Node | None]:
    """Attention whose queries, keys and values come from one integer product."""
    whole = weights.shape[-1]
    if len(x.shape) != 3 or not isinstance(whole, int) or whole % 3:
        raise c.error(f"QAttention of {x.type} with weights {weights.type}")
    made = matmul_integer_to_float(c, x, weights, x_scale, w_scale, x_zero, w_zero, bias)
    return self_attention(c, made, (whole // 3,) * 3, mask, past, None)


@converter("QEmbedLayerNormalization", 1, MICROSOFT)
def quantized_embed_layer_norm(
    c: Call,
    ids: Node,
    segments: Node | None,
    words: Node,
    positions: Node,
    segment_table: Node | None,
    gamma: Node,
    beta: Node,
    mask: Node | None,
    *params: Node,
) -> Sequence[Node | None]:
    """Tables and parameters are quantized. Their scales, then their zero points follow the mask."""
    tables = [words, positions, *([] if segment_table is None else [segment_table]), gamma, beta]
    if len(params) != 2 * len(tables):
        raise c.error(f"{len(params)} scales and zero points for {len(tables)} tables")
    scales, zeros = params[: len(tables)], params[len(tables) :]
    wide = [_float(c, *each) for each in zip(tables, scales, zeros)]
    third = None if segment_table is None else wide[2]
    return embed_layer_norm(c, ids, segments, wide[0], wide[1], third, wide[-2], wide[-1], mask)[:2]


@converter("QLinearReduceMean", 1, MICROSOFT)
def qlinear_reduce_mean(
    c: Call, x: Node, x_scale: Node, x_zero: Node | None, y_scale: Node, y_zero: Node | None = None
) -> Node:
    axes = c.integers("axes", None)
    mean = std.reduce_mean(
        _float(c, x, x_scale, x_zero),
        axes=None if axes is None else tuple(axes),
        keepdims=c.flag("keepdims", True),
    )
    return quantized(c, mean, plain(y_scale), None if y_zero is None else plain(y_zero), x.dtype)


@converter("MatMulInteger16", 1, MICROSOFT)
def matmul_integer_16(c: Call, a: Node, b: Node) -> Node:
    return product_of(c.cast(a, "int32"), c.cast(b, "int32"))


@converter("MulInteger", 1, MICROSOFT)
def mul_integer(c: Call, a: Node, a_zero: Node | None, b: Node, b_zero: Node | None = None) -> Node:
    def less(x: Node, zero: Node | None) -> Node:
        wide = c.cast(x, "int32")
        return wide if zero is None else std.sub(wide, c.cast(plain(zero), "int32"))

    return std.mul(less(a, a_zero), less(b, b_zero))


@converter("ReduceSumInteger", 1, MICROSOFT)
def reduce_sum_integer(c: Call, x: Node) -> Node:
    to = "int32" if x.dtype.name == "int8" else "uint32"
    return std.reduce_sum(c.cast(x, to), axes=tuple(c.integers("axes")), keepdims=c.flag("keepdims", True))
