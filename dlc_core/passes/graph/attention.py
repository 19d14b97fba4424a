"""attention: recognise attention that a model writes as single operations, and choose how its loops run.

Law: results stay within tolerance.

    matmul(softmax(matmul(q, k, transpose_b=True) * scale + mask), v)
    =>
    attention(q, k, v, mask, scale=scale)

The scale may stand at the queries, at the keys, or be a divisor.  A mask is added, or a condition chooses
between scores and a number below all of them.  One that hides exactly the keys behind a diagonal becomes
`causal`: a constant, or a comparison of positions.  Keys and values that are repeated for several heads are
taken as they were before.

What the scores of hidden keys would do if they were not finite is not kept: their weight is 0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import isfinite, isinf
from typing import ClassVar

import numpy as np

from dlc_core.decisions import Decision
from dlc_core.graph.node import Function, Node, const_array, constant, node, param, post_order, rewrite
from dlc_core.ir.dtype import DType
from dlc_core.ir.types import Dim, tensor_type
from dlc_core.op.std import BY_NAME as OPS
from dlc_core.passes.base import GraphPass, PassContext
from dlc_core.passes.graph.attention_masks import LOW, diagonal, is_zero
from dlc_core.passes.graph.mixed_precision import narrow_dtype
from dlc_core.rewrite import Match, Rule, match_op, number, var
from dlc_core.rewrite.rule import Example
from dlc_core.schedule.rules.cpu.register_tile import choose
from dlc_core.schedule.rules.gpu.attention import shape_for
from dlc_core.schedule.rules.gpu.attention_matrix import plan_for
from dlc_core.target.target import Description

ADD, MUL, DIV, WHERE, ARANGE = (OPS[name] for name in ("add", "mul", "div", "where", "arange"))
EQUAL, GREATER = OPS["equal"], OPS["greater"]
MATMUL, SOFTMAX, ATTENTION = (OPS[name] for name in ("matmul", "softmax", "attention"))
RESHAPE, TRANSPOSE, BROADCAST = (OPS[name] for name in ("reshape", "transpose", "broadcast_to"))
UNSQUEEZE, REPEAT, CAST = (OPS[name] for name in ("unsqueeze", "repeat", "cast"))

FORM = Decision(
    "attention.form",
    "Whether attention is one kernel, by panels of keys for a tile of queries or key by key for one query, "
    "or is expanded to products and a softmax; and queries of a tile and keys of a panel.",
    ("tiled", "one_query", "unfused"),
    has_values=True,
)
APART = (0, 0)
"""The tile of expanded attention."""
ROWS = (1, 2, 3, 4, 6)
"""Queries of a tile that may be forced."""

_FLOATS = ("float32", "float64")


@dataclass(frozen=True)
class _Scores:
    """The terms of attention scores: q kᵀ scale + mask, and the diagonal of a constant causal mask."""

    q: Node
    k: Node
    scale: float = 1.0
    mask: Node | None = None
    past: Dim | None = None
    hard: bool = True
    """Whether what is behind the diagonal has the score -inf, not only a low number."""


def _scores(value: Node) -> _Scores | None:
    """The parts of the scores, of which the mask must come last."""
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
        behind = diagonal(mask, value)
        if behind is not None and inner.past is None:
            return replace(inner, past=behind[0], hard=behind[1])
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
        again = k.op is TRANSPOSE and tuple(a % rank for a in k.attrs["axes"] or ()) == swapped
        k = k.args[0] if again else TRANSPOSE.build(k, axes=swapped)
    return _Scores(q, k, scale)


def _scaled(value: Node) -> tuple[Node, float] | None:
    """A product with a number, or a quotient, as its value and the factor."""
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
    """`where(seen, scores, low)` as a mask: bools where what is hidden is -inf, else a number to add."""
    seen, scores, other = chosen.args
    array = const_array(other)
    if array is None or array.size != 1 or not float(array.reshape(-1)[0]) <= LOW:
        return None
    low = float(array.reshape(-1)[0])
    if len(seen.shape) > len(scores.shape):
        return None
    if isinf(low):
        return seen
    return WHERE.build(seen, constant(0.0, scores.dtype), constant(low, scores.dtype))


def _own(value: Node) -> Node:
    """Keys or values before they were repeated for several heads."""
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
        own.shape[:-2] != root.shape[:-2] for own in (q, k, v)
    ):
        return None
    k, v = _own(k), _own(v)
    if k.shape[-3] != v.shape[-3]:
        return None
    if found.past is not None and found.mask is not None and not found.hard:
        # A query whose keys are all hidden by the mask sees alike those behind the diagonal.
        return None
    masks = [] if found.mask is None else [found.mask]
    causal, past = found.past is not None, 0 if found.past is None else found.past
    mixed = ATTENTION.build(q, k, v, *masks, scale=found.scale, causal=causal, past=past)
    if "dead" not in match:
        return mixed
    dead = match["dead"]
    known = const_array(dead)
    if known is not None and not np.any(known):
        return mixed
    if len(dead.shape) < 1 or dead.shape[-1] != 1 or len(dead.shape) > rank:
        return None
    return WHERE.build(dead, constant(0.0, mixed.dtype), mixed)


# Examples


def _qkv(dtype: str) -> tuple[Node, Node, Node]:
    shape = {"q": (2, 2, 3, 4), "k": (2, 2, 5, 4), "v": (2, 2, 5, 6)}
    q, k, v = (param(name, tensor_type(size, dtype)) for name, size in shape.items())
    return q, k, v


def _number(value: Node) -> Node:
    """The value, 0 in place of NaN: hidden scores are taken for numbers."""
    return WHERE.build(EQUAL.build(value, value), value, constant(0.0, value.dtype))


def _mixed(scores: Node, v: Node) -> Node:
    return MATMUL.build(SOFTMAX.build(scores, axis=-1), v)


def _plain(dtype: str) -> Node:
    q, k, v = _qkv(dtype)
    keys = TRANSPOSE.build(k, axes=(0, 1, 3, 2))
    return _mixed(DIV.build(MATMUL.build(q, keys), constant(2.0, dtype)), v)


def _with_mask(dtype: str) -> Node:
    q, k, v = _qkv(dtype)
    mask = param("mask", tensor_type((2, 1, 1, 5), dtype))
    scores = MATMUL.build(MUL.build(q, constant(0.25, dtype)), k, transpose_b=True)
    return _mixed(ADD.build(mask, MUL.build(scores, constant(2.0, dtype))), v)


def _chosen(low: float) -> Example:
    def example(dtype: str) -> Node:
        q, k, v = _qkv(dtype)
        seen = param("seen", tensor_type((3, 5), "bool"))
        scores = MATMUL.build(_number(q), _number(k), transpose_b=True)
        return _mixed(WHERE.build(seen, scores, constant(low, dtype)), v)

    return example


def _causal(added: bool) -> Example:
    def example(dtype: str) -> Node:
        q, k, v = _qkv(dtype)
        seen = np.arange(5) <= np.arange(3)[:, None] + 2
        scores = MATMUL.build(_number(q), _number(k), transpose_b=True)
        low = constant(-3e38, dtype)
        if added:
            return _mixed(ADD.build(scores, constant(np.where(seen, 0, -3e38), dtype)), v)
        return _mixed(WHERE.build(constant(seen, "bool"), scores, low), v)

    return example


def _by_position(dtype: str) -> Node:
    q, k, v = _qkv(dtype)
    keys = RESHAPE.build(ARANGE.build(start=0, stop=5), shape=(1, 5))
    queries = UNSQUEEZE.build(ARANGE.build(start=3, stop=6), axes=(1,))
    scores = MATMUL.build(_number(q), _number(k), transpose_b=True)
    return _mixed(WHERE.build(GREATER.build(queries, keys), scores, constant(-np.inf, dtype)), v)


def _repeated(dtype: str) -> Node:
    q = param("q", tensor_type((2, 6, 3, 4), dtype))
    k, v = (param(name, tensor_type((2, 2, 5, 4), dtype)) for name in ("k", "v"))
    wide = BROADCAST.build(UNSQUEEZE.build(k, axes=(2,)), shape=(2, 2, 3, 5, 4))
    keys = RESHAPE.build(wide, shape=(2, 6, 5, 4))
    return _mixed(MATMUL.build(q, keys, transpose_b=True), REPEAT.build(v, repeats=3, axis=1))


def _zeroed(dtype: str) -> Node:
    q, k, v = _qkv(dtype)
    seen = constant(np.arange(15).reshape(3, 5) % 7 > 4, "bool")
    scores = MATMUL.build(_number(q), _number(k), transpose_b=True)
    weights = SOFTMAX.build(WHERE.build(seen, scores, constant(-np.inf, dtype)), axis=-1)
    dead = constant(np.array([[True], [False], [False]]), "bool")
    return MATMUL.build(WHERE.build(dead, constant(0.0, dtype), weights), _number(v))


_WEIGHTS = match_op(SOFTMAX, var("scores"), capture="weights")

RULES: tuple[Rule, ...] = (
    Rule(
        "attention_spelt",
        match_op(MATMUL, _WEIGHTS, var("v"), transpose_a=False, transpose_b=False),
        _attention,
        approximate=True,
        doc="softmax of scaled and masked products with keys, times values, is attention",
        examples=(
            _plain,
            _with_mask,
            _chosen(-np.inf),
            _chosen(-3e38),
            _causal(True),
            _causal(False),
            _by_position,
            _repeated,
        ),
        dtypes=_FLOATS,
    ),
    Rule(
        "attention_zeroed",
        match_op(
            MATMUL,
            match_op(WHERE, var("dead"), number(0.0), _WEIGHTS),
            var("v"),
            transpose_a=False,
            transpose_b=False,
        ),
        _attention,
        approximate=True,
        doc="weights that are zero for queries which see nothing give zeros: for numbers, as results do",
        examples=(_zeroed,),
        dtypes=_FLOATS,
    ),
)


@dataclass(frozen=True)
class Attention(GraphPass):
    """Recognise attention, and choose its tiles for the machine's vectors or its groups of threads.

    On a machine with thread axes, attention is expanded to its body if shared memory has no room for a tile
    or there are few queries. Schedule rules then treat its GEMMs.
    """

    name: ClassVar[str] = "attention"
    min_level: ClassVar[int] = 2
    exact: ClassVar[bool] = False

    def run_function(self, function: Function, context: PassContext) -> Function:
        if context.target is None:
            return function
        machine = context.target.describe()
        if machine.thread_axes and machine.lanes(32) > 1:
            return self._rewritten(function, lambda old, new: _spelt_out(new))
        narrow = narrow_dtype(context)
        used = Counter(arg for n in post_order(function.body) for arg in dict.fromkeys(n.args))
        used.update(function.results)

        def visit(old: Node, new: Node) -> Node | None:
            if old.op is not MATMUL:
                return None
            weights = old.args[0]
            chain = [weights, weights.args[-1], *weights.args[-1].args[:1]] if weights.args else [weights]
            if any(used[part] > 1 for part in chain[: 3 if weights.op is WHERE else 2]):
                return None
            for rule in RULES:
                found = rule.apply(new)
                if found is not None:
                    told = context.config.get("rule_counts")
                    if isinstance(told, Counter):
                        told[rule.name] += 1
                    return found
            return None

        def formed(old: Node, new: Node) -> Node | None:
            return _streamed(new, machine, narrow) if machine.thread_axes else _tiled(new, machine)

        return self._rewritten(self._rewritten(function, visit), formed)

    def _rewritten(self, function: Function, visit: Callable[[Node, Node], Node | None]) -> Function:
        def one(old: Node, args: tuple[Node, ...]) -> Node | None:
            if old.op is not ATTENTION and old.op is not MATMUL:
                return None
            return visit(old, old if args == old.args else node(old.op, args, old.attrs, old.type))

        body = rewrite(function.body, one)
        return function if body is function.body else function.with_body(body)


def _spelt_out(value: Node) -> Node | None:
    """The body of attention, in float32 at least."""
    if value.op is not ATTENTION:
        return None
    narrow = value.dtype.bits < 32
    args = [CAST.build(arg, to="float32") if narrow and not arg.dtype.is_bool else arg for arg in value.args]
    body = ATTENTION.expand(args, value.attrs)
    return CAST.build(body, to=value.dtype) if narrow else body


def _streamed(value: Node, machine: Description, narrow: DType) -> Node | None:
    """Attention of groups of threads, or its body where these have no place for a tile.

    That of float32 is made of `narrow` values, where units for these make it; but not with a mask that is
    added, which may be below all of them.
    """
    if value.op is not ATTENTION:
        return None
    (rows, features), size = value.shape[-2:], value.args[0].shape[-1]
    known = isinstance(features, int) and isinstance(size, int) and value.dtype.bits <= 32
    queries, keys = (n if isinstance(n, int) else None for n in (rows, value.args[1].shape[-2]))
    added = any(not mask.dtype.is_bool for mask in value.args[3:])
    of = narrow if value.dtype.bits == 32 and not added else value.dtype
    plan = plan_for(of.name, queries, keys, size, features, machine) if known else None
    if plan is not None:
        made = _formed(_narrowed(value, of), tile=(plan.rows, plan.panel), lanes=plan.lanes)
        return made if made.dtype is value.dtype else CAST.build(made, to=value.dtype)
    shape = shape_for(queries, size, features, machine) if known else None
    if shape is None:
        return _spelt_out(value)
    return _formed(value, tile=(shape.rows, shape.panel), streamed=True)


def _narrowed(value: Node, to: DType) -> Node:
    """Attention of values of a type."""
    if value.dtype is to:
        return value

    def cast(arg: Node) -> Node:
        # Behind what moves values a cast would be a kernel; where these are made it is not.
        if arg.op is RESHAPE or arg.op is TRANSPOSE:
            return node(arg.op, (cast(arg.args[0]),), arg.attrs, tensor_type(arg.shape, to))
        return CAST.build(arg, to=to)

    args = [arg if arg.dtype.is_bool else cast(arg) for arg in value.args]
    return ATTENTION.build(*args, **value.attrs)


def _formed(value: Node, **form: object) -> Node:
    """Attention with another form of its loops."""
    return ATTENTION.build(*value.args, **{**value.attrs, "streamed": False, "lanes": (), **form})


def _tiled(value: Node, machine: Description) -> Node | None:
    """Attention with tiles of queries whose results fill the registers, and keys of one vector."""
    if value.op is not ATTENTION:
        return None
    rows, size = value.shape[-2:]
    lanes = machine.lanes(32)
    if value.dtype.bits > 32 or lanes < 2:
        # The rule for it makes vectors of float32.
        return _spelt_out(value)
    if rows == 1:
        tile = (1, 1)
    elif isinstance(rows, int):
        columns = size if isinstance(size, int) else None
        tile = (choose(rows, columns, lanes, machine.usable_registers, rates=machine.rates).rows, lanes)
    else:
        # A power of two: numbers of tokens often are multiples of it.
        most = choose(None, 2 * lanes, lanes, machine.usable_registers).rows
        tile = (1 << (most.bit_length() - 1), lanes)

    def candidates() -> list[tuple[int, int]]:
        few = [each for each in ROWS if not isinstance(rows, int) or each <= rows]
        return [APART, tile, *((1, 1) for _ in range(rows == 1)), *((each, lanes) for each in few)]

    chosen = FORM.pick(
        tile,
        candidates,
        lambda one: "unfused" if one == APART else "one_query" if one == (1, 1) else "tiled",
        lambda one: "" if one == APART else "{}x{}".format(*one),
        where=[arg.shape for arg in value.args],
    )
    return _spelt_out(value) if chosen == APART else _formed(value, tile=chosen)
