"""Parts of the lowering of attention (see `attentions`): masks, and the streamed form of the loops.

In the streamed form no stage stores a value per key.  One reduction of pairs computes the maxima and
denominators of queries (arXiv:1805.02867).  A second loop computes the scores again and weights the values.
All tiles of queries and panels of keys are whole: padding is 0 or masked.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dlc_core import te
from dlc_core.ir.dtype import DType
from dlc_core.ir.expr import Expr, cast_to, const, const_value, logical_and, maximum, select
from dlc_core.ir.types import Dim, TensorType, dim
from dlc_core.op.infer import ceil_div
from dlc_core.op.lower import at, narrow, widen
from dlc_core.tir.intrinsics import if_then_else, intrinsic

STAGE = "attention"
"""Annotation of the blocks of an attention: which stage each is."""
ROWS = "attention_rows"
"""Annotation of the same blocks: how many queries the loops are to take at a time."""

Point = Sequence[Expr]


@dataclass(frozen=True)
class Tiled:
    """How the loops of an attention run: so many queries and keys at a time."""

    rows: int
    panel: int
    heads: Dim
    """How many heads share keys and values."""
    wide: DType
    """The type of scores."""
    factor: Expr
    masks: tuple[te.Tensor, ...]
    causal: bool
    past: Expr

    def stage(
        self, name: str, shape: Sequence[Dim | Expr], body: Callable[..., Expr | te.tensor.Reduction]
    ) -> te.Tensor:
        """One of the stages, marked as such."""
        made: te.Tensor = te.compute(shape, body, f"{STAGE}_{name}", annotations=self.marks(name))
        return made

    def marks(self, name: str) -> dict[str, str | int]:
        return {STAGE: name, ROWS: self.rows}

    def group(self, outer: Point) -> tuple[Expr, ...]:
        """Where the keys and values of a head are."""
        return (*outer[:-1], outer[-1] if self.heads == 1 else outer[-1] // self.heads)

    def seen(self, row: Expr, p: Expr) -> Expr | None:
        """Whether a tile of queries needs a panel of keys (None: always); the first is always computed."""
        if not self.causal:
            return None
        rows = self.rows
        last = (row if rows == 1 else row // rows * rows + (rows - 1)) + self.past
        before = const_value(self.past)
        known: Expr = p * self.panel <= (maximum(last, 0) if before is None or before < 0 else last)
        return known

    def score(
        self, product: Expr, point: Point, shape: Sequence[Dim], n: Expr | None, m: Expr | None
    ) -> Expr:
        """The score of a query and a key, of `shape`; n and m where loops run over more of these."""
        *_, row, j = point
        value = product * self.factor
        inside = [] if m is None else [j < m]
        there = [*inside, *([] if n is None else [row < n])]
        for mask in self.masks:
            element = at(mask, point, shape)
            if there:
                element = if_then_else(logical_and(*there), element, const(0, mask.dtype))
            if mask.dtype.is_bool:
                inside.append(element)
            else:
                value = value + cast_to(self.wide, element)
        if self.causal:
            inside.append(j <= row + self.past)
        return select(logical_and(*inside), value, const(-math.inf, self.wide)) if inside else value


def _combined(x: Point, y: Point) -> tuple[Expr, Expr]:
    """The top of two parts' scores, and the sum of their weights relative to it."""
    top = maximum(x[0], y[0])

    def share(part: Point) -> Expr:
        # Where all scores are hidden, -inf, a factor would be NaN, also of those that later parts outdo.
        return part[1] * select(part[0] < top, intrinsic("exp", part[0] - top), const(1, top.dtype))

    return top, share(x) + share(y)


_ONLINE = te.comm_reducer(_combined, lambda top, total: (-math.inf, 0), "online")


def streamed(type_: TensorType, tiled: Tiled, q: te.Tensor, k: te.Tensor, v: te.Tensor) -> te.Tensor:
    """The stages, streamed: queries, keys, products, scores, top, weights, values, mixed, result."""
    lead, n, m, size = q.shape[:-2], q.shape[-2], k.shape[-2], q.shape[-1]
    panel, wide, zero = tiled.panel, tiled.wide, const(0, tiled.wide)
    panels = ceil_div(dim(m), panel)
    tall = ceil_div(dim(n), tiled.rows) * tiled.rows
    depth = len(lead)

    def query(*i: Expr) -> Expr:
        return if_then_else(i[-2] < n, widen(q[i]), zero)

    def key(*i: Expr) -> Expr:
        *outer, p, x, w = i
        j = p * panel + w
        place = (*outer, j, x)
        return if_then_else(j < m, widen(k[place]), zero)

    queries = tiled.stage("queries", (*lead, tall, size), query)
    keys = tiled.stage("keys", (*k.shape[:-2], panels, size, panel), key)
    x = te.reduce_axis(size, "x")

    def product(*i: Expr) -> te.tensor.Reduction:
        *outer, row, p, w = i
        left, right = (*outer, row, x.var), (*tiled.group(outer), p, x.var, w)
        return te.sum(queries[left] * keys[right], axis=x)

    products = tiled.stage("products", (*lead, tall, panels, panel), product)

    def score(*i: Expr) -> Expr:
        *point, p, w = i
        return tiled.score(products[i], (*point, p * panel + w), (*lead, n, m), n, m)

    scores = tiled.stage("scores", products.shape, score)
    p, w = te.reduce_axis(panels, "p"), te.reduce_axis(panel, "w")

    def pair(*i: Expr) -> te.tensor.Reduction:
        point = (*i, p.var, w.var)
        return _ONLINE((scores[point], const(1, wide)), [p, w], where=tiled.seen(i[-1], p.var))

    top, total = te.compute((*lead, tall), pair, f"{STAGE}_top", annotations=tiled.marks("top"))
    weights = tiled.stage(
        "weights", scores.shape, lambda *i: intrinsic("exp", scores[i] - top[i[: depth + 1]])
    )

    def value(*i: Expr) -> Expr:
        *outer, p, w, e = i
        j = p * panel + w
        place = (*outer, j, e)
        return if_then_else(j < m, widen(v[place]), zero)

    values = tiled.stage("values", (*v.shape[:-2], panels, panel, v.shape[-1]), value)
    a, b = te.reduce_axis(panels, "p"), te.reduce_axis(panel, "w")

    def mix(*i: Expr) -> te.tensor.Reduction:
        *outer, row, e = i
        left, right = (*outer, row, a.var, b.var), (*tiled.group(outer), a.var, b.var, e)
        return te.sum(weights[left] * values[right], axis=[a, b], where=tiled.seen(row, a.var))

    mixed = tiled.stage("mixed", (*lead, tall, v.shape[-1]), mix)
    return tiled.stage("result", type_.shape, lambda *i: narrow(mixed[i] / total[i[:-1]], type_.dtype))


__all__ = ["ROWS", "STAGE", "Tiled", "streamed"]
