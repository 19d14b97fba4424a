"""Activations with arguments. Others, and gradients, are decomposed by torch."""

from __future__ import annotations

from typing import Any

from dlc_core.graph.node import Node
from dlc_core.op import std
from dlc_frontend_torch.call import Call
from dlc_frontend_torch.registry import aten


@aten("elu")
def elu(c: Call, x: Node, alpha: Any = 1, scale: Any = 1, input_scale: Any = 1) -> Node:
    """scale x where x > 0, else scale alpha (exp(input_scale x) - 1)."""
    wide = c.cast(x, "float32") if x.dtype.bits < 32 else x
    zero = c.const(0, wide.dtype)
    inner = wide if input_scale == 1 else std.mul(wide, c.const(input_scale, wide.dtype))
    low = std.mul(std.expm1(inner), c.const(alpha * scale, wide.dtype))
    high = wide if scale == 1 else std.mul(wide, c.const(scale, wide.dtype))
    return c.cast(std.where(std.greater(wide, zero), high, low), x.dtype)


@aten("leaky_relu")
def leaky_relu(c: Call, x: Node, negative_slope: Any = 0.01) -> Node:
    low = std.mul(x, c.const(negative_slope, x.dtype))
    return std.where(std.greater(x, c.const(0, x.dtype)), x, low)


@aten("hardtanh")
def hardtanh(c: Call, x: Node, min_val: Any = -1, max_val: Any = 1) -> Node:
    low, high = (c.const(each, x.dtype) for each in (min_val, max_val))
    return std.minimum(std.maximum(x, low), high)


@aten("rrelu_with_noise_functional")
def rrelu(
    c: Call, x: Node, noise: Node, lower: Any = 1 / 8, upper: Any = 1 / 3, training: bool = False, *_: Any
) -> tuple[Node, Node]:
    """The leaky ReLU with the mean slope, and the noise. In training torch draws a slope for each element
    that is not positive.
    """
    if training:
        raise c.unsupported("random numbers, of which there are as many as data decide,")
    return leaky_relu(c, x, (lower + upper) / 2), noise
