"""Insertion of quantize and dequantize into a network.

Convolutions and GEMMs with constant weights are quantized, with the operations between them: their inputs,
and the inputs of poolings, concatenations, means and additions of results of convolutions. Weights are
symmetric, with a scale for each output channel. Biases of convolutions are int32 in the scale of the sums.
Normalisations, softmax and products of two activations stay in floats.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from dlc_core.graph.node import CONST, Function, Node, const_array, constant, post_order, rewrite
from dlc_core.ir.types import TensorType
from dlc_core.op.declare import NDArray, OpDecl
from dlc_core.op.std import BY_NAME as OPS

CONV, MATMUL, ADD, QUANTIZE, DEQUANTIZE = (
    OPS[name] for name in ("conv", "matmul", "add", "quantize", "dequantize")
)
BETWEEN = frozenset(
    OPS[name]
    for name in ("max_pool", "avg_pool", "global_max_pool", "global_avg_pool", "reduce_mean", "concat")
)
"""Ops that join or reduce results of convolutions."""
THROUGH = BETWEEN | {
    OPS[name]
    for name in (
        "relu", "clip", "reshape", "transpose", "slice", "pad", "squeeze", "unsqueeze", "flatten", "add",
    )
}  # fmt: skip
"""Ops after which a value still counts as the result of a convolution."""


def is_weighted(value: Node) -> bool:
    """Whether a node is a convolution or a product of float32 by constant weights."""
    if value.op not in (CONV, MATMUL) or value.args[1].op is not CONST:
        return False
    plain = value.dtype.name == value.args[0].dtype.name == "float32"
    if value.op is MATMUL:
        return plain and len(value.args[1].shape) == 2 and not value.attrs["transpose_b"]
    return plain and value.attrs["layout"] == "NCX" and value.attrs["kernel_layout"] == "OIX"


def quantized_args(function: Function, skip: Sequence[str] = ()) -> dict[Node, tuple[int, ...]]:
    """The nodes whose inputs are to be quantized, with the positions of these inputs.

    `skip` are names of model nodes that stay in floats.
    """
    found: dict[Node, tuple[int, ...]] = {}
    conv_values: set[Node] = set()  # results of convolutions, perhaps after ops of `THROUGH`
    for current in post_order(function.body):
        if not isinstance(current.type, TensorType) or current.dtype.name != "float32":
            continue
        if current.op is CONV or (current.op in THROUGH and any(arg in conv_values for arg in current.args)):
            conv_values.add(current)
        if any(span.name in skip for span in current.spans):
            continue
        if is_weighted(current):
            found[current] = (0,)
        elif current.op in BETWEEN and all(arg in conv_values for arg in current.args):
            found[current] = tuple(range(len(current.args)))
        elif current.op is ADD and all(arg in conv_values for arg in current.args):
            found[current] = (0, 1)
    return found


def scale_of(low: float, high: float, dtype: str) -> tuple[np.float32, int]:
    """The scale and zero point of the bytes that cover a range; int8 is symmetric."""
    if dtype == "int8":
        largest = max(abs(low), abs(high))
        return np.float32(largest / 127.0) if largest > 0 else np.float32(1.0), 0
    if high <= low:
        return np.float32(1.0), 0
    scale = np.float32((high - low) / 255.0)
    return scale, int(np.clip(np.rint(-low / float(scale)), 0, 255))


def quantized_function(
    function: Function,
    positions: Mapping[Node, Sequence[int]],
    ranges: Mapping[Node, tuple[float, float]],
    dtype: str,
    per_channel: bool,
) -> Function:
    """The function with the inputs at `positions` quantized by the ranges of their values."""
    made: dict[Node, Node] = {}

    def quantized(old: Node, new: Node) -> Node:
        if old not in made:
            scale, point = scale_of(*ranges[old], dtype)
            step, zero = constant(scale), constant(np.array(point, dtype))
            made[old] = DEQUANTIZE.build(QUANTIZE.build(new, step, zero, to=dtype), step, zero)
        return made[old]

    def visit(old: Node, args: tuple[Node, ...]) -> Node | None:
        if old not in positions:
            return None
        new = list(args)
        for position in positions[old]:
            new[position] = quantized(old.args[position], args[position])
        if is_weighted(old):
            scale, _ = scale_of(*ranges[old.args[0]], dtype)
            new[1:] = _weights(old, scale, per_channel)
        decl = old.op
        assert isinstance(decl, OpDecl)
        return decl.build(*new, **old.attrs)

    body = rewrite(function.body, visit)
    return function if body is function.body else function.with_body(body)


def _weights(old: Node, scale: np.float32, per_channel: bool) -> list[Node]:
    """The weights of a convolution or product as bytes, and a bias in the scale of the sums."""
    array = const_array(old.args[1])
    assert array is not None
    steps = _steps(array, 0 if old.op is CONV else 1, per_channel)
    q = np.clip(np.rint(array / steps), -127, 127).astype(np.int8)
    scales = steps if old.op is CONV and per_channel else steps.reshape(-1 if per_channel else ())
    made = [DEQUANTIZE.build(constant(q), constant(scales))]
    bias = const_array(old.args[2]) if len(old.args) > 2 else None
    if bias is None:
        return [*made, *old.args[2:]]
    sums = (scale * steps.reshape(-1)).astype(np.float32)
    info = np.iinfo(np.int32)
    integers = np.clip(np.rint(bias.astype(np.float64) / sums), info.min, info.max).astype(np.int32)
    return [*made, DEQUANTIZE.build(constant(integers), constant(sums if per_channel else sums.reshape(())))]


def _steps(array: NDArray, channels: int, per_channel: bool) -> NDArray:
    """The scales of weights. All dims are 1, except the axis `channels` if scales are per channel."""
    axes = tuple(a for a in range(array.ndim) if not per_channel or a != channels)
    largest = np.abs(array).max(axes, keepdims=True)
    return np.asarray(np.where(largest > 0, largest / 127.0, 1.0)).astype(np.float32)


__all__ = ["is_weighted", "quantized_args", "quantized_function", "scale_of"]
