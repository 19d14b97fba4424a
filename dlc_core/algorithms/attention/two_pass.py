"""The lowering of attention in two passes over the keys; no stage stores a value per key.

One reduction of pairs computes the maxima and denominators of queries (arXiv:1805.02867).  A second loop
computes the scores again and weights the values.  Tiles of queries and panels of keys are padded with zeros,
or masked.
"""

from __future__ import annotations

import math

from dlc_core import te
from dlc_core.algorithms.attention.stages import STAGE, Point, Stages
from dlc_core.ir.expr import Expr, const, maximum, select
from dlc_core.ir.types import TensorType, dim
from dlc_core.op.infer import ceil_div
from dlc_core.op.lower import narrow, widen
from dlc_core.tir.intrinsics import if_then_else, intrinsic


def _combined(x: Point, y: Point) -> tuple[Expr, Expr]:
    """Combine two parts: the maximum of their scores, and the sum of their weights relative to it."""
    row_max = maximum(x[0], y[0])

    def rescaled(part: Point) -> Expr:
        # If all scores are -inf, the factor exp(-inf + inf) would be NaN, so equal maxima have the factor 1.
        return part[1] * select(
            part[0] < row_max, intrinsic("exp", part[0] - row_max), const(1, row_max.dtype)
        )

    return row_max, rescaled(x) + rescaled(y)


_ONLINE = te.comm_reducer(_combined, lambda row_max, denominator: (-math.inf, 0), "online")


def two_pass(type_: TensorType, stages: Stages, q: te.Tensor, k: te.Tensor, v: te.Tensor) -> te.Tensor:
    """Attention by the stages queries, keys, products, scores, row_max, weights, values, weighted, result."""
    lead, n, m, size = q.shape[:-2], q.shape[-2], k.shape[-2], q.shape[-1]
    panel, wide, zero = stages.panel, stages.wide, const(0, stages.wide)
    panels = ceil_div(dim(m), panel)
    tall = ceil_div(dim(n), stages.rows) * stages.rows
    depth = len(lead)

    def query(*i: Expr) -> Expr:
        return if_then_else(i[-2] < n, widen(q[i]), zero)

    def key(*i: Expr) -> Expr:
        *outer, p, x, w = i
        j = p * panel + w
        index = (*outer, j, x)
        return if_then_else(j < m, widen(k[index]), zero)

    queries = stages.stage("queries", (*lead, tall, size), query)
    keys = stages.stage("keys", (*k.shape[:-2], panels, size, panel), key)
    x = te.reduce_axis(size, "x")

    def product(*i: Expr) -> te.tensor.Reduction:
        *outer, row, p, w = i
        left, right = (*outer, row, x.var), (*stages.group(outer), p, x.var, w)
        return te.sum(queries[left] * keys[right], axis=x)

    products = stages.stage("products", (*lead, tall, panels, panel), product)

    def score(*i: Expr) -> Expr:
        *point, p, w = i
        return stages.score(products[i], (*point, p * panel + w), (*lead, n, m), n, m)

    scores = stages.stage("scores", products.shape, score)
    p, w = te.reduce_axis(panels, "p"), te.reduce_axis(panel, "w")

    def pair(*i: Expr) -> te.tensor.Reduction:
        point = (*i, p.var, w.var)
        return _ONLINE((scores[point], const(1, wide)), [p, w], where=stages.needs_panel(i[-1], p.var))

    row_max, denominator = te.compute(
        (*lead, tall), pair, f"{STAGE}_row_max", annotations=stages.marks("row_max")
    )
    weights = stages.stage(
        "weights", scores.shape, lambda *i: intrinsic("exp", scores[i] - row_max[i[: depth + 1]])
    )

    def value(*i: Expr) -> Expr:
        *outer, p, w, e = i
        j = p * panel + w
        index = (*outer, j, e)
        return if_then_else(j < m, widen(v[index]), zero)

    values = stages.stage("values", (*v.shape[:-2], panels, panel, v.shape[-1]), value)
    a, b = te.reduce_axis(panels, "p"), te.reduce_axis(panel, "w")

    def mix(*i: Expr) -> te.tensor.Reduction:
        *outer, row, e = i
        left, right = (*outer, row, a.var, b.var), (*stages.group(outer), a.var, b.var, e)
        return te.sum(weights[left] * values[right], axis=[a, b], where=stages.needs_panel(row, a.var))

    weighted = stages.stage("weighted", (*lead, tall, v.shape[-1]), mix)
    return stages.stage(
        "result", type_.shape, lambda *i: narrow(weighted[i] / denominator[i[:-1]], type_.dtype)
    )


__all__ = ["two_pass"]
