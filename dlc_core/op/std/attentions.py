"""Attention (arXiv:1706.03762): softmax(q kᵀ scale + mask) v, a composite with reference and lowering of its
own.

Queries are [..., heads, n, d], keys [..., groups, m, d], values [..., groups, m, e]; the result is
[..., heads, n, e].  The number of heads is a multiple of that of groups: so many heads in order share the
keys and values of one group (arXiv:2305.13245).

A mask broadcasts to [..., heads, n, m].  One of bools says what is seen, any other is added to the scores.
With `causal`, query i sees the keys up to i + past.  What is not seen has the score -inf: a query that sees
nothing gives NaN, as softmax does.

The lowering divides by the sum of the weights last, once for each element of the result.  Its attribute
`tile` changes the form of the loops, not the result: keys come in panels of `tile[1]`, the last one filled up
with scores of -inf, and with `causal` the panels that are hidden from all of `tile[0]` queries are left out.
So do `streamed` and `lanes`: see `attention_stages` and `attention_online`, which rounds weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from dlc_core import te
from dlc_core.graph.node import Node, constant
from dlc_core.ir.expr import Expr, as_expr, const, const_value, logical_and
from dlc_core.ir.types import Dim, TensorType, Type, dim
from dlc_core.op.declare import FLOATS, Attr, ErrorSample, NDArray, Sample, Tensor, op, tensor_types
from dlc_core.op.infer import (
    Attrs,
    broadcast_dims,
    broadcast_into,
    ceil_div,
    check_rank,
    common_dtype,
    fail,
    merge_dims,
    multiple_of,
    quotient,
)
from dlc_core.op.lower import compute_type, narrow, widen
from dlc_core.op.std.attention_online import online
from dlc_core.op.std.attention_stages import Tiled, streamed
from dlc_core.op.std.binary import ADD, LESS_EQUAL, MUL, WHERE
from dlc_core.op.std.creation import ARANGE
from dlc_core.op.std.product import MATMUL
from dlc_core.op.std.shape import RESHAPE
from dlc_core.op.std.softmaxes import SOFTMAX
from dlc_core.tir.intrinsics import if_then_else, intrinsic


def _scale(attrs: Attrs, size: Dim) -> float:
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
    if _shared(q.shape, k.shape) is None:
        raise fail(f"{q.shape[-3]} heads do not share {k.shape[-3]} groups of keys")
    multiple_of(q.shape[-3], k.shape[-3], "the number of heads")
    _scale(attrs, q.shape[-1])
    if len(attrs["tile"]) != 2 or any(size < 1 for size in attrs["tile"]):
        raise fail(f"the tile is {attrs['tile']}", "two sizes of at least 1 are needed")
    for mask in masks:
        if not mask.dtype.is_bool and mask.dtype is not q.dtype:
            raise fail(f"the mask has dtype {mask.dtype}", f"bool and {q.dtype} are possible")
        scores = (*q.shape[:-1], k.shape[-2])
        broadcast_into(mask.shape, scores, "the mask")
        broadcast_dims(mask.shape, scores)
    return TensorType((*q.shape[:-1], v.shape[-1]), q.dtype)


def _shared(q: Sequence[Dim], k: Sequence[Dim]) -> Dim | None:
    """How many heads share a group of keys."""
    heads, groups = q[-3], k[-3]
    return 1 if heads == groups else quotient([heads], [groups])


def _attention(
    q: Node,
    k: Node,
    v: Node,
    mask: Node | None = None,
    *,
    scale: float | None,
    causal: bool,
    past: Dim,
    tile: tuple[int, int],
    streamed: bool,
    lanes: tuple[int, ...],
) -> Node:
    factor = _scale({"scale": scale}, q.shape[-1])
    shared = _shared(q.shape, k.shape)
    assert shared is not None
    *batch, heads, n, d = q.shape
    groups, m = k.shape[-3], k.shape[-2]
    grouped = not isinstance(shared, int) or shared != 1
    if grouped:
        q = RESHAPE.build(q, shape=(*batch, groups, shared, n, d))
        k = RESHAPE.build(k, shape=(*batch, groups, 1, m, d))
        v = RESHAPE.build(v, shape=(*batch, groups, 1, m, v.shape[-1]))
    scores = MUL.build(MATMUL.build(q, k, transpose_b=True), constant(factor, q.dtype))
    if grouped:
        scores = RESHAPE.build(scores, shape=(*batch, heads, n, m))
    hidden = constant(-math.inf, q.dtype)
    if mask is not None:
        scores = WHERE.build(mask, scores, hidden) if mask.dtype.is_bool else ADD.build(scores, mask)
    if causal:
        rows = RESHAPE.build(ARANGE.build(start=past, stop=_sum(past, n)), shape=(n, 1))
        seen = LESS_EQUAL.build(RESHAPE.build(ARANGE.build(stop=m), shape=(1, m)), rows)
        scores = WHERE.build(seen, scores, hidden)
    weights = SOFTMAX.build(scores, axis=-1)
    if grouped:
        weights = RESHAPE.build(weights, shape=(*batch, groups, shared, n, m))
    mixed = MATMUL.build(weights, v)
    return RESHAPE.build(mixed, shape=(*batch, heads, n, v.shape[-1])) if grouped else mixed


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
    tile: tuple[int, int],
    streamed: bool,
    lanes: tuple[int, ...],
) -> NDArray:
    shared = q.shape[-3] // max(1, k.shape[-3])
    keys, values = (np.repeat(x.astype(np.float64), shared, -3) for x in (k, v))
    scores = np.matmul(q.astype(np.float64), keys.swapaxes(-1, -2)) * _scale({"scale": scale}, q.shape[-1])
    if mask is not None:
        scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask
    if causal:
        n, m = scores.shape[-2:]
        scores = np.where(np.arange(m) <= np.arange(n)[:, None] + past, scores, -np.inf)
    weights = np.exp(scores - np.max(scores, -1, keepdims=True, initial=-np.inf))
    return np.asarray(np.matmul(weights / np.sum(weights, -1, keepdims=True), values), q.dtype)


def _lower(
    type_: TensorType, attrs: Attrs, q: te.Tensor, k: te.Tensor, v: te.Tensor, *masks: te.Tensor
) -> te.Tensor:
    rows, panel = attrs["tile"]
    wide = compute_type(type_.dtype)
    lead, n, m = q.shape[:-2], q.shape[-2], k.shape[-2]
    shared = _shared([dim(d) for d in q.shape], [dim(d) for d in k.shape])
    assert shared is not None
    size = q.shape[-1]
    factor = const(_scale(attrs, dim(size)), wide)
    tiled = Tiled(rows, panel, shared, wide, factor, masks, attrs["causal"], as_expr(attrs["past"]))
    if attrs["lanes"]:
        return online(type_, tiled, attrs["lanes"], q, k, v)
    if attrs["streamed"]:
        return streamed(type_, tiled, q, k, v)
    panels = ceil_div(dim(m), panel)
    size_m = const_value(m)
    whole = panel == 1 or (size_m is not None and size_m % panel == 0)
    depth = len(lead)
    stage, group, seen = tiled.stage, tiled.group, tiled.seen

    def over_keys(name: str, combine: Callable[..., te.tensor.Reduction], of: te.Tensor) -> te.Tensor:
        p, w = te.reduce_axis(panels, "p"), te.reduce_axis(panel, "w")

        def body(*i: Expr) -> te.tensor.Reduction:
            point = (*i, p.var, w.var)
            return combine(of[point], axis=[p, w], where=seen(i[-1], p.var))

        return stage(name, (*lead, n), body)

    def key(*i: Expr) -> Expr:
        *outer, p, x, w = i
        j = p * panel + w
        point = (*outer, j, x)
        value = widen(k[point])
        return value if whole else if_then_else(j < m, value, const(0, wide))

    keys = stage("keys", (*k.shape[:-2], panels, size, panel), key)
    x = te.reduce_axis(size, "x")

    def product(*i: Expr) -> te.tensor.Reduction:
        *outer, row, p, w = i
        left, right = (*outer, row, x.var), (*group(outer), p, x.var, w)
        return te.sum(widen(q[left]) * keys[right], axis=x)

    products = stage("products", (*lead, n, panels, panel), product)

    def score(*i: Expr) -> Expr:
        *point, p, w = i
        place = (*point, p * panel + w)
        return tiled.score(products[i], place, (*lead, n, m), None, None if whole else m)

    scores = stage("scores", products.shape, score)
    top = over_keys("top", te.max, scores)
    weights = stage("weights", scores.shape, lambda *i: intrinsic("exp", scores[i] - top[i[: depth + 1]]))
    total = over_keys("total", te.sum, weights)

    def mix(*i: Expr) -> te.tensor.Reduction:
        *outer, row, e = i
        if attrs["causal"]:
            p, w = te.reduce_axis(panels, "p"), te.reduce_axis(panel, "w")
            axes, panel_of, lane, y = [p, w], p.var, w.var, p.var * panel + w.var
        else:
            key = te.reduce_axis(m, "y")
            axes, panel_of, lane, y = [key], key.var // panel, key.var % panel, key.var
        left, right = (*outer, row, panel_of, lane), (*group(outer), y, e)
        value, needed = widen(v[right]), seen(row, panel_of)
        if needed is not None and not whole:
            value, needed = if_then_else(y < m, value, const(0, wide)), logical_and(needed, y < m)
        return te.sum(weights[left] * value, axis=axes, where=needed)

    mixed = stage("mixed", type_.shape, mix)
    return stage("result", type_.shape, lambda *i: narrow(mixed[i] / total[i[:-1]], type_.dtype))


def _qkv(heads: int, n: int, m: int, d: int, e: int = 0, groups: int = 0) -> tuple[Tensor, ...]:
    lead = (2, groups or heads, m)
    return Tensor((2, heads, n, d)), Tensor((*lead, d)), Tensor((*lead, e or d))


def _hidden(n: int, m: int) -> NDArray:
    """0 where a key is seen, a little more than the lowest number elsewhere; the first query sees nothing."""
    seen = (np.arange(n)[:, None] + np.arange(m)) % 3 != 0
    seen[0] = False
    return np.where(seen, 0.0, -3e38)


_MASK = Tensor((3, 5), np.array([[1, 0, 1, 1, 0], [0, 0, 0, 0, 1], [1, 1, 1, 1, 1]], bool), "bool")

ATTENTION = op(
    "attention",
    "softmax(q kᵀ scale + mask) v over the last two dims; heads share keys in order (arXiv:1706.03762)",
    ["query", "key", "value", "mask?"],
    [
        Attr("scale", "float", None, "factor of the scores; None: 1 / sqrt(size of a query)"),
        Attr("causal", "bool", False, "query i sees the keys up to i + past only"),
        Attr("past", "dim", 0, "keys before that of the first query"),
        Attr("tile", "ints", (1, 1), "queries and keys that the loops take at a time; changes no result"),
        Attr("streamed", "bool", False, "whether scores are made twice and kept nowhere; changes no result"),
        Attr("lanes", "ints", (), "lanes of one loop over keys, and neighbouring keys of each"),
    ],
    kind="contraction",
    infer=_infer,
    reference=_reference,
    lower=_lower,
    compose=_attention,
    samples=(
        Sample(_qkv(3, 4, 5, 8)),
        Sample(_qkv(2, 3, 5, 8, 4), {"scale": 0.5, "tile": (2, 4)}),
        Sample((*_qkv(2, 3, 5, 4), Tensor((2, 1, 3, 5))), {"tile": (1, 2)}, note="an added mask"),
        Sample((*_qkv(2, 3, 5, 4), _MASK), {"tile": (2, 5)}, note="a mask of bools"),
        Sample((*_qkv(1, 3, 5, 4), Tensor((3, 5), _hidden(3, 5))), {}, ("float32", "float64", "bfloat16"),
               note="a query from which all keys are hidden by a number sees all alike"),
        Sample(_qkv(2, 6, 6, 4), {"causal": True, "tile": (4, 2)}),
        Sample(_qkv(2, 3, 7, 4), {"causal": True, "past": 4, "tile": (2, 4)}, note="keys of earlier calls"),
        Sample(_qkv(2, 4, 3, 4), {"causal": True, "tile": (2, 2)}, note="fewer keys than queries"),
        Sample(_qkv(6, 3, 5, 4, groups=2), {"tile": (3, 2)}, note="three heads share keys"),
        Sample(_qkv(4, 1, 5, 4, groups=1), note="one query, all heads share keys"),
        Sample((*_qkv(4, 3, 7, 4, groups=2), Tensor((3, 7))), {"causal": True, "past": 2, "tile": (2, 4),
               "streamed": True}, note="streamed"),
        Sample((*_qkv(4, 3, 7, 4, groups=2), Tensor((3, 7))), {"causal": True, "past": 2, "tile": (2, 4),
               "lanes": (2, 1)}, note="in one loop"),
        Sample((Tensor((2, 3, 8), "special"), Tensor((2, 4, 8)), Tensor((2, 4, 8))), note="no batch"),
    ),
    error_samples=(
        ErrorSample((*_qkv(2, 3, 5, 4)[:2], Tensor((2, 2, 4, 4))), {}, "numbers of keys and values"),
        ErrorSample((Tensor((2, 2, 3, 5)), *_qkv(2, 3, 5, 4)[1:]), {}, "sizes of queries and keys"),
        ErrorSample(_qkv(3, 3, 5, 4, groups=2), {}, "do not share"),
        ErrorSample((*_qkv(2, 3, 5, 4), Tensor((4, 5))), {}, "does not broadcast"),
        ErrorSample((*_qkv(2, 3, 5, 4), Tensor((2, 2, 2, 3, 5))), {}, "does not broadcast"),
        ErrorSample((*_qkv(2, 3, 5, 4), Tensor((3, 5), dtype="int32")), {}, "the mask has dtype"),
        ErrorSample(_qkv(2, 3, 5, 4), {"tile": (0, 1)}, "at least 1"),
        ErrorSample((Tensor((3, 4)),) * 3, {}, "rank"),
        ErrorSample((Tensor((2, 3, 4)), Tensor((1, 2, 3, 4)), Tensor((1, 2, 3, 4))), {}, "ranks"),
    ),
)  # fmt: skip

OPS = (ATTENTION,)
