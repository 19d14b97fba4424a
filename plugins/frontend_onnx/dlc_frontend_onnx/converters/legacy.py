"""Operators of operator set 6. Attributes define whether and along which axis the second input is broadcast,
and whether a network is in training mode.
"""

from __future__ import annotations

from typing import Any

from dlc_core.graph.node import Node
from dlc_core.op import std
from dlc_frontend_onnx.converters.base import Call, add_entry, converter
from dlc_frontend_onnx.converters.elementwise import dropout_7, pow_, variadic
from dlc_frontend_onnx.converters.nn import gemm
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


def _refuse_training(c: Call) -> None:
    if not c.flag("is_test"):
        raise c.unsupported(f"{c.node.op} of opset 6 in training mode", hint="export the model for inference")


__all__ = ["SINCE"]
