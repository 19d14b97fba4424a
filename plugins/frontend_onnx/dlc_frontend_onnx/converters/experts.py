"""Mixture of experts of com.microsoft: each row uses a few of several small networks."""

from __future__ import annotations

from dlc_core.graph.node import Node
from dlc_core.op import std
from dlc_frontend_onnx.converters.base import MICROSOFT, Call, converter

ACTIVATIONS = ("relu", "gelu", "silu", "identity", "swiglu")


@converter("MoE", 1, MICROSOFT)
def mixture_of_experts(
    c: Call,
    x: Node,
    router: Node,
    first: Node,
    first_bias: Node | None,
    second: Node,
    second_bias: Node | None = None,
    third: Node | None = None,
    third_bias: Node | None = None,
) -> Node:
    """The sum of the results of the `k` most probable experts, weighted by their probabilities.

    Weights are [experts, outputs, inputs]. All experts compute all rows, because the selection is
    data-dependent.
    """
    k = c.integer("k", 1)
    if c.flag("use_sparse_mixer"):
        raise c.unsupported("MoE with a sparse mixer")
    experts = router.shape[-1]
    if not isinstance(experts, int) or not 1 <= k <= experts or first.shape[0] != experts:
        raise c.error(f"MoE of {k} of {experts} experts with weights {first.type}")
    rows = std.reshape(x, shape=(-1, x.shape[-1]))
    inner = _activated(c, _each(rows, first, first_bias))
    if third is not None:
        inner = std.mul(inner, _each(rows, third, third_bias))
    made = _each(inner, second, second_bias)
    shares = std.transpose(_gates(c, std.reshape(router, shape=(-1, experts)), k, experts), axes=(1, 0))
    total = std.reduce_sum(std.mul(made, std.unsqueeze(c.cast(shares, made.dtype), axes=(2,))), axes=(0,))
    return std.reshape(total, shape=tuple(x.shape))


def _each(rows: Node, weights: Node, bias: Node | None) -> Node:
    """The products of rows with every expert's weights: [experts, rows, outputs]."""
    made = std.matmul(rows, weights, transpose_b=True)
    return made if bias is None else std.add(made, std.unsqueeze(bias, axes=(1,)))


def _gates(c: Call, logits: Node, k: int, experts: int) -> Node:
    """The weight of each expert for each row; 0 for experts that are not selected."""
    likely = std.softmax(logits, axis=-1)
    positions = std.top_indices(likely, count=k, largest=True)
    values = std.gather_elements(likely, positions, axis=-1)
    if c.flag("normalize_routing_weights"):
        values = std.div(values, std.reduce_sum(values, axes=(-1,), keepdims=True))
    hot = std.one_hot(positions, depth=experts, axis=-1, dtype=values.dtype)
    return std.reduce_sum(std.mul(hot, std.unsqueeze(values, axes=(-1,))), axes=(1,))


def _activated(c: Call, x: Node) -> Node:
    kind = c.choice("activation_type", "relu", ACTIVATIONS)
    alpha, beta = c.real("activation_alpha", 1.0), c.real("activation_beta", 0.0)
    limit, fusion = c.real("swiglu_limit", None), c.integer("swiglu_fusion", 0)
    if kind != "swiglu":
        plain = {"relu": std.relu, "silu": std.silu}
        if kind == "identity":
            return x
        return std.gelu(x, approximate="tanh") if kind == "gelu" else plain[kind](x)
    size = x.shape[-1]
    if fusion not in (1, 2) or not isinstance(size, int) or size % 2:
        raise c.unsupported(f"swiglu of {x.type} whose gate is not part of the first weights")
    step, half = (2, 1) if fusion == 1 else (1, size // 2)
    gate = std.slice(x, begins=(0,), ends=(step * (size // 2),), axes=(-1,), strides=(step,))
    linear = std.slice(x, begins=(half,), ends=(size,), axes=(-1,), strides=(step,))
    if limit is not None:
        gate = std.minimum(gate, c.const(limit, x.dtype))
        linear = std.clip(linear, min=-limit, max=limit)
    gate = std.mul(gate, std.sigmoid(std.mul(gate, c.const(alpha, x.dtype))))
    return std.mul(gate, std.add(linear, c.const(beta, x.dtype)))
