"""Loop nests of operations: a block for each, with fresh axes, within loops over them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from dlc_core.ir.buffer import Buffer
from dlc_core.ir.expr import Expr, Var, const, load, loads_in, select, substitute
from dlc_core.te.tensor import ComputeOp, Reduction
from dlc_core.tir.combine import update
from dlc_core.tir.stmt import Block, For, IterVar, Range, Region, Stmt, Store, seq


@dataclass(frozen=True)
class Outer:
    """An outer loop that replaces the first axis of a nest, and the range of the axis that it covers."""

    var: Var
    dom: Range


def read_regions(exprs: Iterable[Expr]) -> tuple[Region, ...]:
    """The regions of the reads: single points for affine reads; the whole buffer if it is read at several
    indices.
    """
    points: dict[Buffer, list[tuple[Expr, ...]]] = {}
    for expr in loads_in(*exprs):
        known = points.setdefault(expr.buffer, [])
        if expr.indices not in known:
            known.append(expr.indices)
    regions = []
    for buffer, (first, *others) in points.items():
        single = not others and not loads_in(*first)
        regions.append(Region.point(buffer, first) if single else Region.whole(buffer))
    return tuple(regions)


def compute_nest(
    op: ComputeOp,
    results: Sequence[Buffer],
    loop_vars: set[Var],
    *,
    replacements: Mapping[Buffer, Buffer] | None = None,
    outer: Outer | None = None,
) -> Stmt:
    """The loops of a ComputeOp around its block, which stores to `results`.

    The loop variables are those of its axes. Variables in `loop_vars` get fresh copies, because an axis may
    be reduced twice. The loop variables are added to `loop_vars`. `replacements` maps buffers to the buffers
    that are read instead. With `outer` there is no loop over the first axis.
    """
    axes = (*op.axes, *op.reduce_axes)
    fresh = {a.var: Var(f"v_{a.var.name}") for a in axes}
    env: dict[Var, Expr] = dict(fresh)

    def over_block_axes(expr: Expr) -> Expr:
        return substitute(expr, env, replacements)

    block_axes = [IterVar(fresh[a.var], a.dom, a.kind) for a in axes]
    loops = [a.var if a.var not in loop_vars else Var(a.var.name) for a in axes]
    values: list[Expr] = list(loops)
    loop_vars.update(loops)
    nested = list(zip(loops, axes, strict=True))
    if outer is not None:
        block_axes[0] = IterVar(fresh[axes[0].var], outer.dom, axes[0].kind)
        values[0] = outer.var
        nested = nested[1:]
    point = tuple(fresh[a.var] for a in op.axes)
    init: Stmt | None = None
    if isinstance(op.body, Reduction):
        terms = tuple(map(over_block_axes, op.body.sources))
        combiner = op.body.combiner
        identity = combiner.identity(tuple(t.dtype for t in terms))
        if op.body.condition is not None:
            condition = over_block_axes(op.body.condition)
            terms = tuple(select(condition, t, i) for t, i in zip(terms, identity, strict=True))
        init = seq(*(Store(b, point, value) for b, value in zip(results, identity, strict=True)))
        body = update(results, point, terms, combiner.combine)
        reads = read_regions(terms)
    else:
        stored = tuple(map(over_block_axes, op.body))
        body = seq(*(Store(b, point, value) for b, value in zip(results, stored, strict=True)))
        reads = read_regions(stored)
    block: Stmt = Block(
        op.name,
        tuple(block_axes),
        tuple(values),
        reads,
        tuple(Region.point(b, point) for b in results),
        body,
        init,
        annotations=dict(op.annotations),
    )
    for var, axis in reversed(nested):
        block = For(var, axis.dom.begin, axis.dom.extent, block)
    return block


def copy_nest(name: str, source: Buffer, target: Buffer, rows: Expr) -> Stmt:
    """Loops around a block that copies the first `rows` rows of one buffer to another."""
    extents = (rows, *target.shape[1:])
    loops = [Var("t" if d == 0 else f"i{d}") for d in range(target.ndim)]
    axes = tuple(IterVar(Var(f"v_{v.name}"), Range(const(0), e)) for v, e in zip(loops, extents, strict=True))
    point = tuple(a.var for a in axes)
    nest: Stmt = Block(
        name,
        axes,
        tuple(loops),
        (Region.point(source, point),),
        (Region.point(target, point),),
        Store(target, point, load(source, point)),
    )
    for var, extent in reversed(list(zip(loops, extents, strict=True))):
        nest = For(var, const(0), extent, nest)
    return nest
