"""Primitives that reorder the axes of a block, or transform them by an index map."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from dlc_core.arith import Analyzer
from dlc_core.ir.expr import Expr, Load, Var, const, const_value, loads_in, substitute
from dlc_core.schedule.dependence import check_not_recurrent
from dlc_core.schedule.handles import BlockRV
from dlc_core.schedule.index_map import IndexMap
from dlc_core.schedule.tree import Program
from dlc_core.tir.functor import exprs_of, move_accesses, stmts, substitute_stmt, transform_stmt
from dlc_core.tir.stmt import Block, For, IterVar, Range, Region, Stmt, Store, loop


def reorder_block_axes(program: Program, handle: BlockRV, order: Sequence[int]) -> None:
    block = program.block(handle)
    if sorted(order) != list(range(len(block.axes))):
        raise program.error(
            f"cannot put the axes of block {block.name!r} in the order {list(order)}",
            block,
            why=f"it has {len(block.axes)} axes: the order holds each of their numbers once",
        )
    moved = replace(
        block, axes=tuple(block.axes[n] for n in order), values=tuple(block.values[n] for n in order)
    )
    program.replace({block: moved})


def plain_nest(program: Program, block: Block, what: str, fixed: Sequence[int] = ()) -> list[For]:
    """The loops of a block, outer to inner: one over the whole domain of each axis, with nothing else inside.

    The axes with numbers in `fixed` have loops outside of these.
    """
    moving = [n for n in range(len(block.axes)) if n not in fixed]
    chain = program.tree.loops_above(block)[-len(moving) :] if moving else []
    analyzer = program.analyzer()
    loops = {s.var: s for s in chain}
    nested = all(a.body is b for a, b in itertools.pairwise([*chain, block]) if isinstance(a, For))
    values = [block.values[n] for n in moving]
    own = [loops.get(v) for v in values if isinstance(v, Var)]
    every = len(own) == len(moving) == len(chain) and set(own) == set(chain)
    if not nested or not every:
        raise program.error(
            what,
            block,
            why="its axes are not one loop each, around it alone",
            hint="do this before loops are split, fused, or filled with other blocks",
        )
    for number, stmt in zip(moving, own, strict=True):
        axis = block.axes[number]
        assert stmt is not None
        if not (
            analyzer.prove_equal(stmt.begin, axis.dom.begin)
            and analyzer.prove_equal(stmt.extent, axis.dom.extent)
        ):
            why = f"loop {stmt.var.name!r} runs over a part of axis {axis.var.name}"
            raise program.error(what, stmt, block, why=why)
    if const_value(block.predicate) != 1:
        raise program.error(what, block, why=f"it has the condition {block.predicate}")
    return chain


def transform_block_layout(program: Program, handle: BlockRV, layout: IndexMap) -> None:
    block = program.block(handle)
    what = f"cannot run block {block.name!r} over {layout}"
    if len(layout.inputs) != len(block.axes):
        raise program.error(what, block, why=f"it has {len(block.axes)} axes")
    digits = layout.digits()
    if not layout.is_bijective or digits is None:
        raise program.error(
            what,
            block,
            why="each output must be a digit (i // a) % b of one axis, all digits of an axis there",
        )
    fixed = _fixed(program, block, layout)
    chain = plain_nest(program, block, what, fixed)
    check_not_recurrent(program, block, what)
    bad = [a.var.name for a in block.axes if const_value(a.dom.begin) != 0]
    if bad:
        raise program.error(what, block, why=f"axis {bad[0]} does not begin at 0")
    sizes = layout.output_exprs([a.dom.extent for a in block.axes])
    axes = tuple(
        IterVar(Var(f"v_o{n}"), Range(const(0), size), block.axes[digit.axis].kind)
        for n, (size, digit) in enumerate(zip(sizes, digits, strict=True))
    )
    loops = [Var(f"o{n}") for n in range(len(axes))]
    analyzer = program.analyzer(*list(program.tree.ancestors(chain[0]))[:1] if chain else ())
    for new, var in zip(axes, loops, strict=True):
        analyzer.bind(new.var, 0, new.dom.extent)
        analyzer.bind(var, 0, new.dom.extent)
    back = [analyzer.simplify(e) for e in layout.inverse()(*(a.var for a in axes))]
    env: dict[Var, Expr] = {a.var: e for a, e in zip(block.axes, back, strict=True)}
    for number, (axis, value) in enumerate(zip(block.axes, back, strict=True)):
        if number not in fixed and not analyzer.prove(value < axis.dom.extent):
            raise program.error(
                what,
                block,
                why=f"its last tile of axis {axis.var.name} would be cut: extent {axis.dom.extent} is not "
                "known to be a multiple",
                hint="pad_einsum makes the tiles of a product whole",
            )
    stay = [digit.axis in fixed for digit in digits]
    values = [
        block.values[digit.axis] if unchanged else var
        for digit, unchanged, var in zip(digits, stay, loops, strict=True)
    ]
    made: Stmt = replace(_over_others(block, env, analyzer), axes=axes, values=tuple(values))
    for var, new, unchanged in reversed(list(zip(loops, axes, stay, strict=True))):
        made = made if unchanged else loop(var, new.dom.extent, made)
    program.replace({chain[0] if chain else block: made})


def _fixed(program: Program, block: Block, layout: IndexMap) -> list[int]:
    """The axes that a layout does not change and whose loops contain other statements than the block."""
    around = program.tree.ancestors(block)
    alone: set[Var] = set()
    for stmt in around:
        if not isinstance(stmt, For):
            break
        alone.add(stmt.var)
    same = {output for output in layout.outputs if isinstance(output, Var)}
    return [
        number
        for number, (axis, value) in enumerate(zip(layout.inputs, block.values, strict=True))
        if axis in same and isinstance(value, Var) and value not in alone
    ]


def fuse_block_axes(program: Program, handle: BlockRV, first: int, count: int) -> None:
    block = program.block(handle)
    what = f"cannot make one of {count} axes of block {block.name!r} from number {first} on"
    old = block.axes[first : first + count]
    if not first >= 0 or count < 1 or len(old) != count:
        raise program.error(what, block, why=f"it has {len(block.axes)} axes")
    if len({a.kind for a in old}) > 1:
        raise program.error(what, block, why="they are of both kinds")
    chain = plain_nest(program, block, what)
    check_not_recurrent(program, block, what)
    bad = [a.var.name for a in block.axes if const_value(a.dom.begin) != 0]
    if bad:
        raise program.error(what, block, why=f"axis {bad[0]} does not begin at 0")
    analyzer = program.analyzer(*list(program.tree.ancestors(chain[0]))[:1] if chain else ())
    size: Expr = const(1)
    for axis in old:
        size = size * axis.dom.extent
    name = "_".join(a.var.name.removeprefix("v_") for a in old)
    fused = IterVar(Var(f"v_{name}_fused"), Range(const(0), analyzer.simplify(size)), old[0].kind)
    for axis in (*block.axes, fused):
        analyzer.bind(axis.var, axis.dom.begin, axis.dom.extent)
    env: dict[Var, Expr] = {}
    inner: Expr = const(1)
    for number, axis in reversed(list(enumerate(old))):
        part = fused.var // inner if number == 0 else fused.var // inner % axis.dom.extent
        env[axis.var] = analyzer.simplify(part)
        inner = analyzer.simplify(inner * axis.dom.extent)
    known = _positions(block, old, fused.var, analyzer)
    axes = (*block.axes[:first], fused, *block.axes[first + count :])
    loops = {a: Var(a.var.name.removeprefix("v_")) for a in axes}
    made = _over_others(block, env, analyzer, known)
    nest: Stmt = replace(made, axes=axes, values=tuple(loops[a] for a in axes))
    for axis in reversed(axes):
        nest = loop(loops[axis], axis.dom.extent, nest)
    program.replace({chain[0] if chain else block: nest})


def _positions(block: Block, old: Sequence[IterVar], fused: Var, analyzer: Analyzer) -> dict[Expr, Expr]:
    """Map each index that uses all old axes as one mixed-radix number to an index over the fused axis.

    This must run before the old axes become quotients and remainders of the fused one: with symbolic sizes
    such expressions cannot be compared.
    """
    if all(const_value(axis.dom.extent) is not None for axis in old):
        return {}
    total: Expr = const(0)
    for axis in old:
        total = total * axis.dom.extent + axis.var
    nothing: dict[Var, Expr] = {axis.var: const(0) for axis in old}
    found: dict[Expr, Expr] = {}
    inside = [s for part in (block.init, block.body) if part is not None for s in stmts(part)]
    uses: list[Load | Store] = [e for s in inside for e in loads_in(*exprs_of(s))]
    uses += [s for s in inside if isinstance(s, Store)]
    for index in dict.fromkeys(i for access in uses for i in access.indices):
        factor = analyzer.coefficient_of(index, old[-1].var)
        if factor is None or const_value(factor) == 0:
            continue
        rest = substitute(index, nothing)
        if analyzer.prove_equal(index, total * factor + rest):
            found[index] = analyzer.simplify(fused * factor + rest)
    return found


def _over_others(
    block: Block, env: dict[Var, Expr], analyzer: Analyzer, known: Mapping[Expr, Expr] = MappingProxyType({})
) -> Block:
    """Substitute expressions over new axes for the axes of a block, and simplify indices.

    `known` maps indices to simpler forms than the substitution gives.
    """

    def simplified(indices: Sequence[Expr]) -> tuple[Expr, ...]:
        # Keep an axis of extent 1 as a variable: simplified to a number, it would not be an axis any more.
        return tuple(i if isinstance(i, Var) else analyzer.simplify(i) for i in indices)

    def settled(stmt: Stmt) -> Stmt:
        return move_accesses(
            substitute_stmt(transform_stmt(stmt, expr_fn=known.get), env), lambda b, i: (b, simplified(i))
        )

    def moved(region: Region) -> Region:
        begins = (analyzer.simplify(substitute(known.get(r.begin, r.begin), env)) for r in region.ranges)
        extents = (substitute(r.extent, env) for r in region.ranges)
        return Region(region.buffer, tuple(map(Range, begins, extents)))

    return replace(
        block,
        writes=tuple(map(moved, block.writes)),
        reads=tuple(map(moved, block.reads)),
        body=settled(block.body),
        init=None if block.init is None else settled(block.init),
    )


__all__ = ["fuse_block_axes", "plain_nest", "reorder_block_axes", "transform_block_layout"]
