"""GroupQueryAttention and related operators of com.microsoft: decoders with a KV cache."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from dlc_core.graph.node import Node, get_item
from dlc_core.ir.expr import as_expr, maximum
from dlc_core.ir.types import Dim, dim
from dlc_core.op import std
from dlc_frontend_onnx.converters.attention import joined, rotated_pairs, split_heads
from dlc_frontend_onnx.converters.base import MICROSOFT, Call, converter
from dlc_frontend_onnx.converters.nn import scaled
from dlc_frontend_onnx.shapes import int_elements


@dataclass(frozen=True)
class _Heads:
    """Queries [batch, heads, new, size], keys and values [batch, groups, new, size]."""

    q: Node
    k: Node
    v: Node

    @property
    def size(self) -> int:
        size = self.q.shape[3]
        assert isinstance(size, int)
        return size


def _heads(c: Call, query: Node, key: Node | None, value: Node | None) -> _Heads:
    heads, groups = c.integer("num_heads"), c.integer("kv_num_heads")
    hidden = query.shape[-1]
    if len(query.shape) != 3 or heads < 1 or groups < 1 or heads % groups or not isinstance(hidden, int):
        raise c.error(f"{heads} heads of queries {query.type} that share {groups} of keys")
    if key is None or value is None:
        size = hidden // (heads + 2 * groups)
        if size * (heads + 2 * groups) != hidden:
            raise c.error(f"{query.type} holds no {heads} heads of queries and {groups} of keys and values")
        parts = std.split(query, sizes=(heads * size, groups * size, groups * size), axis=-1)
        query, key, value = (get_item(parts, index) for index in range(3))
    elif hidden % heads or any(x.shape[-1] != hidden // heads * groups for x in (key, value)):
        raise c.error(f"{query.type}, {key.type} and {value.type} for {heads} heads that share {groups}")
    return _Heads(split_heads(query, heads), split_heads(key, groups), split_heads(value, groups))


def _cached(c: Call, past: Node | None, new: Node, begins: Node, total: Node) -> Node:
    """The cache after this step. The new rows of each sequence start at `begins`.

    A cache of the maximum length is updated in place; a shorter one grows.
    """
    if past is None or past.shape[2] == 0:
        return new
    steps, length = new.shape[2], past.shape[2]
    known = c.known(total)
    limit: Dim = length + steps
    if known is not None and known.size == 1:
        limit = dim(maximum(as_expr(length), as_expr(int_elements(known)[0])))
    more = dim(as_expr(limit) - as_expr(length))
    base = past
    if more != 0:
        zeros = std.full(shape=(*past.shape[:2], more, past.shape[3]), value=0.0, dtype=past.dtype)
        base = std.concat(past, zeros, axis=2)
    indices = std.add(std.reshape(begins, shape=(-1, 1)), std.arange(stop=steps, dtype="int64"))
    indices = std.unsqueeze(indices, axes=(1, 3))
    return std.scatter_elements(base, std.broadcast_to(indices, shape=tuple(new.shape)), new, axis=2)


def _rotated(c: Call, x: Node, indices: Node, cosines: Node, sines: Node) -> Node:
    """The first features of each head rotated by the angles of its position. The tables define how many
    features.
    """
    half, size = cosines.shape[1], x.shape[3]
    if not isinstance(half, int) or not isinstance(size, int) or 2 * half > size:
        raise c.error(f"tables of {cosines.type} for heads of size {size}")
    cos, sin = (std.unsqueeze(std.gather(table, indices), axes=(1,)) for table in (cosines, sines))
    interleaved = c.flag("rotary_interleaved")
    if 2 * half == size:
        return rotated_pairs(x, cos, sin, size, interleaved)
    parts = std.split(x, sizes=(2 * half, size - 2 * half), axis=-1)
    made = rotated_pairs(get_item(parts, 0), cos, sin, 2 * half, interleaved)
    return std.concat(made, get_item(parts, 1), axis=-1)


_PLAIN = {"sliding_window_cache": 0, "qk_output": 0}
_CACHES = ("k_quant_type", "v_quant_type")


@converter("GroupQueryAttention", 1, MICROSOFT)
def group_query_attention(
    c: Call,
    query: Node,
    key: Node | None,
    value: Node | None,
    past_key: Node | None,
    past_value: Node | None,
    seqlens: Node,
    total: Node,
    cosines: Node | None = None,
    sines: Node | None = None,
    positions: Node | None = None,
    bias: Node | None = None,
    sink: Node | None = None,
    k_scale: Node | None = None,
    v_scale: Node | None = None,
    q_norm: Node | None = None,
    k_norm: Node | None = None,
) -> Sequence[Node | None]:
    c.ignore("kv_cache_bit_width")
    for name, plain in _PLAIN.items():
        if c.integer(name, plain) != plain:
            raise c.unsupported(f"GroupQueryAttention with {name} = {c.integer(name)}")
    if k_scale is not None or v_scale is not None or any(c.text(n, "NONE") != "NONE" for n in _CACHES):
        raise c.unsupported("GroupQueryAttention with a quantized cache")
    parts = _heads(c, query, key, value)
    q, k, v, steps = parts.q, parts.k, parts.v, parts.q.shape[2]
    if q_norm is not None and k_norm is not None:
        eps = c.real("qk_norm_epsilon", 1e-6)
        q, k = std.rms_norm(q, q_norm, axis=-1, eps=eps), std.rms_norm(k, k_norm, axis=-1, eps=eps)
    c.ignore("qk_norm_epsilon")
    # The number of valid cache rows per sequence, minus 1. A prompt may be padded at its end.
    lengths = std.reshape(c.cast(seqlens, "int64"), shape=(-1,))
    one, zero = c.const(1, "int64"), c.const(0, "int64")
    own = std.sub(std.add(lengths, one), std.squeeze(c.dims_tensor((steps,)), axes=(0,)))
    begins = std.maximum(own, zero)
    rows = std.add(std.reshape(begins, shape=(-1, 1)), std.arange(stop=steps, dtype="int64"))
    if c.flag("do_rotary"):
        if cosines is None or sines is None:
            raise c.error("GroupQueryAttention with do_rotary lacks the tables of cosines and sines")
        indices = rows if positions is None else positions
        q, k = (_rotated(c, x, indices, cosines, sines) for x in (q, k))
    else:
        c.ignore("rotary_interleaved")
    if past_key is not None and past_value is not None:
        if not len(past_key.shape) == len(past_value.shape) == 4:
            raise c.error(f"caches of {past_key.type} and {past_value.type}")
        for have, wanted in zip(past_value.shape[:3], past_key.shape):
            c.equal(have, wanted, "the caches of keys and values are of one shape")
        whole = (*past_value.shape[:3], v.shape[3])
        past_value = c.fixed(past_value, whole, "heads in a cache are of the size of new ones")
    keys, values = (_cached(c, past, new, begins, total) for past, new in ((past_key, k), (past_value, v)))
    there = std.arange(stop=keys.shape[2], dtype="int64")
    here = std.unsqueeze(rows, axes=(1, 3))
    causal, window = c.flag("causal", True), c.integer("local_window_size", -1)
    if causal:
        seen = std.less_equal(there, here)
    else:
        seen = std.less_equal(there, std.reshape(lengths, shape=(-1, 1, 1, 1)))
    if window > 0:
        seen = std.logical_and(seen, std.greater(there, std.sub(here, c.const(window, "int64"))))
    scale = c.real("scale", 0.0) or 1 / math.sqrt(parts.size)
    cap, smooth = c.real("softcap", 0.0), c.flag("smooth_softmax") or sink is not None
    if cap or smooth or bias is not None:
        made = _expanded_attention(c, q, keys, values, seen, scale, cap, bias, sink, smooth=smooth)
    else:
        made = std.attention(q, keys, values, seen, scale=scale)
    return [joined(made), keys if c.uses_output(1) else None, values if c.uses_output(2) else None]


def _expanded_attention(
    c: Call,
    q: Node,
    k: Node,
    v: Node,
    seen: Node,
    scale: float,
    cap: float,
    bias: Node | None,
    sink: Node | None,
    *,
    smooth: bool,
) -> Node:
    """Attention as single operations, for score capping, a bias, or a sink: one more column of the softmax,
    without a key.
    """
    heads, groups = q.shape[1], k.shape[1]
    assert isinstance(heads, int)
    assert isinstance(groups, int)
    k, v = (std.repeat(x, repeats=heads // groups, axis=1) if heads > groups else x for x in (k, v))
    scores = scaled(c, std.matmul(q, k, transpose_b=True), scale)
    if cap:
        scores = scaled(c, std.tanh(scaled(c, scores, 1 / cap)), cap)
    if bias is not None:
        scores = std.add(scores, std.slice(bias, begins=(0,), ends=(scores.shape[3],), axes=(3,)))
    scores = std.where(seen, scores, c.const(float("-inf"), scores.dtype))
    if not smooth:
        return std.matmul(std.softmax(scores, axis=-1), v)
    extra = c.const(0, scores.dtype) if sink is None else std.reshape(sink, shape=(1, -1, 1, 1))
    sink_column = std.broadcast_to(extra, shape=(*scores.shape[:3], 1))
    weights = std.softmax(std.concat(sink_column, scores, axis=-1), axis=-1)
    kept = std.slice(weights, begins=(1,), ends=(scores.shape[3] + 1,), axes=(3,))
    return std.matmul(kept, v)


@converter("GemmaRotaryEmbedding", 1, MICROSOFT)
def gemma_rotary_embedding(
    c: Call, angles: Node, q: Node, q_half: Node, k: Node, k_half: Node
) -> Sequence[Node]:
    """Queries and keys rotated by angles [batch, length, size]; the inputs include them with exchanged
    halves.
    """
    cos, sin = (c.cast(std.unsqueeze(f(angles), axes=(1,)), q.dtype) for f in (std.cos, std.sin))
    return [std.add(std.mul(x, cos), std.mul(half, sin)) for x, half in ((q, q_half), (k, k_half))]
