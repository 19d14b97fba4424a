"""Flex attention: attention whose scores a function of Python changes, and whose mask another one computes.

Masks, and biases that are added to the scores, become operands of `std.attention`. Other functions are
applied to stored scores.

As in eager mode `mask_mod` alone says which keys are visible. The lists of blocks of a BlockMask, which say
where a kernel may skip work, are not read.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce
from typing import Any

import torch

from dlc_core.algorithms.attention.masks import diagonal
from dlc_core.graph.node import Node
from dlc_core.ir.types import Dim
from dlc_core.op import std
from dlc_core.op.std.attentions import heads_per_group
from dlc_frontend_torch.aten.attention import softmax_parts, some_visible
from dlc_frontend_torch.aten.flex_functions import Change, mask
from dlc_frontend_torch.aten.results import is_used
from dlc_frontend_torch.call import Call
from dlc_frontend_torch.registry import converter


@converter("higher_order.flex_attention")
def flex_attention(
    c: Call, query: Node, key: Node, value: Node, score_mod: Any, block_mask: Sequence[Any], scale: float,
    kernel_options: Any = None, score_buffers: Sequence[Any] = (), mask_buffers: Sequence[Any] = (),
) -> tuple[Node | None, ...]:  # fmt: skip
    """The result, the logarithms to base 2 of the sums of exponentials, and in newer versions of torch the
    largest scores divided by log(2). The latter two are made only if the graph reads them.
    """
    del kernel_options
    if not isinstance(scale, (int, float)):
        raise c.unsupported("a scale that depends on a symbolic size")
    working = torch.float64 if c.value[0].dtype is torch.float64 else torch.float32
    key, value = (c.broadcast(each, (query.shape[0], *each.shape[1:])) for each in (key, value))
    visible = mask(c, block_mask[-1], mask_buffers)
    change = Change(c, score_mod, score_buffers, working)
    further = c.value[1:]
    if change.is_simple and not any(is_used(c, 1 + index) for index in range(len(further))):
        shown = [*change.shown, *(() if visible is None else (visible,))]
        made = _whole(c, (query, key, value), change.bias, shown, float(scale))
        return (made, *(None for _ in further))
    q, k = (c.cast(each, c.to_dtype(working)) for each in (query, key))
    scores = change.applied(std.mul(_products(q, k), c.const(scale, q.dtype)))
    if visible is not None:
        scores = std.where(visible, scores, c.const(-math.inf, scores.dtype))
    exponentials, total, top = softmax_parts(c, scores)
    made = _mixed(std.div(exponentials, total), c.cast(value, scores.dtype))
    to_base_2 = c.const(1 / math.log(2), scores.dtype)
    lines = (std.add(top, std.log(total)), top)
    numbers = (std.squeeze(std.mul(line, to_base_2), axes=(-1,)) for line in lines)
    results = (c.cast(line, c.dtype_of(want)) for line, want in zip(numbers, further))
    return (c.cast(made, query.dtype), *results)


def _whole(c: Call, operands: Sequence[Node], bias: Node | None, shown: Sequence[Node], scale: float) -> Node:
    """Attention as one operator. The result is 0 for queries that see no key."""
    query, key, value = operands
    wanted = query.dtype
    if bias is not None and wanted.bits < 32:  # a bias counts in float32
        query, key, value = (c.cast(each, "float32") for each in operands)
    scores = (*query.shape[:3], key.shape[2])
    past = None
    for each in shown:
        past = _past(c, each, scores) if past is None else past
    rest = [each for each in shown if past is None or _past(c, each, scores) != past]
    added = None if bias is None else c.cast(bias, query.dtype)
    operand, full = (_combined(c, conditions, added) for conditions in (rest, shown))
    given = () if operand is None else (operand,)
    made = std.attention(query, key, value, *given, scale=scale, causal=past is not None, past=past or 0)
    if full is not None and (operand is not None or past is None):
        made = std.where(some_visible(c, full), made, c.const(0, made.dtype))
    return c.cast(made, wanted)


def _combined(c: Call, conditions: Sequence[Node], bias: Node | None) -> Node | None:
    """Conditions and a bias as one mask."""
    if not conditions:
        return bias
    visible = reduce(std.logical_and, conditions)
    return visible if bias is None else std.where(visible, bias, c.const(-math.inf, bias.dtype))


def _past(c: Call, visible: Node, scores: Sequence[Dim]) -> int | None:
    """The p of a mask by which each query i sees the keys up to i + p, and so the first key; else None."""
    while visible.op is std.broadcast_to.decl and len(visible.args[0].shape) >= 2:
        visible = visible.args[0]
    if tuple(visible.shape[-2:]) != tuple(scores[-2:]):
        return None
    chosen = std.where(visible, c.const(0, "float32"), c.const(-math.inf, "float32"))
    found = diagonal(chosen, chosen)
    return found[0] if found is not None and isinstance(found[0], int) and found[0] >= 0 else None


def _products(query: Node, key: Node) -> Node:
    """The products of queries and keys; consecutive heads share the keys of a group."""
    batch, heads, count, size = query.shape
    groups = key.shape[1]
    if heads == groups:
        return std.matmul(query, key, transpose_b=True)
    rows = std.reshape(query, shape=(batch, groups, heads_per_group(query.shape, key.shape), count, size))
    made = std.matmul(rows, std.unsqueeze(key, axes=(2,)), transpose_b=True)
    return std.reshape(made, shape=(batch, heads, count, key.shape[2]))


def _mixed(weights: Node, value: Node) -> Node:
    """The weighted sums of values; consecutive heads share the values of a group."""
    batch, heads, count, keys = weights.shape
    groups = value.shape[1]
    if heads == groups:
        return std.matmul(weights, value)
    shared = heads_per_group(weights.shape, value.shape)
    rows = std.reshape(weights, shape=(batch, groups, shared, count, keys))
    made = std.matmul(rows, std.unsqueeze(value, axes=(2,)))
    return std.reshape(made, shape=(batch, heads, count, value.shape[-1]))
