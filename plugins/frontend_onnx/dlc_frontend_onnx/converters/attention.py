"""Attention and rotary embedding of the domain com.microsoft."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dlc_core.graph.node import Node, get_item
from dlc_core.ir.types import Dim
from dlc_core.op import std
from dlc_frontend_onnx.converters.base import MICROSOFT, Call, converter
from dlc_frontend_onnx.converters.nn import product_of, scaled


def split_heads(x: Node, heads: int) -> Node:
    """[batch, length, hidden] as [batch, heads, length, hidden / heads]."""
    batch, length, hidden = x.shape
    assert isinstance(hidden, int)
    split = std.reshape(x, shape=(batch, length, heads, hidden // heads))
    return std.transpose(split, axes=(0, 2, 1, 3))


def joined(x: Node) -> Node:
    """The inverse of `split_heads`."""
    batch, heads, length, size = x.shape
    assert isinstance(heads, int)
    assert isinstance(size, int)
    return std.reshape(std.transpose(x, axes=(0, 2, 1, 3)), shape=(batch, length, heads * size))


def attend(c: Call, q: Node, k: Node, v: Node, bias: Sequence[Node], scale: float, *, causal: bool) -> Node:
    """softmax(q k' scale + bias) v, for [batch, heads, length, size]."""
    scores = scaled(c, std.matmul(q, k, transpose_b=True), scale)
    for part in bias:
        scores = std.add(scores, part)
    if causal:
        rows, columns = scores.shape[-2], scores.shape[-1]
        ones = std.full(shape=(rows, columns), value=1.0, dtype="bool")
        visible = std.trilu(ones, upper=False, k=columns - rows)
        scores = std.where(visible, scores, c.const(float("-inf"), scores.dtype))
    return std.matmul(std.softmax(scores, axis=-1), v)


def mask_bias(c: Call, mask: Node, batch: Dim, keys: Dim, dtype: object, fill: float) -> Node:
    """A mask of zeros and ones as a bias of the scores."""
    if len(mask.shape) == 1:
        limit = std.reshape(std.slice(mask, begins=(0,), ends=(batch,), axes=(0,)), shape=(batch, 1))
        seen = std.less(std.arange(stop=keys, dtype=mask.dtype), limit)
    else:
        seen = std.not_equal(mask, c.const(0, mask.dtype))
    axes = {2: (1, 2), 3: (1,), 4: ()}[len(seen.shape)]
    placed = std.unsqueeze(seen, axes=axes) if axes else seen
    zero, low = c.const(0, str(dtype)), c.const(fill, str(dtype))
    return std.where(placed, zero, low)


@converter("Attention", 1, MICROSOFT)
def attention(
    c: Call,
    x: Node,
    weights: Node,
    bias: Node | None = None,
    mask: Node | None = None,
    past: Node | None = None,
    extra: Node | None = None,
) -> Sequence[Node | None]:
    if len(x.shape) != 3 or len(weights.shape) != 2 or not isinstance(weights.shape[1], int):
        raise c.error(f"Attention of {x.type} with weights {weights.type}")
    whole = weights.shape[1]
    sizes = tuple(c.integers("qkv_hidden_sizes", None) or (whole // 3,) * 3)
    total = product_of(x, weights)
    return self_attention(c, total if bias is None else std.add(total, bias), sizes, mask, past, extra)


def self_attention(
    c: Call, total: Node, sizes: Sequence[int], mask: Node | None, past: Node | None, extra: Node | None
) -> Sequence[Node | None]:
    """Attention of concatenated queries, keys and values [batch, length, sizes]."""
    heads = c.integer("num_heads")
    if c.flag("do_rotary") or c.flag("past_present_share_buffer"):
        raise c.unsupported(f"{c.node.op} with rotary embedding or a shared cache")
    if len(sizes) != 3 or sum(sizes) != total.shape[-1] or any(size % heads for size in sizes):
        raise c.error(f"{total.type} does not split into {sizes} of {heads} heads")
    parts = std.split(total, sizes=tuple(sizes), axis=-1)
    q, k, v = (split_heads(get_item(parts, index), heads) for index in range(3))
    present = None
    if past is not None:
        old = std.split(past, sizes=(1, 1), axis=0)
        k = std.concat(std.squeeze(get_item(old, 0), axes=(0,)), k, axis=2)
        v = std.concat(std.squeeze(get_item(old, 1), axes=(0,)), v, axis=2)
    if c.uses_output(1):
        present = std.stack(k, v, axis=0)
    fill = c.real("mask_filter_value", -10000.0)
    added = [] if extra is None else [extra]
    if mask is not None:
        added.append(mask_bias(c, mask, q.shape[0], k.shape[2], q.dtype, fill))
    made = attend(c, q, k, v, added, head_scale(c, q), causal=c.flag("unidirectional"))
    return [joined(made), present]


def head_scale(c: Call, q: Node) -> float:
    """The attribute `scale`, by default 1 / sqrt(size of a head)."""
    given: float = c.real("scale", 0.0)
    size = q.shape[-1]
    if given:
        return given
    if not isinstance(size, int):
        raise c.unsupported(f"heads of size {size}")
    return 1 / math.sqrt(size)


def _three(c: Call, query: Node, key: Node | None, value: Node | None, bias: Node | None) -> list[Node]:
    """Queries, keys and values as [batch, heads, length, size], from separate or packed inputs."""
    heads = c.integer("num_heads")
    packed = query if key is None else key
    if len(packed.shape) == 5 and value is None:
        # The layout is [batch, length, heads, fields, elements].
        count = 3 if key is None else 2
        fields = std.split(packed, sizes=(1,) * count, axis=3)
        parts = [std.squeeze(get_item(fields, index), axes=(3,)) for index in range(count)]
        rows = [query] if key is not None else []
        folded = [std.reshape(part, shape=(*part.shape[:2], _width(c, part))) for part in parts]
        return with_bias(c, [*rows, *folded], bias, heads)
    if key is None or value is None or len(query.shape) != 3:
        raise c.unsupported(f"MultiHeadAttention of queries {query.type} alone")
    if len(key.shape) == 4 and len(value.shape) == 4:
        if bias is not None:
            bias = std.slice(bias, begins=(0,), ends=(query.shape[2],), axes=(0,))
        return [*with_bias(c, [query], bias, heads), key, value]
    return with_bias(c, [query, key, value], bias, heads)


def _width(c: Call, part: Node) -> int:
    heads, size = part.shape[2:]
    if not isinstance(heads, int) or not isinstance(size, int):
        raise c.unsupported(f"heads of {part.type}", hint="pin the dims with shapes={...}")
    return heads * size


def with_bias(c: Call, parts: list[Node], bias: Node | None, heads: int) -> list[Node]:
    """Parts [batch, length, hidden] plus their parts of the bias, split into heads."""
    hidden = [part.shape[-1] for part in parts]
    if any(len(part.shape) != 3 for part in parts) or not all(
        isinstance(size, int) and size % heads == 0 for size in hidden
    ):
        raise c.error(f"{', '.join(str(part.type) for part in parts)} do not split into {heads} heads")
    if bias is not None:
        pieces = std.split(bias, sizes=tuple(hidden), axis=0)
        parts = [std.add(part, get_item(pieces, index)) for index, part in enumerate(parts)]
    return [split_heads(part, heads) for part in parts]


@converter("MultiHeadAttention", 1, MICROSOFT)
def multi_head_attention(
    c: Call,
    query: Node,
    key: Node | None = None,
    value: Node | None = None,
    bias: Node | None = None,
    mask: Node | None = None,
    extra: Node | None = None,
    past_key: Node | None = None,
    past_value: Node | None = None,
) -> Sequence[Node | None]:
    q, k, v = _three(c, query, key, value, bias)
    if past_key is not None and past_value is not None:
        k, v = std.concat(past_key, k, axis=2), std.concat(past_value, v, axis=2)
    added = [] if extra is None else [extra]
    if mask is not None:
        fill = c.real("mask_filter_value", -10000.0)
        added.append(mask_bias(c, mask, q.shape[0], k.shape[2], q.dtype, fill))
    c.ignore("mask_filter_value")
    made = attend(c, q, k, v, added, head_scale(c, q), causal=c.flag("unidirectional"))
    return [joined(made), k if c.uses_output(1) else None, v if c.uses_output(2) else None]


@converter("RotaryEmbedding", 1, MICROSOFT)
def rotary_embedding(c: Call, x: Node, positions: Node, cosines: Node, sines: Node) -> Node:
    """Pairs of features rotated by an angle that depends on the position."""
    c.ignore("is_packed_batching", "scale")
    heads = c.integer("num_heads", 0)
    rotary = c.integer("rotary_embedding_dim", 0)
    interleaved = c.flag("interleaved")
    folded = len(x.shape) == 3
    if folded:
        size = rotary if rotary and not heads else None
        width = x.shape[2]
        half = cosines.shape[1]
        if not isinstance(width, int) or not isinstance(half, int):
            raise c.unsupported(f"a rotary embedding of {x.type}", hint="pin the dims with shapes={...}")
        count = heads or width // (size or 2 * half)
        x = split_heads(x, count)
    length, size = x.shape[2], x.shape[3]
    if not isinstance(size, int):
        raise c.unsupported(f"heads of size {size}")
    used = rotary or size
    parts = std.split(x, sizes=(used, size - used), axis=-1) if used < size else None
    moving = x if parts is None else get_item(parts, 0)
    if len(positions.shape) == 1:
        start = std.reshape(positions, shape=(-1, 1))
        indices = std.add(start, std.arange(stop=length, dtype="int64"))
    else:
        indices = positions
    cos, sin = (std.unsqueeze(std.gather(table, indices), axes=(1,)) for table in (cosines, sines))
    made = rotated_pairs(moving, cos, sin, used, interleaved)
    if parts is not None:
        made = std.concat(made, get_item(parts, 1), axis=-1)
    return joined(made) if folded else made


def rotated_pairs(x: Node, cos: Node, sin: Node, size: int, interleaved: bool) -> Node:
    half = size // 2
    if interleaved:
        pairs = std.reshape(x, shape=(*x.shape[:-1], half, 2))
        split = std.split(pairs, sizes=(1, 1), axis=-1)
        a, b = (std.squeeze(get_item(split, index), axes=(-1,)) for index in (0, 1))
    else:
        split = std.split(x, sizes=(half, half), axis=-1)
        a, b = get_item(split, 0), get_item(split, 1)
    real = std.sub(std.mul(a, cos), std.mul(b, sin))
    imaginary = std.add(std.mul(a, sin), std.mul(b, cos))
    if interleaved:
        return std.reshape(std.stack(real, imaginary, axis=-1), shape=tuple(x.shape))
    return std.concat(real, imaginary, axis=-1)
