"""The common parts of the lowerings of attention: stages, masks, and the panels that a tile needs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dlc_core import te
from dlc_core.ir.dtype import DType
from dlc_core.ir.expr import Expr, as_expr, cast_to, const, const_value, logical_and, maximum, select
from dlc_core.ir.types import Dim, TensorType, dim
from dlc_core.op.lower import broadcast_element, compute_type
from dlc_core.op.std.attentions import heads_per_group, scale_of
from dlc_core.support.record import record
from dlc_core.tir.intrinsics import if_then_else

STAGE = "attention"
"""The annotation of the blocks of an attention: the name of the stage."""

Point = Sequence[Expr]


@record(frozen=True)
class Stages:
    """The parameters that all stages of an attention share, and the parts of their formulas."""

    rows: int
    panel: int
    """Queries of a tile, and keys of a panel."""
    heads: Dim
    """The number of heads that share keys and values."""
    wide: DType
    """The type of scores."""
    factor: Expr
    masks: tuple[te.Tensor, ...]
    causal: bool
    past: Expr

    def stage(
        self, name: str, shape: Sequence[Dim | Expr], body: Callable[..., Expr | te.tensor.Reduction]
    ) -> te.Tensor:
        """A stage, annotated with its name."""
        made: te.Tensor = te.compute(shape, body, f"{STAGE}_{name}", annotations=self.marks(name))
        return made

    def marks(self, name: str) -> dict[str, str]:
        """The annotations of a stage's block."""
        return {STAGE: name}

    def over_keys(self, name: str, combine: Callable[..., te.tensor.Reduction], of: te.Tensor) -> te.Tensor:
        """A stage that reduces scores or weights [..., queries, panels, panel] over the keys."""
        *rows, panels, panel = of.shape
        p, w = te.reduce_axis(panels, "p"), te.reduce_axis(panel, "w")

        def body(*i: Expr) -> te.tensor.Reduction:
            point = (*i, p.var, w.var)
            return combine(cast_to(self.wide, of[point]), axis=[p, w], where=self.needs_panel(i[-1], p.var))

        return self.stage(name, rows, body)

    def group(self, outer: Point) -> tuple[Expr, ...]:
        """The batch indices of the keys and values of a head."""
        return (*outer[:-1], outer[-1] if self.heads == 1 else outer[-1] // self.heads)

    def needs_panel(self, row: Expr, p: Expr) -> Expr | None:
        """Whether a tile of queries needs a panel of keys (None: always); the first is always computed."""
        if not self.causal:
            return None
        rows = self.rows
        last = (row if rows == 1 else row // rows * rows + (rows - 1)) + self.past
        before = const_value(self.past)
        needed: Expr = p * self.panel <= (maximum(last, 0) if before is None or before < 0 else last)
        return needed

    def panel_scores(self, products: te.Tensor, shape: Sequence[Dim], exact: bool) -> te.Tensor:
        """The stage of the scores [..., queries, panels, panel] of products of queries and keys.

        `shape` is that of the scores of all keys, [..., queries, keys]. Unless the panels are `exact`, the
        last one has columns after the last key.
        """

        def body(*i: Expr) -> Expr:
            *point, p, w = i
            index = (*point, p * self.panel + w)
            return self.score(products[i], index, shape, None, None if exact else as_expr(shape[-1]))

        return self.stage("scores", products.shape, body)

    def score(
        self, product: Expr, point: Point, shape: Sequence[Dim], n: Expr | None, m: Expr | None
    ) -> Expr:
        """The score of a query and a key.

        `shape` is that of the scores.  `n` and `m` are the numbers of queries and keys if loops exceed these.
        """
        *_, row, j = point
        value = product * self.factor
        inside = [] if m is None else [j < m]
        in_bounds = [*inside, *([] if n is None else [row < n])]
        for mask in self.masks:
            element = broadcast_element(mask, point, shape)
            if in_bounds:
                element = if_then_else(logical_and(*in_bounds), element, const(0, mask.dtype))
            if mask.dtype.is_bool:
                inside.append(element)
            else:
                value = value + cast_to(self.wide, element)
        if self.causal:
            inside.append(j <= row + self.past)
        return select(logical_and(*inside), value, const(-math.inf, self.wide)) if inside else value


def stages_of(
    rows: int,
    panel: int,
    type_: TensorType,
    attrs: Mapping[str, Any],
    q: te.Tensor,
    k: te.Tensor,
    masks: Sequence[te.Tensor],
) -> Stages:
    """The stages of an attention with tiles of `rows` queries and panels of `panel` keys."""
    wide = compute_type(type_.dtype)
    shared = heads_per_group([dim(d) for d in q.shape], [dim(d) for d in k.shape])
    assert shared is not None
    factor = const(scale_of(attrs, dim(q.shape[-1])), wide)
    return Stages(rows, panel, shared, wide, factor, tuple(masks), attrs["causal"], as_expr(attrs["past"]))


__all__ = ["STAGE", "Point", "Stages", "stages_of"]
