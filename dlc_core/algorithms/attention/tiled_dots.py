"""The lowering of attention by tiles whose products are dot products of narrow elements.

The stages are those of `tiled.py`, with operands in the layout that the instructions read: elements that one
instruction multiplies and adds are neighbours, a group of head elements for the scores, a group of keys for
the results.  Head sizes are padded with zeros to whole groups, features to whole vectors, keys to whole
panels; a key after the last one has the weight 0.  Maxima, weights and sums are computed in float32.  The
weights are rounded before their sum, so that the rounded weights of a query add up to 1.
"""

from __future__ import annotations

from dlc_core import te
from dlc_core.algorithms.attention.online import filled
from dlc_core.algorithms.attention.stages import Stages
from dlc_core.ir.dtype import DType
from dlc_core.ir.expr import Expr, cast_to, const, const_value, logical_and
from dlc_core.ir.types import TensorType, dim
from dlc_core.op.infer import ceil_div
from dlc_core.op.lower import narrow
from dlc_core.tir.intrinsics import if_then_else, intrinsic


def tiled_dots(
    type_: TensorType,
    stages: Stages,
    of: DType,
    group: int,
    lanes: int,
    q: te.Tensor,
    k: te.Tensor,
    v: te.Tensor,
) -> te.Tensor:
    """Attention by the stages of `tiled`, and those of packed queries and values.

    Operands have the dtype `of`.  An instruction multiplies and adds `group` elements for each of `lanes`
    accumulators; a panel has a multiple of as many keys.  The head sizes are known.
    """
    panel, wide = stages.panel, stages.wide
    lead, n, m, size = q.shape[:-2], q.shape[-2], k.shape[-2], int(const_value(q.shape[-1]) or 0)
    features = int(const_value(v.shape[-1]) or 0)
    panels, steps, columns = ceil_div(dim(m), panel), filled(size, group) // group, filled(features, lanes)
    depth, zero = len(lead), const(0, of)
    stage, own_group, needs_panel = stages.stage, stages.group, stages.needs_panel
    size_m = const_value(m)
    exact = size_m is not None and size_m % panel == 0

    def element(x: te.Tensor, point: tuple[Expr, ...], *inside: tuple[Expr, int | Expr, bool]) -> Expr:
        """An element of an operand, or 0 if an index is not below its limit; flags say which always are."""
        value = cast_to(of, x[point])
        tests = [index < limit for index, limit, always in inside if not always]
        return if_then_else(logical_and(*tests), value, zero) if tests else value

    def query(*i: Expr) -> Expr:
        return element(q, i, (i[-1], size, steps * group == size))

    def key(*i: Expr) -> Expr:
        *outer, p, x, at = i
        j, y = p * panel + at // group, x * group + at % group
        return element(k, (*outer, j, y), (j, m, exact), (y, size, steps * group == size))

    def value(*i: Expr) -> Expr:
        *outer, p, y, at = i
        j = p * panel + y * group + at % group
        e = at // group
        return element(v, (*outer, j, e), (j, m, exact), (e, features, columns == features))

    queries = stage("queries", (*lead, n, steps * group), query)
    keys = stage("keys", (*k.shape[:-2], panels, steps, panel * group), key)
    values = stage("values", (*v.shape[:-2], panels, panel // group, columns * group), value)
    x, j = te.reduce_axis(steps, "x"), te.reduce_axis(group, "j")

    def product(*i: Expr) -> te.tensor.Reduction:
        *outer, row, p, w = i
        left, right = (*outer, row, x.var * group + j.var), (*own_group(outer), p, x.var, w * group + j.var)
        return te.sum(cast_to(wide, queries[left]) * cast_to(wide, keys[right]), axis=[x, j])

    products = stage("products", (*lead, n, panels, panel), product)

    scores = stages.panel_scores(products, (*lead, n, m), exact)
    row_max = stages.over_keys("row_max", te.max, scores)

    def weight(*i: Expr) -> Expr:
        return narrow(intrinsic("exp", scores[i] - row_max[i[: depth + 1]]), of)

    weights = stage("weights", scores.shape, weight)
    denominator = stages.over_keys("denominator", te.sum, weights)
    a, y, b = te.reduce_axis(panels, "p"), te.reduce_axis(panel // group, "y"), te.reduce_axis(group, "j")

    def mix(*i: Expr) -> te.tensor.Reduction:
        *outer, row, e = i
        left = (*outer, row, a.var, y.var * group + b.var)
        right = (*own_group(outer), a.var, y.var, e * group + b.var)
        term = cast_to(wide, weights[left]) * cast_to(wide, values[right])
        return te.sum(term, axis=[a, y, b], where=needs_panel(row, a.var))

    weighted = stage("weighted", (*lead, n, v.shape[-1]), mix)
    return stage("result", type_.shape, lambda *i: narrow(weighted[i] / denominator[i[:-1]], type_.dtype))


__all__ = ["tiled_dots"]
