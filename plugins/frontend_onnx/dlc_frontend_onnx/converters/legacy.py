"""Operators of operator set 6, and older ones that ONNX Runtime keeps.

Attributes define whether and along which axis the second input is broadcast, and whether a network is in
training mode.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dlc_core.graph.node import Node
from dlc_core.op import std
from dlc_core.op.infer import simplify
from dlc_frontend_onnx.converters.base import Call, add_entry, converter
from dlc_frontend_onnx.converters.elementwise import dropout_7, pow_, variadic
from dlc_frontend_onnx.converters.nn import gemm, scaled
from dlc_frontend_onnx.converters.norm import batch_norm

SINCE = 6

_BINARY = {
    "Add": "add", "And": "logical_and", "Div": "div", "Equal": "equal", "Greater": "greater", "Less": "less",
    "Mul": "mul", "Or": "logical_or", "Sub": "sub", "Xor": "logical_xor",
}  # fmt: skip


def _aligned(c: Call, a: Node, b: Node) -> Node:
    """b with trailing dims of 1, so that its dims align with those of a from `axis` on."""
    axis = c.integer("axis", None)
    rank, own = len(a.shape), len(b.shape)
    if not c.flag("broadcast"):
        if rank != own or any(
            isinstance(x, int) and isinstance(y, int) and x != y for x, y in zip(a.shape, b.shape)
        ):
            raise c.error(f"{a.type} and {b.type} differ in shape", why="the attribute broadcast is not set")
        return b
    behind = 0 if axis is None else rank - c.check_axis(axis, rank) - own
    if behind < 0 or own > rank:
        raise c.error(f"{b.type} does not fit {a.type} from axis {axis} on")
    return std.unsqueeze(b, axes=tuple(range(own, own + behind))) if behind else b


def _binary(name: str) -> Any:
    def convert(c: Call, a: Node, b: Node) -> Node:
        c.ignore("consumed_inputs")
        made: Node = getattr(std, name)(a, _aligned(c, a, b))
        return made

    return convert


for _op, _name in _BINARY.items():
    add_entry(_op, SINCE, _binary(_name))
for _op in ("Sum", "Mean", "Max", "Min"):
    add_entry(_op, SINCE, variadic)


@converter("Pow", SINCE)
def pow_6(c: Call, base: Node, exponent: Node) -> Node:
    return pow_(c, base, _aligned(c, base, exponent))


@converter("PRelu", SINCE)
def prelu_6(c: Call, x: Node, slope: Node) -> Node:
    """One slope for all, or one per channel, which is dim 1."""
    c.ignore("consumed_inputs")
    if len(slope.shape) == 1 and slope.shape != (1,) and len(x.shape) > 2:
        slope = std.unsqueeze(slope, axes=tuple(range(1, len(x.shape) - 1)))
    return std.prelu(x, slope)


@converter("Gemm", SINCE)
def gemm_6(c: Call, a: Node, b: Node, bias: Node) -> Node:
    c.ignore("broadcast")
    return gemm(c, a, b, bias)


@converter("BatchNormalization", SINCE)
def batch_norm_6(c: Call, x: Node, scale: Node, bias: Node, mean: Node, var: Node) -> Any:
    _refuse_training(c)
    return batch_norm(c, x, scale, bias, mean, var)


@converter("Dropout", SINCE)
def dropout_6(c: Call, x: Node) -> Any:
    _refuse_training(c)
    return dropout_7(c, x)


@converter("Affine", 1)
def affine(c: Call, x: Node) -> Node:
    """alpha x + beta."""
    return std.add(scaled(c, x, c.real("alpha", 1.0)), c.const(c.real("beta", 0.0), x.dtype))


@converter("ImageScaler", 1)
def image_scaler(c: Call, x: Node) -> Node:
    """scale x + bias, with a bias for each channel; x is (n, c, h, w)."""
    if len(x.shape) != 4:
        raise c.error(f"an image has 4 dims, not {x.type}")
    made = scaled(c, x, c.real("scale", 1.0))
    bias = c.reals("bias", ())
    return std.add(made, c.const(np.reshape(bias, (1, -1, 1, 1)), x.dtype)) if bias else made


@converter("Crop", 1)
def crop(c: Call, x: Node) -> Node:
    """x (n, c, h, w) without its border (left, top, right, bottom), or `scale` (h, w) of it from there on."""
    border, scale = c.integers("border"), c.integers("scale", None)
    if len(x.shape) != 4 or len(border) != 4 or (scale is not None and len(scale) != 2):
        raise c.error(f"{x.type} has no border {tuple(border)} of an image")
    left, top, right, bottom = border
    height, width = x.shape[2:]
    ends = (height - bottom, width - right) if scale is None else (top + scale[0], left + scale[1])
    for end, size in zip(ends, (height, width)):
        c.at_least(size, end, "the part lies in the image")
    return std.slice(x, begins=(top, left), ends=tuple(map(simplify, ends)), strides=(1, 1), axes=(2, 3))


@converter("ScaledTanh", 1)
def scaled_tanh(c: Call, x: Node) -> Node:
    """alpha tanh(beta x)."""
    return scaled(c, std.tanh(scaled(c, x, c.real("beta"))), c.real("alpha"))


@converter("ParametricSoftplus", 1)
def parametric_softplus(c: Call, x: Node) -> Node:
    """alpha log(1 + exp(beta x))."""
    return scaled(c, std.softplus(scaled(c, x, c.real("beta"))), c.real("alpha"))


def _refuse_training(c: Call) -> None:
    if not c.flag("is_test"):
        raise c.unsupported(f"{c.node.op} of opset 6 in training mode", hint="export the model for inference")


__all__ = ["SINCE"]
