"""`decompose_padding`: replace a condition at every element by a fill of the border and a copy of the
inside."""

from __future__ import annotations

from dataclasses import replace

from dlc_core.arith.analyzer import Analyzer
from dlc_core.ir.dtype import BOOL, INDEX
from dlc_core.ir.expr import (
    Binary,
    Call,
    Const,
    Expr,
    Select,
    Var,
    conjuncts,
    const,
    const_value,
    free_vars,
    maximum,
    minimum,
)
from dlc_core.schedule.compact import exact_box
from dlc_core.schedule.dependence import check_free_axes
from dlc_core.schedule.handles import BlockRV, LoopRV
from dlc_core.schedule.regions import Span, accesses, bind_all, read_regions, span
from dlc_core.schedule.tree import Program
from dlc_core.tir.functor import rename_bound
from dlc_core.tir.stmt import Block, For, Stmt, Store, loop, seq

Limits = dict[Var, Span]


def decompose_padding(program: Program, handle: BlockRV, target: LoopRV) -> list[BlockRV]:
    block, at = program.block(handle), program.loop(target)
    what = f"cannot decompose the padding of block {block.name!r}"
    body = block.body
    if not isinstance(body, Store) or block.init is not None:
        raise program.error(what, block, why="it is not a single assignment")
    choice = body.value
    if isinstance(choice, Select):
        cond, value, fill = choice.cond, choice.a, choice.b
    elif isinstance(choice, Call) and choice.name == "if_then_else":
        cond, value, fill = choice.args
    else:
        raise program.error(what, block, why="its value is no choice between an element and a constant")
    if not isinstance(fill, Const):
        raise program.error(what, block, why=f"the border is not constant: {fill}")
    own = _own_loops(program, block, at, what)
    check_free_axes(program, block, what)
    analyzer = program.analyzer(*list(program.tree.ancestors(at))[:1])
    writes = [a for a in accesses(at, [body.buffer]) if a.writes]
    if const_value(block.predicate) != 1 or exact_box(writes, analyzer) is None:
        raise program.error(what, at, block, why="its loops leave out elements of the box that it writes")
    domain: Limits = {}
    with analyzer.scope():
        bind_all(analyzer, own)
        for axis, bound in zip(block.axes, block.values, strict=True):
            found = span(bound, [s.var for s in own], analyzer)
            if found is None:
                raise program.error(what, at, block, why=f"the range of axis {axis.var.name} is not known")
            domain[axis.var] = found
    inner = _interior(program, block, cond, domain, analyzer, what)
    boxes = _border(block, domain, inner, analyzer)
    names: list[BlockRV] = []
    parts: list[Stmt] = []
    for box in boxes:
        name = program.fresh_block_name(f"{block.name}_border", [rv.name for rv in names])
        names.append(BlockRV(name))
        filling = replace(block, name=name, reads=(), body=Store(body.buffer, body.indices, fill))
        parts.append(rename_bound(_over(filling, box, analyzer)))
    copying = replace(block, body=Store(body.buffer, body.indices, value))
    copying = replace(copying, reads=read_regions(copying))
    parts.append(_over(copying, inner, analyzer))
    program.replace({at: seq(*parts)})
    return [*names, handle]


def _own_loops(program: Program, block: Block, at: For, what: str) -> list[For]:
    path = program.tree.path(block)
    if at not in path:
        raise program.error(what, at, block, why="the loop is not around the block")
    inside = path[path.index(at) : -1]
    loops = [s for s in inside if isinstance(s, For)]
    if len(loops) != len(inside):
        raise program.error(what, at, block, why="other statements stand between the loop and the block")
    return loops


def _interior(
    program: Program, block: Block, cond: Expr, domain: Limits, analyzer: Analyzer, what: str
) -> Limits:
    """The box, within `domain`, where a condition is true."""
    inner = dict(domain)
    axes = {a.var for a in block.axes}
    for item in conjuncts(cond):
        bound = _bound(item, axes, analyzer)
        if bound is None:
            raise program.error(what, block, why=f"the condition {item} does not limit one axis")
        var, low, high = bound
        before = inner[var]
        inner[var] = Span(
            before.low if low is None else analyzer.simplify(maximum(before.low, low)),
            before.high if high is None else analyzer.simplify(minimum(before.high, high)),
        )
    return inner


def _bound(cond: Expr, axes: set[Var], analyzer: Analyzer) -> tuple[Var, Expr | None, Expr | None] | None:
    """Return (axis, low, high) for a comparison of an axis with an expression without axes; else None."""
    if not isinstance(cond, Binary) or cond.op not in ("lt", "le", "gt", "ge") or cond.a.dtype is not INDEX:
        return None
    slack = cond.b - cond.a if cond.op in ("lt", "le") else cond.a - cond.b
    if cond.op in ("lt", "gt"):
        slack = slack - 1
    used = [v for v in free_vars(slack) if v in axes]
    if len(used) != 1:
        return None
    factor = analyzer.coefficient_of(slack, used[0])
    sign = None if factor is None else const_value(factor)
    if sign not in (1, -1):
        return None
    rest = analyzer.simplify(slack - used[0] * sign)
    return (used[0], analyzer.simplify(-rest), None) if sign == 1 else (used[0], None, rest)


def _border(block: Block, domain: Limits, inner: Limits, analyzer: Analyzer) -> list[Limits]:
    """Return disjoint boxes that cover everything but the interior.

    For each axis these are the parts below and above the interior, within the interior of earlier axes.
    """
    boxes: list[Limits] = []
    done: Limits = {}
    for position, axis in enumerate(block.axes):
        full, own = domain[axis.var], inner[axis.var]
        split_at = minimum(maximum(own.low, full.low), full.high + 1)
        below = Span(full.low, analyzer.simplify(split_at - 1))
        above = Span(analyzer.simplify(maximum(own.high + 1, split_at)), full.high)
        later = {a.var: domain[a.var] for a in block.axes[position + 1 :]}
        boxes += [
            {**done, axis.var: side, **later}
            for side in (below, above)
            if not analyzer.prove(side.high < side.low)
        ]
        done[axis.var] = own
    return boxes


def _over(block: Block, box: Limits, analyzer: Analyzer) -> Stmt:
    """A nest that runs a block over a box, with one loop per axis."""
    loops = [Var(a.var.name.removeprefix("v_")) for a in block.axes]
    body: Stmt = replace(block, values=tuple(loops), predicate=const(True, BOOL))
    for var, axis in reversed(list(zip(loops, block.axes, strict=True))):
        item = box[axis.var]
        extent = analyzer.simplify(item.high - item.low + 1)
        if not analyzer.prove(extent >= 0):
            extent = analyzer.simplify(maximum(extent, 0))
        body = loop(var, extent, body, begin=item.low)
    return body
