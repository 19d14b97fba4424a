"""`blockize`: make one block of a loop nest. The axes of the block inside are split into an outer part for
the new block and an inner part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dlc_core.arith.analyzer import Analyzer
from dlc_core.ir.dtype import BOOL
from dlc_core.ir.expr import (
    Binary,
    Expr,
    Var,
    ceildiv,
    conjuncts,
    const,
    const_value,
    free_vars,
    logical_and,
    maximum,
    minimum,
    substitute,
)
from dlc_core.schedule.handles import BlockRV, LoopRV
from dlc_core.schedule.reduction import init_nest
from dlc_core.schedule.regions import bind_all, iter_map, span
from dlc_core.schedule.tree import Program
from dlc_core.tir.functor import substitute_stmt
from dlc_core.tir.stmt import Block, For, IterVar, Range, Region, Stmt

TRUE = const(True, BOOL)


def blockize(program: Program, target: LoopRV | BlockRV) -> BlockRV:
    at: For | Block = program.loop(target) if isinstance(target, LoopRV) else program.block(target)
    name = at.var.name if isinstance(at, For) else at.name
    what = f"cannot make {'loop' if isinstance(at, For) else 'block'} {name!r} a block"
    inner, block = nest_of(program, at, what)
    empty = next(
        (loop for loop in inner if const_value(program.analyzer(at).simplify(loop.extent)) == 0), None
    )
    if empty is not None:
        why = f"loop {empty.var.name!r} has no iterations, so axes of the block would leave their domains"
        raise program.error(what, at, why=why)
    division = _divide(program, at, inner, block, what)
    outer = division.outer_block(program, block, inner, what)
    program.replace({at: outer})
    return BlockRV(outer.name)


def nest_of(program: Program, at: Stmt, what: str) -> tuple[list[For], Block]:
    """The loops from a statement inward, and the only block inside."""
    inner: list[For] = []
    stmt = at
    while isinstance(stmt, For):
        inner.append(stmt)
        stmt = stmt.body
    if not isinstance(stmt, Block):
        raise program.error(
            what,
            at,
            why=f"a {type(stmt).__name__} is in its loops: they must contain one block and nothing else",
            hint="do this before other blocks are computed inside",
        )
    return inner, stmt


@dataclass
class _Division:
    """The split of a block's axes.  `env` gives the old axes in terms of the new ones.

    A block's predicate uses variables from outside: loops and, for the inner block, axes of the outer one.
    """

    outer: list[tuple[IterVar, Expr]]
    inner: list[tuple[IterVar, Expr]]
    env: dict[Var, Expr]
    bound: dict[Var, Expr]
    """Maps axes of the inner block to their values."""
    outer_predicate: Expr
    inner_predicate: Expr
    analyzer: Analyzer
    """Has the ranges of all new axes."""

    @property
    def accumulates(self) -> bool:
        """Whether the outer block may run several steps of a reduction."""
        return any(
            axis.kind == "reduce" and not self.analyzer.prove_equal(axis.dom.extent, 1)
            for axis, _ in self.outer
        )

    def outer_block(self, program: Program, block: Block, inner: Sequence[For], what: str) -> Block:
        moved = self.accumulates and block.init is not None
        within = replace(
            block,
            axes=tuple(axis for axis, _ in self.inner),
            values=tuple(value for _, value in self.inner),
            reads=tuple(self._region(r) for r in block.reads),
            writes=tuple(self._region(r) for r in block.writes),
            init=None if block.init is None else substitute_stmt(block.init, self.env),
            body=substitute_stmt(block.body, self.env),
            predicate=self.inner_predicate,
        )
        init = init_nest(program, within, inner, what)[1] if moved else None
        body: Stmt = replace(within, init=None) if moved else within
        for stmt in reversed(inner):
            body = replace(stmt, body=body)
        name = program.fresh_block_name(f"{block.name}_o")
        return Block(
            name,
            tuple(axis for axis, _ in self.outer),
            tuple(value for _, value in self.outer),
            tuple(self._box(r) for r in within.reads),
            tuple(self._box(r) for r in within.writes),
            body,
            init,
            self.outer_predicate,
        )

    def _region(self, region: Region) -> Region:
        ranges = (Range(substitute(r.begin, self.env), substitute(r.extent, self.env)) for r in region.ranges)
        return Region(region.buffer, tuple(ranges))

    def _box(self, region: Region) -> Region:
        """The box of a region over all points of the inner block."""
        moving = [axis.var for axis, _ in self.inner]
        ranges: list[Range] = []
        for r, size, whole in zip(
            region.ranges, region.buffer.shape, Region.whole(region.buffer).ranges, strict=True
        ):
            first = span(r.begin, moving, self.analyzer)
            last = span(r.begin + r.extent - 1, moving, self.analyzer)
            if first is None or last is None:
                ranges.append(whole)
                continue
            low, end = first.low, last.high + 1
            if not self.analyzer.prove(low >= 0):
                low = maximum(low, 0)
            if not self.analyzer.prove(end <= size):
                end = minimum(end, size)
            ranges.append(Range(self.analyzer.simplify(low), self.analyzer.simplify(end - low)))
        return Region(region.buffer, tuple(ranges))


def _divide(program: Program, at: For | Block, inner: Sequence[For], block: Block, what: str) -> _Division:
    own = {s.var for s in inner}
    outer = {s.var for s in program.tree.loops_above(at)}
    for stmt in inner:
        seen = [v.name for v in free_vars(stmt.begin, stmt.extent) if v in outer]
        if seen:
            raise program.error(
                what,
                stmt,
                why=f"the range of loop {stmt.var.name!r} depends on {seen[0]} outside",
                hint='split with tail="predicate" or "partition" instead',
            )
    analyzer = program.analyzer(*list(program.tree.ancestors(at))[:1])
    starts: dict[Var, Expr] = {s.var: s.begin for s in inner}
    firsts = [analyzer.simplify(substitute(v, starts)) for v in block.values]
    bind_all(analyzer, inner)
    parts: list[Expr] = []
    for axis, value, first in zip(block.axes, block.values, firsts, strict=True):
        part = analyzer.simplify(value - first)
        if not outer.isdisjoint(free_vars(part)):
            raise program.error(
                what,
                at,
                block,
                why=f"axis {axis.var.name} = {value} is no sum of a part of the loops outside "
                "and a part of those inside",
                hint="split at a boundary between the two first",
            )
        parts.append(part)
    found = iter_map(parts, inner, TRUE, analyzer)
    if found is None or not found[0].bijective or any(const_value(b) != 0 for b in found[1]):
        raise program.error(
            what, at, block, why="the loops inside do not run over a box of its axes, each once"
        )
    sizes = [e for e in found[0].extents if e is not None]
    division = _Division([], [], {}, {}, TRUE, TRUE, program.analyzer(*list(program.tree.ancestors(at))[:1]))
    for axis, first, part, size in zip(block.axes, firsts, parts, sizes, strict=True):
        _divide_axis(program, division, axis, first, part, size, analyzer, block, what)
    for new, _ in (*division.outer, *division.inner):
        division.analyzer.bind(new.var, new.dom.begin, new.dom.extent)
    bind_all(division.analyzer, inner)
    division.bound.update((new.var, bound) for new, bound in division.inner)
    limits = conjuncts(block.predicate)
    if limits:
        # Outer loops may exceed the new domain if the old predicate excluded the points there.
        for new, number in division.outer:
            inside = number < new.dom.begin + new.dom.extent
            if not analyzer.prove(inside):
                division.outer_predicate = logical_and(division.outer_predicate, inside)
    for cond in limits:
        if own.isdisjoint(free_vars(cond)):
            division.outer_predicate = logical_and(division.outer_predicate, cond)
            continue
        local = _over_axes(cond, block, outer, own, analyzer)
        if local is None:
            raise program.error(what, at, block, why=f"its condition {cond} limits no one axis")
        local = substitute(substitute(local, division.env), division.bound)
        local = division.analyzer.simplify(local)
        division.inner_predicate = logical_and(division.inner_predicate, local)
    return division


def _divide_axis(
    program: Program,
    division: _Division,
    axis: IterVar,
    first: Expr,
    part: Expr,
    size: Expr,
    analyzer: Analyzer,
    block: Block,
    what: str,
) -> None:
    if analyzer.prove_equal(size, 1):
        division.outer.append((axis, first))
        return
    begin, extent = axis.dom.begin, axis.dom.extent
    if analyzer.prove_equal(first, begin) and analyzer.prove_equal(size, extent):
        division.inner.append((axis, analyzer.simplify(part + begin)))
        return
    if not division.analyzer.prove(size > 0):
        why = f"tiles of {size} points of axis {axis.var.name} may be empty"
        raise program.error(what, block, why=why)
    step = analyzer.simplify(first - begin)
    count = analyzer.simplify(ceildiv(extent, size))
    number = analyzer.simplify(step // size)
    if not analyzer.prove_equal(number * size, step):
        raise program.error(
            what,
            block,
            why=f"{axis.var.name} begins at {first} there, which is not known to be a multiple of {size}",
        )
    within = IterVar(Var(f"{axis.var.name}_i"), Range(const(0), size), axis.kind)
    division.inner.append((within, part))
    point: Expr = within.var
    if const_value(number) != 0 or not analyzer.prove(extent <= size):
        tile = IterVar(Var(f"{axis.var.name}_o"), Range(const(0), count), axis.kind)
        division.outer.append((tile, number))
        point = tile.var * size + point
    division.env[axis.var] = point + begin


def _over_axes(cond: Expr, block: Block, outer: set[Var], own: set[Var], analyzer: Analyzer) -> Expr | None:
    """Rewrite a condition on loops as a bound of an axis, `axis < bound`.

    Without outer loops it is returned as it is.  None if it has them and bounds no axis.
    """
    if isinstance(cond, Binary) and cond.op in ("lt", "le", "gt", "ge"):
        slack = cond.a - cond.b if cond.op in ("lt", "le") else cond.b - cond.a
        for axis, value in zip(block.axes, block.values, strict=True):
            for sign in (1, -1):
                rest = analyzer.simplify(slack - value * sign)
                if (outer | own).isdisjoint(free_vars(rest)):
                    total = axis.var * sign + rest
                    return total < 0 if cond.op in ("lt", "gt") else total <= 0
    return cond if outer.isdisjoint(free_vars(cond)) else None


__all__ = ["blockize", "nest_of"]
