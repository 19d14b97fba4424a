"""Attention (arXiv:1706.03762): softmax(q kᵀ scale + mask) v, a composite with its own reference.

Queries are [..., heads, n, d], keys [..., groups, m, d], values [..., groups, m, e]; the result is
[..., heads, n, e].  The number of heads is a multiple of the number of groups: heads / groups consecutive
heads share the keys and values of one group (arXiv:2305.13245).

A mask broadcasts to [..., heads, n, m].  A mask of bools selects the visible keys; other masks are added to
the scores.  With `causal`, the keys up to i + past are visible to query i.  Hidden keys have the score -inf.
If no key is visible to a query, its result is NaN, as for softmax.

The op has no lowering.  A node with a plan (`algorithms/attention`) is one kernel; other nodes are expanded
to GEMMs and a softmax in float32 or wider.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dlc_core.graph.node import Node, constant
from dlc_core.ir.expr import as_expr
from dlc_core.ir.types import Dim, TensorType, Type, dim
from dlc_core.op.declare import FLOATS, Attr, ErrorSample, NDArray, Sample, Tensor, op, tensor_types
from dlc_core.op.infer import (
    Attrs,
    broadcast_dims,
    broadcast_into,
    check_rank,
    common_dtype,
    fail,
    merge_dims,
    multiple_of,
    quotient,
)
from dlc_core.op.std.binary import ADD, LESS_EQUAL, MUL, WHERE
from dlc_core.op.std.creation import ARANGE
from dlc_core.op.std.product import MATMUL
from dlc_core.op.std.shape import RESHAPE
from dlc_core.op.std.softmaxes import SOFTMAX
from dlc_core.op.std.unary import CAST


def scale_of(attrs: Attrs, size: Dim) -> float:
    """The factor of the scores. `size` is the length of a query vector."""
    if attrs["scale"] is not None:
        return float(attrs["scale"])
    if not isinstance(size, int):
        raise fail(f"queries of size {size} have no default scale", "give the scale")
    return 1 / math.sqrt(size)


def _infer(types: Sequence[Type], attrs: Attrs) -> Type:
    q, k, v, *masks = tensor_types(types)
    for tensor, what in ((q, "the queries"), (k, "the keys"), (v, "the values")):
        check_rank(tensor, 3, None, what)
    if not q.ndim == k.ndim == v.ndim:
        raise fail(f"queries, keys and values have ranks {q.ndim}, {k.ndim} and {v.ndim}", "give equal ranks")
    common_dtype((q, k, v), FLOATS)
    merge_dims(q.shape[-1], k.shape[-1], "the sizes of queries and keys")
    merge_dims(k.shape[-2], v.shape[-2], "the numbers of keys and values")
    merge_dims(k.shape[-3], v.shape[-3], "the groups of keys and values")
    for own, other in zip(q.shape[:-3], k.shape[:-3], strict=True):
        merge_dims(own, other, "the batches of queries and keys")
    for own, other in zip(k.shape[:-3], v.shape[:-3], strict=True):
        merge_dims(own, other, "the batches of keys and values")
    if heads_per_group(q.shape, k.shape) is None:
        raise fail(f"{q.shape[-3]} heads do not share {k.shape[-3]} groups of keys")
    multiple_of(q.shape[-3], k.shape[-3], "the number of heads")
    scale_of(attrs, q.shape[-1])
    for mask in masks:
        if not mask.dtype.is_bool and mask.dtype is not q.dtype:
            raise fail(f"the mask has dtype {mask.dtype}", f"bool and {q.dtype} are possible")
        scores = (*q.shape[:-1], k.shape[-2])
        broadcast_into(mask.shape, scores, "the mask")
        broadcast_dims(mask.shape, scores)
    return TensorType((*q.shape[:-1], v.shape[-1]), q.dtype)


def heads_per_group(q: Sequence[Dim], k: Sequence[Dim]) -> Dim | None:
    """The number of heads that share a group of keys, from two shapes. None if the numbers do not divide."""
    heads, groups = q[-3], k[-3]
    return 1 if heads == groups else quotient([heads], [groups])


def _body(*args: Node, **attrs: Any) -> Node:
    """GEMMs and a softmax, in float32 or wider."""
    dtype = args[0].dtype
    if dtype.bits >= 32:
        return _products(*args, **attrs)
    wide = (arg if arg.dtype.is_bool else CAST.build(arg, to="float32") for arg in args)
    return CAST.build(_products(*wide, **attrs), to=dtype)


def _products(
    q: Node,
    k: Node,
    v: Node,
    mask: Node | None = None,
    *,
    scale: float | None,
    causal: bool,
    past: Dim,
) -> Node:
    factor = scale_of({"scale": scale}, q.shape[-1])
    shared = heads_per_group(q.shape, k.shape)
    assert shared is not None
    *batch, heads, n, d = q.shape
    groups, m = k.shape[-3], k.shape[-2]
    grouped = not isinstance(shared, int) or shared != 1
    if grouped:
        q = RESHAPE.build(q, shape=(*batch, groups, shared, n, d))
        k = RESHAPE.build(k, shape=(*batch, groups, 1, m, d))
        v = RESHAPE.build(v, shape=(*batch, groups, 1, m, v.shape[-1]))
    else:
        k = _of_shape(k, (*batch, heads, m, d))
        v = _of_shape(v, (*batch, heads, m, v.shape[-1]))
    scores = MUL.build(MATMUL.build(q, k, transpose_b=True), constant(factor, q.dtype))
    if grouped:
        scores = RESHAPE.build(scores, shape=(*batch, heads, n, m))
    hidden = constant(-math.inf, q.dtype)
    if mask is not None:
        dims = zip(mask.shape, (*batch, heads, n, m)[-len(mask.shape) :], strict=True)
        mask = _of_shape(mask, tuple(own if own == 1 else full for own, full in dims))
        scores = WHERE.build(mask, scores, hidden) if mask.dtype.is_bool else ADD.build(scores, mask)
    if causal:
        rows = RESHAPE.build(ARANGE.build(start=past, stop=_sum(past, n)), shape=(n, 1))
        visible = LESS_EQUAL.build(RESHAPE.build(ARANGE.build(stop=m), shape=(1, m)), rows)
        scores = WHERE.build(visible, scores, hidden)
    weights = SOFTMAX.build(scores, axis=-1)
    if grouped:
        weights = RESHAPE.build(weights, shape=(*batch, groups, shared, n, m))
    mixed = MATMUL.build(weights, v)
    return RESHAPE.build(mixed, shape=(*batch, heads, n, v.shape[-1])) if grouped else mixed


def _of_shape(x: Node, shape: tuple[Dim, ...]) -> Node:
    """The value with other dims that inference has proved equal."""
    return x if x.shape == shape else RESHAPE.build(x, shape=shape)


def _sum(a: Dim, b: Dim) -> Dim:
    return dim(as_expr(a) + as_expr(b))


def _reference(
    q: NDArray,
    k: NDArray,
    v: NDArray,
    mask: NDArray | None = None,
    *,
    scale: float | None,
    causal: bool,
    past: int,
) -> NDArray:
    shared = q.shape[-3] // max(1, k.shape[-3])
    keys, values = (np.repeat(x.astype(np.float64), shared, -3) for x in (k, v))
    scores = np.matmul(q.astype(np.float64), keys.swapaxes(-1, -2)) * scale_of({"scale": scale}, q.shape[-1])
    if mask is not None:
        scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask
    if causal:
        n, m = scores.shape[-2:]
        scores = np.where(np.arange(m) <= np.arange(n)[:, None] + past, scores, -np.inf)
    weights = np.exp(scores - np.max(scores, -1, keepdims=True, initial=-np.inf))
    return np.asarray(np.matmul(weights / np.sum(weights, -1, keepdims=True), values), q.dtype)


def _qkv(heads: int, n: int, m: int, d: int, e: int = 0, groups: int = 0) -> tuple[Tensor, ...]:
    lead = (2, groups or heads, m)
    return Tensor((2, heads, n, d)), Tensor((*lead, d)), Tensor((*lead, e or d))


def _hidden(n: int, m: int) -> NDArray:
    """A mask for the samples: 0 where a key is visible, and slightly more than the lowest number elsewhere.
    No key is visible to the first query.
    """
    visible = (np.arange(n)[:, None] + np.arange(m)) % 3 != 0
    visible[0] = False
    return np.where(visible, 0.0, -3e38)


_MASK = Tensor((3, 5), np.array([[1, 0, 1, 1, 0], [0, 0, 0, 0, 1], [1, 1, 1, 1, 1]], bool), "bool")
_VISIBLE = Tensor((3, 7), (np.arange(3)[:, None] + np.arange(7)) % 3 != 1, "bool")

ATTENTION = op(
    "attention",
    "softmax(q kᵀ scale + mask) v over the last two dims; heads share keys in order (arXiv:1706.03762)",
    ["query", "key", "value", "mask?"],
    [
        Attr("scale", "float", None, "factor of the scores; None: 1 / sqrt(size of a query)"),
        Attr("causal", "bool", False, "only the keys up to i + past are visible to query i"),
        Attr("past", "dim", 0, "the number of keys before that of the first query"),
    ],
    kind="contraction",
    infer=_infer,
    reference=_reference,
    compose=_body,
    samples=(
        Sample(_qkv(3, 4, 5, 8)),
        Sample(_qkv(2, 3, 5, 8, 4), {"scale": 0.5}),
        Sample((*_qkv(2, 3, 5, 4), Tensor((2, 1, 3, 5))), note="an added mask"),
        Sample((*_qkv(2, 3, 5, 4), _MASK), note="a mask of bools"),
        Sample((*_qkv(1, 3, 5, 4), Tensor((3, 5), _hidden(3, 5))), {}, ("float32", "float64", "bfloat16"),
               note="a row of equal large negative masks weighs all keys equally"),
        Sample(_qkv(2, 6, 6, 4), {"causal": True}),
        Sample(_qkv(2, 3, 7, 4), {"causal": True, "past": 4}, note="keys of earlier calls"),
        Sample(_qkv(2, 4, 3, 4), {"causal": True}, note="fewer keys than queries"),
        Sample(_qkv(6, 3, 5, 4, groups=2), note="three heads share keys"),
        Sample(_qkv(4, 1, 5, 4, groups=1), note="one query, all heads share keys"),
        Sample((*_qkv(4, 3, 7, 4, groups=2), Tensor((3, 7))), {"causal": True, "past": 2},
               note="shared keys, an added mask and a diagonal"),
        Sample((*_qkv(4, 3, 7, 4, groups=2), _VISIBLE), {"causal": True, "past": 2},
               note="shared keys, a mask of bools and a diagonal"),
        Sample((Tensor((2, 3, 8), "special"), Tensor((2, 4, 8)), Tensor((2, 4, 8))), note="no batch"),
    ),
    error_samples=(
        ErrorSample((*_qkv(2, 3, 5, 4)[:2], Tensor((2, 2, 4, 4))), {}, "numbers of keys and values"),
        ErrorSample((Tensor((2, 2, 3, 5)), *_qkv(2, 3, 5, 4)[1:]), {}, "sizes of queries and keys"),
        ErrorSample(_qkv(3, 3, 5, 4, groups=2), {}, "do not share"),
        ErrorSample((*_qkv(2, 3, 5, 4), Tensor((4, 5))), {}, "does not broadcast"),
        ErrorSample((*_qkv(2, 3, 5, 4), Tensor((2, 2, 2, 3, 5))), {}, "does not broadcast"),
        ErrorSample((*_qkv(2, 3, 5, 4), Tensor((3, 5), dtype="int32")), {}, "the mask has dtype"),
        ErrorSample((Tensor((3, 4)),) * 3, {}, "rank"),
        ErrorSample((Tensor((2, 3, 4)), Tensor((1, 2, 3, 4)), Tensor((1, 2, 3, 4))), {}, "ranks"),
    ),
)  # fmt: skip

OPS = (ATTENTION,)
