"""Attention: kept whole in inference, and with its logarithms of sums in training."""

from __future__ import annotations

import math
from typing import Any

from dlc_core.graph.node import Node
from dlc_core.op import std
from dlc_core.op.infer import broadcast_dims
from dlc_frontend_torch.aten.results import is_used
from dlc_frontend_torch.call import Call
from dlc_frontend_torch.registry import aten


def _scale(c: Call, query: Node, scale: Any) -> float:
    if scale is not None:
        if not isinstance(scale, (int, float)):
            raise c.unsupported("a scale that depends on a symbolic size")
        return float(scale)
    return 1 / math.sqrt(c.number(query.shape[-1], "a head of a size"))


def _visible(c: Call, query: Node, key: Node) -> Node:
    """Which keys a causal mask shows to each query, [queries, keys]."""
    rows = std.reshape(std.arange(stop=query.shape[-2]), shape=(query.shape[-2], 1))
    return std.less_equal(std.reshape(std.arange(stop=key.shape[-2]), shape=(1, key.shape[-2])), rows)


def some_visible(c: Call, mask: Node) -> Node:
    """Whether a query sees any key, with the keys' dim as 1."""
    if mask.dtype.is_bool:
        return std.reduce_any(mask, axes=(-1,), keepdims=True)
    top = std.reduce_max(mask, axes=(-1,), keepdims=True)
    return std.not_equal(top, c.const(-math.inf, mask.dtype))


def _attention(
    c: Call, query: Node, key: Node, value: Node, mask: Node | None, causal: bool, scale: float
) -> Node:
    """Attention, whose result is 0 for queries that see no key."""
    masks = () if mask is None else (mask,)
    made = std.attention(query, key, value, *masks, scale=scale, causal=causal)
    if mask is None:
        return made
    return std.where(some_visible(c, mask), made, c.const(0, made.dtype))


@aten("scaled_dot_product_attention")
def scaled_dot_product_attention(
    c: Call, query: Node, key: Node, value: Node, attn_mask: Node | None = None, dropout_p: float = 0.0,
    is_causal: bool = False, *, scale: float | None = None, enable_gqa: bool = False,
) -> Node:  # fmt: skip
    if dropout_p != 0:
        raise c.unsupported("dropout of attention weights outside of training")
    factor = _scale(c, query, scale)
    rank = max(len(each.shape) for each in (query, key, value))
    parts = [std.reshape(each, shape=(*(1,) * (max(rank, 3) - len(each.shape)), *each.shape))
             for each in (query, key, value)]  # fmt: skip
    q, k, v = parts
    heads = 3 if enable_gqa else 2
    batch = broadcast_dims(*(each.shape[: len(each.shape) - heads] for each in parts))
    q, k, v = (c.broadcast(each, (*batch, *each.shape[len(each.shape) - heads :])) for each in parts)
    mask = attn_mask
    if mask is not None:
        if not mask.dtype.is_bool:
            mask = c.cast(mask, q.dtype)
        if len(mask.shape) < 2:
            mask = std.reshape(mask, shape=(*(1,) * (2 - len(mask.shape)), *mask.shape))
    made = _attention(c, q, k, v, mask, is_causal, factor)
    return c.reshape(made, c.shape)


def _scores(c: Call, query: Node, key: Node, mask: Node | None, causal: bool, scale: float) -> Node:
    """The masked scores of each query and key, in float32 or wider."""
    hidden = c.const(-math.inf, query.dtype)
    made = std.mul(std.matmul(query, key, transpose_b=True), c.const(scale, query.dtype))
    if mask is not None:
        made = (
            std.where(mask, made, hidden) if mask.dtype.is_bool else std.add(made, c.cast(mask, made.dtype))
        )
    return std.where(_visible(c, query, key), made, hidden) if causal else made


def _weights(c: Call, scores: Node, logsumexp: Node) -> Node:
    """The softmax of scores, from the logarithm of the sum of exponentials; 0 where no key is visible."""
    total = std.reshape(logsumexp, shape=(*logsumexp.shape, 1))
    empty = std.equal(total, c.const(-math.inf, total.dtype))
    shift = std.where(empty, c.const(0, total.dtype), total)
    return std.exp(std.sub(scores, c.cast(shift, scores.dtype)))


def softmax_parts(c: Call, scores: Node) -> tuple[Node, Node, Node]:
    """The exponentials of the scores of each query, their sum and the largest score. For queries that see no
    key the exponentials are 0, and the sum counts as 1.
    """
    top = std.reduce_max(scores, axes=(-1,), keepdims=True)
    empty = std.equal(top, c.const(-math.inf, top.dtype))
    # Differences from the largest score are precise where their exponentials are large.
    exponentials = std.exp(std.sub(scores, std.where(empty, c.const(0, top.dtype), top)))
    total = std.reduce_sum(exponentials, axes=(-1,), keepdims=True)
    divisor = std.where(empty, c.const(1, total.dtype), total)
    return exponentials, divisor, top


def _wide(c: Call, x: Node) -> Node:
    return c.cast(x, "float32") if x.dtype.bits < 32 else x


@aten("_scaled_dot_product_flash_attention_for_cpu")
def flash_attention(
    c: Call, query: Node, key: Node, value: Node, dropout_p: float = 0.0, is_causal: bool = False, *,
    attn_mask: Node | None = None, scale: float | None = None,
) -> tuple[Node, Node | None]:  # fmt: skip
    """The result and, if the gradient needs it, the logarithm of the sum of exponentials of each query."""
    if dropout_p != 0:
        raise c.unsupported("dropout of attention weights")
    factor = _scale(c, query, scale)
    if not is_used(c, 1):
        mask = attn_mask
        if mask is not None and not mask.dtype.is_bool:
            mask = c.cast(mask, query.dtype)
        return _attention(c, query, key, value, mask, is_causal, factor), None
    q, k, v = (_wide(c, each) for each in (query, key, value))
    scores = _scores(c, q, k, attn_mask, is_causal, factor)
    exponentials, divisor, top = softmax_parts(c, scores)
    made = std.div(std.matmul(exponentials, v), divisor)
    logsumexp = std.squeeze(std.add(top, std.log(divisor)), axes=(-1,))
    return c.cast(made, query.dtype), c.cast(logsumexp, c.dtype_of(c.value[1]))


@aten("_scaled_dot_product_flash_attention_for_cpu_backward")
def flash_attention_backward(
    c: Call, grad: Node, query: Node, key: Node, value: Node, out: Node, logsumexp: Node, dropout_p: float,
    is_causal: bool, *, attn_mask: Node | None = None, scale: float | None = None,
) -> tuple[Node, Node, Node]:  # fmt: skip
    """The gradients of queries, keys and values (arXiv:2205.14135, appendix B.4)."""
    if dropout_p != 0:
        raise c.unsupported("dropout of attention weights")
    factor = _scale(c, query, scale)
    g, q, k, v, o = (_wide(c, each) for each in (grad, query, key, value, out))
    weights = _weights(c, _scores(c, q, k, attn_mask, is_causal, factor), logsumexp)
    of_value = std.matmul(weights, g, transpose_a=True)
    of_weights = std.matmul(g, v, transpose_b=True)
    shared = std.reduce_sum(std.mul(g, o), axes=(-1,), keepdims=True)
    of_scores = std.mul(std.mul(weights, std.sub(of_weights, shared)), c.const(factor, q.dtype))
    of_query = std.matmul(of_scores, k)
    of_key = std.matmul(of_scores, q, transpose_a=True)
    made = (of_query, of_key, of_value)
    return tuple(c.cast(each, query.dtype) for each in made)  # type: ignore[return-value]
