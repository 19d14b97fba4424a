"""More operators of com.microsoft: of older exporters, and parts of newer networks."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dlc_core.graph.node import Node, get_item
from dlc_core.ir.types import Dim
from dlc_core.op import std
from dlc_frontend_onnx.converters.axes import unsqueezed
from dlc_frontend_onnx.converters.base import MICROSOFT, Call, add_entry, converter
from dlc_frontend_onnx.converters.data import unique_of
from dlc_frontend_onnx.converters.indexing import gather_nd
from dlc_frontend_onnx.converters.microsoft import activated, fused_matmul
from dlc_frontend_onnx.converters.nn import scaled
from dlc_frontend_onnx.converters.spatial import grid_sample
from dlc_frontend_onnx.entries import Function
from dlc_frontend_onnx.model import NodeDef
from dlc_frontend_onnx.shapes import has_elements


@converter("TransposeMatMul", 1, MICROSOFT)
def transpose_matmul(c: Call, a: Node, b: Node) -> Node:
    return fused_matmul(c, a, b)


@converter("FusedMatMulActivation", 1, MICROSOFT)
def fused_matmul_activation(c: Call, a: Node, b: Node) -> Node:
    c.ignore("activation_alpha", "activation_beta", "activation_gamma", "activation_axis")
    return activated(c, fused_matmul(c, a, b))


@converter("GemmFastGelu", 1, MICROSOFT)
def gemm_fast_gelu(c: Call, x: Node, w: Node, bias: Node | None = None) -> Node:
    made = std.matmul(x, w)
    return std.gelu(made if bias is None else std.add(made, bias), approximate="tanh")


@converter("ExpandDims", 1, MICROSOFT)
def expand_dims(c: Call, x: Node, axis: Node) -> Node:
    position = c.element(axis, "the axis")
    if has_elements(position):
        return unsqueezed(c, x, [position])
    return std.unsqueeze(x, axes=(c.check_axis(c.number(axis, "the axis"), len(x.shape) + 1),))


_SAME: dict[str, Function] = {"GatherND": gather_nd, "GridSample": grid_sample}
for _op, _function in _SAME.items():
    add_entry(_op, 1, _function, MICROSOFT)


@converter("Unique", 1, MICROSOFT)
def unique_of_vector(c: Call, x: Node) -> Sequence[Node]:
    """The distinct elements in order of first occurrence, the inverse indices, and the counts."""
    values, _, inverse, counts = unique_of(c, x, None, ordered=False)
    return [values, inverse, counts]


@converter("TorchEmbedding", 1, MICROSOFT)
def torch_embedding(
    c: Call, table: Node, positions: Node, padding: Node | None = None, by_frequency: Node | None = None
) -> Node:
    """The inputs for training are ignored."""
    return std.gather(table, positions, axis=0)


@converter("BiasDropout", 1, MICROSOFT)
def bias_dropout(
    c: Call,
    x: Node,
    bias: Node,
    residual: Node | None = None,
    ratio: Node | None = None,
    training: Node | None = None,
) -> Sequence[Node]:
    if training is not None and (found := c.array(training)) is not None and found.any():
        raise c.unsupported("BiasDropout while training")
    c.ignore("seed")
    total = std.add(x, bias)
    mask = std.full(shape=tuple(x.shape), value=1.0, dtype="bool")
    return [total if residual is None else std.add(total, residual), mask]


@converter("Inverse", 1, MICROSOFT)
def inverse(c: Call, x: Node) -> Node:
    return std.inverse(x)


def _dist_power(c: Call, a: Node, b: Node) -> Node:
    """The squared distances of rows, computed from differences, without cancellation."""
    gap = std.sub(std.unsqueeze(a, axes=(1,)), std.unsqueeze(b, axes=(0,)))
    return std.reduce_sum(std.mul(gap, gap), axes=(2,))


@converter("CDist", 1, MICROSOFT)
def cdist(c: Call, a: Node, b: Node) -> Node:
    if len(a.shape) != 2 or len(b.shape) != 2:
        raise c.error(f"CDist of {a.type} and {b.type}")
    squares = _dist_power(c, a, b)
    plain = c.choice("metric", "sqeuclidean", ("sqeuclidean", "euclidean")) == "sqeuclidean"
    return squares if plain else std.sqrt(squares)


@converter("ComplexMul ComplexMulConj", 1, MICROSOFT)
def complex_mul(c: Call, a: Node, b: Node) -> Node:
    """Products of complex numbers, whose last axis holds the parts. ComplexMulConj conjugates the second
    operand.
    """
    parts = [std.split(x, sizes=(1, 1), axis=-1) for x in (a, b)]
    (ar, ai), (br, bi) = ((get_item(p, 0), get_item(p, 1)) for p in parts)
    if c.node.op == "ComplexMulConj":
        bi = std.neg(bi)
    real = std.sub(std.mul(ar, br), std.mul(ai, bi))
    return std.concat(real, std.add(std.mul(ar, bi), std.mul(ai, br)), axis=-1)


@converter("IsAllFinite", 1, MICROSOFT)
def is_all_finite(c: Call, *xs: Node) -> Node:
    only_nan, only_inf = c.flag("isnan_only"), c.flag("isinf_only")
    bad: Node | None = None
    for x in xs:
        nan, inf = std.isnan(x), std.isinf(x)
        wrong = nan if only_nan else inf if only_inf else std.logical_or(nan, inf)
        found = std.reduce_any(wrong)
        bad = found if bad is None else std.logical_or(bad, found)
    if bad is None:
        raise c.error("IsAllFinite needs an input")
    return std.logical_not(bad)


@converter("UnfoldTensor", 1, MICROSOFT)
def unfold_tensor(c: Call, x: Node) -> Node:
    """All windows of an axis; their elements become the last axis."""
    axis = c.axis("dim", -1, len(x.shape))
    size, step = c.integer("size"), c.integer("step", 1)
    length = x.shape[axis]
    if not isinstance(length, int) or not 0 < size <= length or step < 1:
        raise c.error(f"windows of {size} of {x.type} along axis {axis}")
    count = (length - size) // step + 1
    positions = np.arange(count)[:, None] * step + np.arange(size)
    made = std.gather(x, c.const(positions, "int64"), axis=axis)
    order = [k for k in range(len(made.shape)) if k != axis + 1]
    return std.transpose(made, axes=(*order, axis + 1))


@converter("NGramRepeatBlock", 1, MICROSOFT)
def ngram_repeat_block(c: Call, ids: Node, scores: Node) -> Node:
    """The scores, with -inf for every token that would complete an n-gram that the sequence contains
    already.
    """
    size, length = c.integer("ngram_size"), ids.shape[1]
    if size < 1 or not isinstance(length, int):
        raise c.unsupported(f"n-grams of {size} in {ids.type}", hint="pin the dims with shapes={...}")
    count = length - size + 1
    if count < 1:
        return scores
    windows = c.const(np.arange(count)[:, None] + np.arange(size), "int64")
    grams = std.gather(ids, windows, axis=1)
    last = std.slice(ids, begins=(length - size + 1,), ends=(length,), axes=(1,))
    begun = std.slice(grams, begins=(0,), ends=(size - 1,), axes=(2,))
    same = std.reduce_all(std.equal(begun, std.unsqueeze(last, axes=(1,))), axes=(2,)) if size > 1 else None
    ends = std.squeeze(std.slice(grams, begins=(size - 1,), ends=(size,), axes=(2,)), axes=(2,))
    tokens = std.arange(stop=scores.shape[1], dtype=ids.dtype)
    hit = std.equal(std.unsqueeze(ends, axes=(2,)), tokens)
    if same is not None:
        hit = std.logical_and(hit, std.unsqueeze(same, axes=(2,)))
    return std.where(std.reduce_any(hit, axes=(1,)), c.const(float("-inf"), scores.dtype), scores)


@converter("GatedAdd", 1, MICROSOFT)
def gated_add(c: Call, x: Node, y: Node, gate: Node) -> Node:
    return std.add(x, std.mul(y, gate))


@converter("ScaledSiLU", 1, MICROSOFT)
def scaled_silu(c: Call, x: Node, scale: Node | None = None) -> Node:
    wide = scaled(c, x, c.real("alpha", 1.0)) if scale is None else std.mul(x, std.reshape(scale, shape=()))
    c.ignore("alpha")
    return std.mul(wide, std.sigmoid(wide))


@converter("GatedRMSNorm", 1, MICROSOFT)
def gated_rms_norm(c: Call, x: Node, scale: Node, gate: Node) -> Node:
    """RMS normalization of rows with one element per scale, times an activation of the gate."""
    kind = c.choice("activation", "silu", ("silu", "swish", "sigmoid"))
    size, last = scale.shape[0], x.shape[-1]
    if not isinstance(size, int) or not isinstance(last, int) or last % size:
        raise c.error(f"{scale.type} scales for {x.type}")
    wide, tall = c.cast(x, "float32"), c.cast(gate, "float32")
    shape: tuple[Dim, ...] = (*x.shape[:-1], last // size, size)
    rows = std.reshape(wide, shape=shape)
    normed = std.rms_norm(rows, c.cast(scale, "float32"), axis=-1, eps=c.real("epsilon", 1e-5))
    factor = std.sigmoid(tall) if kind == "sigmoid" else std.silu(tall)
    return c.cast(std.mul(std.reshape(normed, shape=tuple(x.shape)), factor), x.dtype)


@converter("RelativePositionBias", 1, MICROSOFT)
def relative_position_bias(c: Call, table: Node, queries: Node, keys: Node) -> Node:
    """The bias of T5: a row of the table for each distance of key and query; large distances share
    buckets.
    """
    rows, columns = (c.sizes(std.reshape(value, shape=(1,)), "a length")[0] for value in (queries, keys))
    buckets = c.static(table, "the table of biases")[0]
    both, limit = c.flag("is_bidirectional"), c.integer("max_distance")
    whole = buckets // 2 if both else buckets
    exact = whole // 2
    if not 0 < exact < limit:
        raise c.error(f"{buckets} buckets for distances up to {limit}")

    def number(value: int) -> Node:
        return c.const(value, "int64")

    steps = std.unsqueeze(std.arange(stop=rows, dtype="int64"), axes=(1,))
    distance = std.sub(steps, std.arange(stop=columns, dtype="int64"))
    size = std.abs(distance) if both else std.maximum(distance, number(0))
    part = c.const((whole - exact) / math.log(limit / exact), "float64")
    ratio = std.div(std.cast(std.maximum(size, number(1)), to="float64"), c.const(exact, "float64"))
    bucket = std.add(std.cast(std.mul(std.log(ratio), part), to="int64"), number(exact))
    positions = std.where(std.less(size, number(exact)), size, std.minimum(bucket, number(whole - 1)))
    if both:
        behind = std.cast(std.less(distance, number(0)), to="int64")
        positions = std.add(positions, std.mul(behind, number(whole)))
    made = std.gather(table, positions, axis=0)
    return std.unsqueeze(std.transpose(made, axes=(2, 0, 1)), axes=(0,))


def _generating(node: NodeDef) -> str:
    return (
        f"operator {node.op!r} of domain 'com.microsoft' generates texts by a search around a decoder:"
        " run the decoder, one of its graphs, step by step instead"
    )


@converter("BeamSearch GreedySearch Sampling WhisperBeamSearch", 1, MICROSOFT, check=_generating)
def search(c: Call, *inputs: Node) -> Node:
    raise c.unsupported(_generating(c.node))
