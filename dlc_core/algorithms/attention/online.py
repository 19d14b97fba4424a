"""Attention by online softmax (FlashAttention, arXiv:2205.14135).

    for head, tile of queries:
      for panel of keys that one of the queries attends to:
        product, score                          rows x keys
        lane_max, panel_max, new_max            maxima: of a lane's keys, of the panel's, of all so far
        factor                                  of the earlier sums
        weight, rounded                         exp(score - new_max), rounded to the type of the values
        denominator, weighted                   the earlier sums times the factor, plus the panel's
      divided                                   weighted / row_sum

A running maximum and a running denominator are kept per query.  When the maximum rises, earlier sums are
scaled by the factor.  Products read queries, keys, values and rounded weights in their own dtype, so that
matrix units for narrow types can compute them.  Maxima and denominators of a row are kept per *lane*, which
reduces some neighbouring keys.  The reduction over lanes is stored in every lane, so that each thread has it
in registers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from dlc_core import te
from dlc_core.algorithms.attention.stages import Stages
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.dtype import DType
from dlc_core.ir.expr import (
    Expr,
    Load,
    Var,
    as_expr,
    cast_to,
    const,
    const_value,
    free_vars,
    load,
    loads_in,
    logical_and,
    maximum,
    minimum,
    select,
    substitute,
)
from dlc_core.ir.types import Dim, TensorType, dim
from dlc_core.op.infer import ceil_div
from dlc_core.op.lower import narrow
from dlc_core.support.record import record
from dlc_core.tir.intrinsics import if_then_else, intrinsic
from dlc_core.tir.stmt import Alloc, Block, IterVar, Range, Region, Stmt, Store, loop, seq

LOG2E = math.log2(math.e)
STEPS, COLUMNS = 16, 8
"""The head sizes of queries and of values are padded to multiples of these, as matrix units need."""

Loops = Sequence[tuple[Var, Expr]]
"""Loop variables with their extents, outer to inner."""


def online(
    type_: TensorType, stages: Stages, lanes: tuple[int, int], q: te.Tensor, k: te.Tensor, v: te.Tensor
) -> te.Tensor:
    """Attention by online softmax, for known head sizes of queries and values.

    `lanes` are the number of lanes, and the number of neighbouring keys that each lane takes at a time.
    """
    (n, size), (m, features) = q.shape[-2:], v.shape[-2:]
    steps, columns = (
        filled(int(const_value(size) or 0), STEPS),
        filled(int(const_value(features) or 0), COLUMNS),
    )
    tall, long = (ceil_div(dim(x), by) * by for x, by in ((n, stages.rows), (m, stages.panel)))

    def padded(name: str, x: te.Tensor, rows: Dim, width: int) -> te.Tensor:
        """Pad the rows and columns of a tensor with zeros at the end."""
        inside = [(-2, x.shape[-2], rows), (-1, x.shape[-1], width)]
        padded_axes = [(at, own) for at, own, all_ in inside if as_expr(all_) is not as_expr(own)]

        def body(*i: Expr) -> Expr:
            in_bounds = logical_and(*(i[at] < own for at, own in padded_axes))
            return if_then_else(in_bounds, x[i], const(0, x.dtype))

        return stages.stage(name, (*x.shape[:-2], rows, width), body)

    ins = [
        padded("queries", q, tall, steps),
        padded("keys", k, long, steps),
        padded("values", v, long, columns),
    ]
    loops = _Loops(stages, *lanes, tuple(q.shape[:-2]), n, m, type_.dtype)
    made = te.extern(
        (*q.shape[:-2], tall, columns),
        [*ins, *stages.masks],
        lambda given, outs: loops.nest(given[0], given[1], given[2], outs[0]),
        "attention_online",
        dtype_=stages.wide,
        blocks=True,
    )
    return stages.stage("result", type_.shape, lambda *i: narrow(made[i], type_.dtype))


def filled(size: int, by: int) -> int:
    """Round a size up to a multiple."""
    return -(-size // by) * by


@record(frozen=True)
class _Loops:
    stages: Stages
    lanes: int
    own: int
    lead: tuple[Expr, ...]
    n: Expr
    m: Expr
    narrow: DType

    def nest(self, queries: Buffer, keys: Buffer, values: Buffer, out: Buffer) -> Stmt:
        """The loops over heads and tiles."""
        stages, lanes, own = self.stages, self.lanes, self.own
        rows, panel, wide = stages.rows, stages.panel, stages.wide
        steps, features = (int(const_value(b.shape[-1]) or 0) for b in (queries, out))
        low, zero = const(-math.inf, wide), const(0, wide)
        # log2(e) times a very low added mask would overflow, so this factor comes after the maximum is known.
        exact = any(not mask.dtype.is_bool for mask in stages.masks)
        late, early = (LOG2E, 1.0) if exact else (1.0, LOG2E)
        scoring = replace(stages, factor=stages.factor * const(early, wide))

        def local(name: str, width: int, of: DType = wide) -> Buffer:
            return Buffer(f"attention_{name}", (rows, width), of)

        row_max, denominator, row_sum = (local(name, lanes) for name in ("row_max", "denominator", "row_sum"))
        weighted = local("weighted", features)
        product, score, weight = (local(name, panel) for name in ("product", "score", "weight"))
        rounded = local("rounded", panel, self.narrow)
        lane_max, panel_max, new_max, factor, panel_sums = (
            local(name, lanes) for name in ("lane_max", "panel_max", "new_max", "factor", "panel_sums")
        )
        heads = [Var(f"h{d}") for d in range(len(self.lead))]
        t, p, i, w, r, e, x, a, o = (Var(name) for name in "tpiwrexao")
        head, group = tuple(heads), stages.group(heads)
        query, key = t * rows + i, p * panel + w
        row, column, lane, feature = (
            (i, as_expr(rows)),
            (w, as_expr(panel)),
            (r, as_expr(lanes)),
            (e, as_expr(features)),
        )
        others = Var("l"), as_expr(lanes)
        keys_of_lane = [(a, as_expr(panel // (lanes * own))), (o, as_expr(own))]
        its_key = (a * lanes + r) * own + o

        def base(at: Expr) -> Expr:
            """The reference of a row's scores: its maximum, or 0 if all keys so far are hidden."""
            known_max = _at(new_max, (i, at))
            return select(known_max > low, known_max, zero)

        def power(value: Expr) -> Expr:
            return intrinsic("exp2", value * const(late, wide) if exact else value)

        def times(left: Expr, right: Expr) -> Expr:
            return cast_to(wide, left) * cast_to(wide, right)

        term = times(_at(queries, (*head, query, x)), _at(keys, (*group, key, x)))
        bounds = (
            None if const_value(self.n) is not None and const_value(self.n % rows) == 0 else self.n,
            None if const_value(self.m) is not None and const_value(self.m % panel) == 0 else self.m,
        )
        masked_score = scoring.score(
            _at(product, (i, w)), (*head, query, key), (*self.lead, dim(self.n), dim(self.m)), *bounds
        )
        lane_of_w, lane_of_e = w // own % lanes, e // own % lanes
        panels = (p, as_expr(keys.shape[-2]) // panel)
        tile: Loops = [*zip(heads, self.lead, strict=True), (t, as_expr(queries.shape[-2]) // rows)]
        inside: Loops = [*tile, panels]

        def stage(name: str, to: Load, loops: Loops, value: Expr, **how: object) -> Stmt:
            return self._block(name, inside, loops, to, value, **how)  # type: ignore[arg-type]

        at = {
            b: _at(b, (i, r))
            for b in (row_max, denominator, lane_max, panel_max, new_max, factor, panel_sums, row_sum)
        }
        result = _at(weighted, (i, e))
        parts = [
            stage("products", _at(product, (i, w)), [row, column, (x, as_expr(steps))],
                  _at(product, (i, w)) + term, over=[x], init=zero),
            stage("scores", _at(score, (i, w)), [row, column], masked_score),
            stage("lane_max", at[lane_max], [row, lane, *keys_of_lane],
                  maximum(at[lane_max], _at(score, (i, its_key))), over=[a, o], init=low),
            stage("panel_max", at[panel_max], [row, lane, others],
                  maximum(at[panel_max], _at(lane_max, (i, others[0]))), over=[others[0]], init=low),
            stage("new_max", at[new_max], [row, lane], maximum(at[row_max], at[panel_max])),
            stage("factor", at[factor], [row, lane], power(at[row_max] - base(r))),
            stage("row_max", at[row_max], [row, lane], at[new_max]),
            stage("weights", _at(weight, (i, w)), [row, column],
                  power(_at(score, (i, w)) - base(lane_of_w))),
            stage("rounded", _at(rounded, (i, w)), [row, column], cast_to(self.narrow, _at(weight, (i, w)))),
            stage("panel_sums", at[panel_sums], [row, lane, *keys_of_lane],
                  at[panel_sums] + _at(weight, (i, its_key)), over=[a, o], init=zero),
            stage("denominator", at[denominator], [row, lane],
                  at[denominator] * at[factor] + at[panel_sums], over=[p]),
            stage("scale", result, [row, feature], result * _at(factor, (i, lane_of_e)), over=[p]),
            stage("weighted", result, [row, feature, column],
                  result + times(_at(rounded, (i, w)), _at(values, (*group, key, e))), over=[p, w]),
        ]  # fmt: skip
        panel_loop = loop(
            p,
            self._panels(t, panels[1]),
            _around(
                seq(*parts), product, score, lane_max, panel_max, new_max, factor, weight, rounded, panel_sums
            ),
        )
        begin = [
            self._block(f"{name}_begin", tile, [row, last], to, value)
            for name, last, to, value in (
                ("row_max", lane, at[row_max], low),
                ("denominator", lane, at[denominator], zero),
                ("weighted", feature, result, zero),
            )
        ]
        end = [
            self._block("row_sum", tile, [row, lane, others], at[row_sum],
                        at[row_sum] + _at(denominator, (i, others[0])), over=[others[0]], init=zero),
            self._block("divided", tile, [row, feature], _at(out, (*head, query, e)),
                        result / _at(row_sum, (i, lane_of_e))),
        ]  # fmt: skip
        body = _around(seq(*begin, panel_loop, *end), row_max, denominator, weighted, row_sum)
        for var, extent in reversed(tile):
            body = loop(var, extent, body)
        return body

    def _panels(self, tile: Var, count: Expr) -> Expr:
        """The number of panels of keys that a tile of queries needs."""
        stages = self.stages
        if not stages.causal:
            return count
        last = tile * stages.rows + (stages.rows - 1) + stages.past
        before = const_value(stages.past)
        if before is None or before < 0:
            last = maximum(last, -1)
        return minimum(count, (last + stages.panel) // stages.panel)

    def _block(
        self,
        name: str,
        outer: Loops,
        own: Loops,
        to: Load,
        value: Expr,
        over: Sequence[Var] = (),
        init: Expr | None = None,
    ) -> Stmt:
        """A stage in loops of its own: it stores a value at `to`, reduced over the variables `over`."""
        used = {*free_vars(value, *to.indices), *over}
        loops = [(var, extent) for var, extent in (*outer, *own) if var in used]
        axes = {var: Var(f"v_{var.name}") for var, _ in loops}
        fresh = {var: Var(var.name) for var, _ in own}
        env: dict[Var, Expr] = dict(axes)
        target, stored = tuple(substitute(index, env) for index in to.indices), substitute(value, env)
        reads = [e for e in dict.fromkeys(loads_in(stored)) if init is None or e.buffer is not to.buffer]

        def point(buffer: Buffer, indices: Sequence[Expr]) -> Region:
            return Region.point(buffer, indices)

        block: Stmt = Block(
            f"attention_{name}",
            tuple(
                IterVar(axes[var], Range(const(0), extent), "reduce" if var in over else "spatial")
                for var, extent in loops
            ),
            tuple(fresh.get(var, var) for var, _ in loops),
            tuple(point(e.buffer, e.indices) for e in reads),
            (point(to.buffer, target),),
            Store(to.buffer, target, stored),
            None if init is None else Store(to.buffer, target, init),
            annotations=self.stages.marks(name),
        )
        for var, extent in reversed(own):
            block = loop(fresh[var], extent, block)
        return block


def _at(buffer: Buffer, indices: Sequence[Expr]) -> Load:
    """Load an element."""
    made = load(buffer, indices)
    assert isinstance(made, Load)
    return made


def _around(body: Stmt, *buffers: Buffer) -> Stmt:
    """Allocate buffers around a statement."""
    for buffer in reversed(buffers):
        body = Alloc(buffer, body)
    return body


__all__ = ["COLUMNS", "STEPS", "filled", "online"]
