"""Operators of com.microsoft in exported and optimized models."""

from __future__ import annotations

from collections.abc import Sequence

from dlc_core.graph.node import Node, get_item
from dlc_core.ir.types import Dim
from dlc_core.op import std
from dlc_core.op.infer import product
from dlc_frontend_onnx.converters.base import MICROSOFT, Call, add_entry, converter
from dlc_frontend_onnx.converters.nn import conv, gemm, product_of, scaled
from dlc_frontend_onnx.converters.shaping import pad, range_, trilu
from dlc_frontend_onnx.entries import Function

_SAME: dict[str, Function] = {
    "Pad": pad,
    "Range": range_,
    "Trilu": trilu,
}
for _op, _function in _SAME.items():
    add_entry(_op, 1, _function, MICROSOFT)


@converter("Gelu", 1, MICROSOFT)
def gelu(c: Call, x: Node) -> Node:
    return std.gelu(x)


@converter("BiasGelu", 1, MICROSOFT)
def bias_gelu(c: Call, x: Node, bias: Node) -> Node:
    return std.gelu(std.add(x, bias))


@converter("FastGelu", 1, MICROSOFT)
def fast_gelu(c: Call, x: Node, bias: Node | None = None) -> Node:
    return std.gelu(x if bias is None else std.add(x, bias), approximate="tanh")


@converter("QuickGelu", 1, MICROSOFT)
def quick_gelu(c: Call, x: Node) -> Node:
    """x sigmoid(alpha x)."""
    return std.mul(x, std.sigmoid(scaled(c, x, c.real("alpha", 1.702))))


@converter("BiasAdd", 1, MICROSOFT)
def bias_add(c: Call, x: Node, bias: Node, skip: Node) -> Node:
    return std.add(std.add(x, bias), skip)


@converter("BiasSplitGelu", 1, MICROSOFT)
def bias_split_gelu(c: Call, x: Node, bias: Node) -> Node:
    total = std.add(x, bias)
    last = len(total.shape) - 1
    size = total.shape[last]
    if not isinstance(size, int) or size % 2:
        raise c.error(f"the last dim of {x.type} is not even")
    halves = std.split(total, sizes=(size // 2, size // 2), axis=last)
    return std.mul(get_item(halves, 0), std.gelu(get_item(halves, 1)))


@converter("FusedMatMul", 1, MICROSOFT)
def fused_matmul(c: Call, a: Node, b: Node) -> Node:
    """alpha op(a) op(b). The batch flags move axis 0 of an operand before its last two axes."""

    def ready(x: Node, flag: str) -> Node:
        rank = len(x.shape)
        if not c.flag(flag):
            return x
        if rank < 3:
            raise c.error(f"{flag} of {x.type}")
        return std.transpose(x, axes=(*range(1, rank - 1), 0, rank - 1))

    left, right = ready(a, "transBatchA"), ready(b, "transBatchB")
    flags = {
        "transpose_a": c.flag("transA") and len(a.shape) > 1,
        "transpose_b": c.flag("transB") and len(b.shape) > 1,
    }
    return scaled(c, product_of(left, right, lambda x, y: std.matmul(x, y, **flags)), c.real("alpha", 1.0))


def activated(c: Call, x: Node) -> Node:
    """x after the activation that a fused operator names."""
    name = c.text("activation", "")
    params = tuple(c.reals("activation_params", ()))
    plain = {"Relu": std.relu, "Sigmoid": std.sigmoid, "Tanh": std.tanh}
    if not name:
        return x
    if name in plain:
        return plain[name](x)
    if name == "LeakyRelu":
        return std.leaky_relu(x, alpha=params[0] if params else c.real("activation_alpha", 0.01))
    if name == "Clip" and len(params) == 2:
        return std.clip(x, min=params[0], max=params[1])
    if name == "HardSigmoid" and len(params) == 2:
        return std.hard_sigmoid(x, alpha=params[0], beta=params[1])
    raise c.unsupported(f"the activation {name!r}")


@converter("FusedConv", 1, MICROSOFT)
def fused_conv(c: Call, x: Node, w: Node, bias: Node | None = None, other: Node | None = None) -> Node:
    made = conv(c, x, w, bias)
    return activated(c, made if other is None else std.add(made, other))


@converter("FusedGemm", 1, MICROSOFT)
def fused_gemm(c: Call, a: Node, b: Node, bias: Node | None = None) -> Node:
    c.ignore("activation_beta", "activation_gamma")
    return activated(c, gemm(c, a, b, bias))


def _inverse_spread(c: Call, x: Node, axis: int, eps: float, *, centre: bool) -> tuple[Node, Node]:
    """The mean and 1 / sqrt(variance + eps) over the axes from `axis` on. If not `centre`, the mean is not
    subtracted.
    """
    axes = tuple(range(axis, len(x.shape)))
    mean = std.reduce_mean(x, axes=axes, keepdims=True)
    moved = std.sub(x, mean) if centre else x
    power = std.reduce_mean(std.mul(moved, moved), axes=axes, keepdims=True)
    return mean, std.reciprocal(std.sqrt(std.add(power, c.const(eps, x.dtype))))


@converter("SimplifiedLayerNormalization", 1)
@converter("SimplifiedLayerNormalization", 1, MICROSOFT)
def simplified_layer_norm(c: Call, x: Node, scale: Node) -> Sequence[Node | None]:
    c.ignore("stash_type")
    axis, eps = c.axis("axis", -1, len(x.shape)), c.real("epsilon", 1e-5)
    made = std.rms_norm(x, c.cast(scale, x.dtype), axis=axis, eps=eps)
    if not c.uses_output(1):
        return [made]
    return [made, _inverse_spread(c, c.cast(x, "float32"), axis, eps, centre=False)[1]]


@converter("SkipLayerNormalization", 1, MICROSOFT)
def skip_layer_norm(
    c: Call, x: Node, skip: Node, gamma: Node, beta: Node | None = None, bias: Node | None = None
) -> Sequence[Node | None]:
    eps = c.real("epsilon", 1e-12)
    total = _skipped(x, skip, bias)
    params = [gamma] if beta is None else [gamma, beta]
    made = std.layer_norm(total, *params, axis=-1, eps=eps)
    mean = inverse = None
    if c.uses_output(1) or c.uses_output(2):
        wide = c.cast(total, "float32")
        mean, inverse = _inverse_spread(c, wide, len(x.shape) - 1, eps, centre=True)
    return [made, mean, inverse, total]


@converter("SkipSimplifiedLayerNormalization", 1, MICROSOFT)
def skip_simplified_layer_norm(
    c: Call, x: Node, skip: Node, gamma: Node, bias: Node | None = None
) -> Sequence[Node | None]:
    total = _skipped(x, skip, bias)
    return [std.rms_norm(total, gamma, axis=-1, eps=c.real("epsilon", 1e-12)), None, None, total]


def _skipped(x: Node, skip: Node, bias: Node | None) -> Node:
    total = std.add(x, skip)
    return total if bias is None else std.add(total, bias)


@converter("EmbedLayerNormalization", 1, MICROSOFT)
def embed_layer_norm(
    c: Call,
    ids: Node,
    segments: Node | None,
    words: Node,
    positions: Node,
    segment_table: Node | None,
    gamma: Node,
    beta: Node,
    mask: Node | None = None,
    position_ids: Node | None = None,
) -> Sequence[Node | None]:
    c.ignore("mask_index_type")
    batch, length = ids.shape
    total = std.gather(words, ids)
    if position_ids is None:
        rows = std.slice(positions, begins=(0,), ends=(length,), axes=(0,))
        total = std.add(total, rows)
    else:
        total = std.add(total, std.gather(positions, position_ids))
    if segments is not None and segment_table is not None:
        total = std.add(total, std.gather(segment_table, segments))
    made = std.layer_norm(total, gamma, beta, axis=-1, eps=c.real("epsilon", 1e-12))
    if not c.uses_output(1):
        counts = None
    elif mask is None:
        counts = std.full(shape=(batch,), value=0.0, dtype="int32")
    else:
        counts = std.reduce_sum(c.cast(mask, "int32"), axes=(1,))
    return [made, counts, total]


@converter("BiasSoftmax", 1, MICROSOFT)
def bias_softmax(c: Call, x: Node, bias: Node) -> Node:
    axis = c.axis("axis", 1, len(x.shape))
    inner = c.flag("is_inner_broadcast")
    if not inner and len(bias.shape) < len(x.shape):
        raise c.unsupported("BiasSoftmax whose bias is broadcast from outside")
    total = std.add(x, bias)
    shape: tuple[Dim, ...] = (product(x.shape[:axis]), product(x.shape[axis:]))
    return std.reshape(std.softmax(std.reshape(total, shape=shape), axis=-1), shape=tuple(x.shape))
