"""The lowering of attention by tiles: all scores of a tile of queries, then their softmax.

Keys are computed in panels; the last one is padded with scores of -inf.  With `causal`, the panels that are
hidden from all queries of a tile are left out.  The division by the sum of the weights comes last, once for
each element of the result.
"""

from __future__ import annotations

from dlc_core import te
from dlc_core.algorithms.attention.stages import Stages
from dlc_core.ir.expr import Expr, const, const_value, logical_and
from dlc_core.ir.types import TensorType, dim
from dlc_core.op.infer import ceil_div
from dlc_core.op.lower import narrow, widen
from dlc_core.tir.intrinsics import if_then_else, intrinsic


def tiled(type_: TensorType, stages: Stages, q: te.Tensor, k: te.Tensor, v: te.Tensor) -> te.Tensor:
    """Attention by the stages keys, products, scores, row_max, weights, denominator, weighted, result."""
    panel, wide = stages.panel, stages.wide
    lead, n, m, size = q.shape[:-2], q.shape[-2], k.shape[-2], q.shape[-1]
    panels = ceil_div(dim(m), panel)
    size_m = const_value(m)
    exact = panel == 1 or (size_m is not None and size_m % panel == 0)
    depth = len(lead)
    stage, group, needs_panel = stages.stage, stages.group, stages.needs_panel

    def key(*i: Expr) -> Expr:
        *outer, p, x, w = i
        j = p * panel + w
        point = (*outer, j, x)
        value = widen(k[point])
        return value if exact else if_then_else(j < m, value, const(0, wide))

    keys = stage("keys", (*k.shape[:-2], panels, size, panel), key)
    x = te.reduce_axis(size, "x")

    def product(*i: Expr) -> te.tensor.Reduction:
        *outer, row, p, w = i
        left, right = (*outer, row, x.var), (*group(outer), p, x.var, w)
        return te.sum(widen(q[left]) * keys[right], axis=x)

    products = stage("products", (*lead, n, panels, panel), product)

    scores = stages.panel_scores(products, (*lead, n, m), exact)
    row_max = stages.over_keys("row_max", te.max, scores)
    weights = stage("weights", scores.shape, lambda *i: intrinsic("exp", scores[i] - row_max[i[: depth + 1]]))
    denominator = stages.over_keys("denominator", te.sum, weights)

    def mix(*i: Expr) -> te.tensor.Reduction:
        *outer, row, e = i
        panel_of: Expr
        lane: Expr
        y: Expr
        if stages.causal:
            p, w = te.reduce_axis(panels, "p"), te.reduce_axis(panel, "w")
            axes, panel_of, lane, y = [p, w], p.var, w.var, p.var * panel + w.var
        else:
            key = te.reduce_axis(m, "y")
            axes, panel_of, lane, y = [key], key.var // panel, key.var % panel, key.var
        left, right = (*outer, row, panel_of, lane), (*group(outer), y, e)
        value, visible = widen(v[right]), needs_panel(row, panel_of)
        if visible is not None and not exact:
            value, visible = if_then_else(y < m, value, const(0, wide)), logical_and(visible, y < m)
        return te.sum(weights[left] * value, axis=axes, where=visible)

    weighted = stage("weighted", type_.shape, mix)
    return stage("result", type_.shape, lambda *i: narrow(weighted[i] / denominator[i[:-1]], type_.dtype))


__all__ = ["tiled"]
