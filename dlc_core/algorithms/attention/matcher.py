"""Rewrite rules that recognise attention which a model writes as single operations.

    matmul(softmax(matmul(q, k, transpose_b=True) * scale + mask), v)
    =>
    attention(q, k, v, mask, scale=scale)

The scale may multiply the queries, the keys or the scores, or divide them.  A mask is added, or a condition
selects between scores and a number below all of them.  A mask that hides exactly the keys after a diagonal
becomes `causal`; it is a constant or a comparison of positions.  If keys and values are repeated for several
heads, the repetition is removed.

Hidden keys always have the weight 0, even if their scores are not finite.
"""

from __future__ import annotations

from dataclasses import replace
from math import isfinite, isinf

import numpy as np

from dlc_core.algorithms.attention.masks import LOW, diagonal, is_zero
from dlc_core.graph.node import Node, const_array, constant, param
from dlc_core.ir.types import Dim, tensor_type
from dlc_core.op.std import BY_NAME as OPS
from dlc_core.rewrite import Match, Rule, match_op, number, var
from dlc_core.rewrite.rule import Example
from dlc_core.support.record import record

ADD, MUL, DIV, WHERE, ARANGE = (OPS[name] for name in ("add", "mul", "div", "where", "arange"))
EQUAL, GREATER = OPS["equal"], OPS["greater"]
MATMUL, SOFTMAX, ATTENTION = (OPS[name] for name in ("matmul", "softmax", "attention"))
RESHAPE, TRANSPOSE, BROADCAST = (OPS[name] for name in ("reshape", "transpose", "broadcast_to"))
UNSQUEEZE, REPEAT = OPS["unsqueeze"], OPS["repeat"]

_FLOATS = ("float32", "float64")


@record(frozen=True)
class _Scores:
    """The parts of attention scores q kᵀ · scale + mask, and the diagonal of a causal mask."""

    q: Node
    k: Node
    scale: float = 1.0
    mask: Node | None = None
    past: Dim | None = None
    hard: bool = True
    """Whether keys after the diagonal have the score -inf, not only a low number."""


def _scores(value: Node) -> _Scores | None:
    """Match the parts of scores; the mask must be added last."""
    if value.op is MATMUL:
        return _product(value)
    if value.op in (MUL, DIV):
        found = _scaled(value)
        inner = None if found is None else _scores(found[0])
        if found is None or inner is None or inner.mask is not None or inner.past is not None:
            return None
        return replace(inner, scale=inner.scale * found[1])
    if value.op not in (ADD, WHERE):
        return None
    if value.op is ADD:
        options = [(value.args[0], value.args[1]), (value.args[1], value.args[0])]
    else:
        options = [(value.args[1], value)]
    for inside, mask in options:
        inner = _scores(inside) if inside.type == value.type else None
        if inner is None:
            continue
        if value.op is ADD and is_zero(mask):
            return inner
        masked_diagonal = diagonal(mask, value)
        if masked_diagonal is not None and inner.past is None:
            return replace(inner, past=masked_diagonal[0], hard=masked_diagonal[1])
        added = mask if value.op is ADD else _added(mask)
        if added is not None and inner.mask is None:
            return replace(inner, mask=added)
        return None
    return None


def _product(value: Node) -> _Scores | None:
    q, k = value.args
    if value.attrs["transpose_a"] or value.attrs["out_dtype"] not in (None, q.dtype) or len(q.shape) < 3:
        return None
    scale = 1.0
    for_k = _scaled(k)
    if for_k is not None:
        k, scale = for_k[0], scale * for_k[1]
    for_q = _scaled(q)
    if for_q is not None:
        q, scale = for_q[0], scale * for_q[1]
    if not value.attrs["transpose_b"]:
        rank = len(k.shape)
        swapped = (*range(rank - 2), rank - 1, rank - 2)
        transposed = k.op is TRANSPOSE and tuple(a % rank for a in k.attrs["axes"] or ()) == swapped
        k = k.args[0] if transposed else TRANSPOSE.build(k, axes=swapped)
    return _Scores(q, k, scale)


def _scaled(value: Node) -> tuple[Node, float] | None:
    """Match a product or quotient with a positive number as (value, factor)."""
    if value.op not in (MUL, DIV):
        return None
    for inside, other in (value.args, value.args[::-1])[: 2 if value.op is MUL else 1]:
        array = const_array(other)
        if array is None or array.size != 1 or inside.type != value.type:
            continue
        number = float(array.reshape(-1)[0])
        factor = number if value.op is MUL else 1 / number if number else 0.0
        return (inside, factor) if factor > 0 and isfinite(factor) else None
    return None


def _added(chosen: Node) -> Node | None:
    """The mask of `where(seen, scores, low)`: `seen` itself if low is -inf, else a mask that is added."""
    visible, scores, other = chosen.args
    array = const_array(other)
    if array is None or array.size != 1 or not float(array.reshape(-1)[0]) <= LOW:
        return None
    low = float(array.reshape(-1)[0])
    if len(visible.shape) > len(scores.shape):
        return None
    if isinf(low):
        return visible
    return WHERE.build(visible, constant(0.0, scores.dtype), constant(low, scores.dtype))


def _before_repetition(value: Node) -> Node:
    """Keys or values before their repetition for groups of heads."""
    if value.op is REPEAT and value.attrs["axis"] in (-3, len(value.shape) - 3):
        return value.args[0]
    if value.op is not RESHAPE or value.args[0].op is not BROADCAST:
        return value
    wide = value.args[0]
    narrow = wide.args[0]
    rank = len(value.shape)
    if len(wide.shape) != rank + 1 or len(narrow.shape) != rank + 1 or narrow.shape[-3] != 1:
        return value
    if any(wide.shape[i] != narrow.shape[i] for i in range(rank + 1) if i != rank - 2):
        return value
    groups = wide.shape[rank - 3]
    shape = (*value.shape[:-3], groups, *value.shape[-2:])
    kept = (*wide.shape[: rank - 2], *wide.shape[-2:])
    if shape != kept:
        return value
    return RESHAPE.build(narrow, shape=shape)


def _attention(match: Match) -> Node | None:
    root, weights, v = match.root, match["weights"], match["v"]
    rank = len(root.shape)
    if weights.attrs["axis"] not in (-1, rank - 1) or len(v.shape) != rank or rank < 3:
        return None
    found = _scores(match["scores"])
    if found is None or found.scale <= 0:
        return None
    q, k = found.q, found.k
    if not len(q.shape) == len(k.shape) == rank or any(
        operand.shape[:-2] != root.shape[:-2] for operand in (q, k, v)
    ):
        return None
    k, v = _before_repetition(k), _before_repetition(v)
    if k.shape[-3] != v.shape[-3]:
        return None
    if found.past is not None and found.mask is not None and not found.hard:
        # If an added mask hides all keys of a query, softmax is uniform and includes keys after the diagonal.
        return None
    masks = [] if found.mask is None else [found.mask]
    causal, past = found.past is not None, 0 if found.past is None else found.past
    attention = ATTENTION.build(q, k, v, *masks, scale=found.scale, causal=causal, past=past)
    if "empty_rows" not in match:
        return attention
    empty_rows = match["empty_rows"]
    array = const_array(empty_rows)
    if array is not None and not np.any(array):
        return attention
    if len(empty_rows.shape) < 1 or empty_rows.shape[-1] != 1 or len(empty_rows.shape) > rank:
        return None
    return WHERE.build(empty_rows, constant(0.0, attention.dtype), attention)


# Examples


def _qkv(dtype: str) -> tuple[Node, Node, Node]:
    shape = {"q": (2, 2, 3, 4), "k": (2, 2, 5, 4), "v": (2, 2, 5, 6)}
    q, k, v = (param(name, tensor_type(size, dtype)) for name, size in shape.items())
    return q, k, v


def _number(value: Node) -> Node:
    """The value with 0 instead of NaN, because the matcher assumes that hidden scores are numbers."""
    return WHERE.build(EQUAL.build(value, value), value, constant(0.0, value.dtype))


def _weighted(scores: Node, v: Node) -> Node:
    return MATMUL.build(SOFTMAX.build(scores, axis=-1), v)


def _divided(dtype: str) -> Node:
    q, k, v = _qkv(dtype)
    keys = TRANSPOSE.build(k, axes=(0, 1, 3, 2))
    return _weighted(DIV.build(MATMUL.build(q, keys), constant(2.0, dtype)), v)


def _with_mask(dtype: str) -> Node:
    q, k, v = _qkv(dtype)
    mask = param("mask", tensor_type((2, 1, 1, 5), dtype))
    scores = MATMUL.build(MUL.build(q, constant(0.25, dtype)), k, transpose_b=True)
    return _weighted(ADD.build(mask, MUL.build(scores, constant(2.0, dtype))), v)


def _selected(low: float) -> Example:
    def example(dtype: str) -> Node:
        q, k, v = _qkv(dtype)
        visible = param("visible", tensor_type((3, 5), "bool"))
        scores = MATMUL.build(_number(q), _number(k), transpose_b=True)
        return _weighted(WHERE.build(visible, scores, constant(low, dtype)), v)

    return example


def _causal(added: bool) -> Example:
    def example(dtype: str) -> Node:
        q, k, v = _qkv(dtype)
        visible = np.arange(5) <= np.arange(3)[:, None] + 2
        scores = MATMUL.build(_number(q), _number(k), transpose_b=True)
        low = constant(-3e38, dtype)
        if added:
            return _weighted(ADD.build(scores, constant(np.where(visible, 0, -3e38), dtype)), v)
        return _weighted(WHERE.build(constant(visible, "bool"), scores, low), v)

    return example


def _by_position(dtype: str) -> Node:
    q, k, v = _qkv(dtype)
    keys = RESHAPE.build(ARANGE.build(start=0, stop=5), shape=(1, 5))
    queries = UNSQUEEZE.build(ARANGE.build(start=3, stop=6), axes=(1,))
    scores = MATMUL.build(_number(q), _number(k), transpose_b=True)
    return _weighted(WHERE.build(GREATER.build(queries, keys), scores, constant(-np.inf, dtype)), v)


def _repeated(dtype: str) -> Node:
    q = param("q", tensor_type((2, 6, 3, 4), dtype))
    k, v = (param(name, tensor_type((2, 2, 5, 4), dtype)) for name in ("k", "v"))
    wide = BROADCAST.build(UNSQUEEZE.build(k, axes=(2,)), shape=(2, 2, 3, 5, 4))
    keys = RESHAPE.build(wide, shape=(2, 6, 5, 4))
    return _weighted(MATMUL.build(q, keys, transpose_b=True), REPEAT.build(v, repeats=3, axis=1))


def _with_zero_rows(dtype: str) -> Node:
    q, k, v = _qkv(dtype)
    visible = constant(np.arange(15).reshape(3, 5) % 7 > 4, "bool")
    scores = MATMUL.build(_number(q), _number(k), transpose_b=True)
    weights = SOFTMAX.build(WHERE.build(visible, scores, constant(-np.inf, dtype)), axis=-1)
    empty_rows = constant(np.array([[True], [False], [False]]), "bool")
    return MATMUL.build(WHERE.build(empty_rows, constant(0.0, dtype), weights), _number(v))


_WEIGHTS = match_op(SOFTMAX, var("scores"), capture="weights")

RULES: tuple[Rule, ...] = (
    Rule(
        "attention_from_ops",
        match_op(MATMUL, _WEIGHTS, var("v"), transpose_a=False, transpose_b=False),
        _attention,
        approximate=True,
        applied_by="attention",
        doc="softmax of scaled and masked products with keys, times values, is attention",
        examples=(
            _divided,
            _with_mask,
            _selected(-np.inf),
            _selected(-3e38),
            _causal(True),
            _causal(False),
            _by_position,
            _repeated,
        ),
        dtypes=_FLOATS,
    ),
    Rule(
        "attention_with_zero_rows",
        match_op(
            MATMUL,
            match_op(WHERE, var("empty_rows"), number(0.0), _WEIGHTS),
            var("v"),
            transpose_a=False,
            transpose_b=False,
        ),
        _attention,
        approximate=True,
        applied_by="attention",
        doc="zero weights of queries to which no key is visible give zero results, if the values are finite",
        examples=(_with_zero_rows,),
        dtypes=_FLOATS,
    ),
)

__all__ = ["RULES"]
