"""Attention of one new token with a KV cache (com.microsoft)."""

from __future__ import annotations

from collections.abc import Sequence

from dlc_core.graph.node import Node, get_item
from dlc_core.op import std
from dlc_core.op.infer import simplify
from dlc_frontend_onnx.converters.attention import attend, head_scale, joined, mask_bias, with_bias
from dlc_frontend_onnx.converters.base import MICROSOFT, Call, converter


@converter("DecoderMaskedMultiHeadAttention", 1, MICROSOFT)
def decoder_masked_multi_head_attention(
    c: Call,
    query: Node,
    key: Node | None = None,
    value: Node | None = None,
    mask: Node | None = None,
    extra: Node | None = None,
    past_key: Node | None = None,
    past_value: Node | None = None,
    length: Node | None = None,
    beams: Node | None = None,
    origins: Node | None = None,
    bias: Node | None = None,
) -> Sequence[Node | None]:
    """Queries [batch, 1, hidden] attend to the cached keys and values and to their own.

    With `past_present_share_buffer` the cache has more rows than the valid `length`.
    """
    if origins is not None:
        raise c.unsupported(f"{c.node.op} with beam search")
    heads = c.integer("num_heads")
    shared = c.flag("past_present_share_buffer")
    c.ignore("output_qk")
    if key is None and value is None:
        if len(query.shape) != 3 or not isinstance(query.shape[2], int) or query.shape[2] % 3:
            raise c.error(f"queries, keys and values in {query.type}")
        parts = std.split(query, sizes=(query.shape[2] // 3,) * 3, axis=-1)
        query, key, value = (get_item(parts, index) for index in range(3))
    if key is None or value is None:
        raise c.error(f"{c.node.op} of keys without values")
    if len(key.shape) == 4:
        part = None if bias is None else std.slice(bias, begins=(0,), ends=(query.shape[2],), axes=(0,))
        q, k, v = *with_bias(c, [query], part, heads), key, value
    else:
        q, k, v = with_bias(c, [query, key, value], bias, heads)
    added = [] if extra is None else [extra]
    if past_key is not None and past_value is not None:
        if shared:
            if length is None:
                raise c.error("a shared cache without past_sequence_length")
            position = std.reshape(c.cast(length, "int64"), shape=())
            positions = std.arange(stop=past_key.shape[2], dtype="int64")
            own = std.unsqueeze(std.equal(positions, position), axes=(1,))
            k, v = std.where(own, k, past_key), std.where(own, v, past_value)
            low = c.const(float("-inf"), q.dtype)
            added.append(std.where(std.greater(positions, position), low, c.const(0, q.dtype)))
        else:
            k, v = std.concat(past_key, k, axis=2), std.concat(past_value, v, axis=2)
    added = [_fitted(c, part, k) for part in added]
    if mask is not None:
        fill = c.real("mask_filter_value", -10000.0)
        added.append(mask_bias(c, _fitted(c, mask, k), q.shape[0], k.shape[2], q.dtype, fill))
    c.ignore("mask_filter_value")
    made = attend(c, q, k, v, added, head_scale(c, q), causal=False)
    return [joined(made), k if c.uses_output(1) else None, v if c.uses_output(2) else None]


def _fitted(c: Call, x: Node, keys: Node) -> Node:
    """A mask or bias for the valid keys, extended to all rows of the cache."""
    missing = simplify(keys.shape[2] - x.shape[-1])
    if missing == 0 or x.shape[-1] == 1:
        return x
    if not isinstance(missing, int) or missing < 0:
        raise c.unsupported(
            f"{x.type} for keys and values {keys.type}", hint="pin the dims with shapes={...}"
        )
    return std.pad(x, pads=(*(0,) * (2 * len(x.shape) - 1), missing))
