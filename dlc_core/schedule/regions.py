"""Which elements statements touch, as boxes with symbolic ends.

An access's indices are written over loop variables: axes of blocks are replaced by their bindings.  `span`
then bounds an index over the iterations of chosen loops, leaving the others as symbols.  Boxes contain every
element touched, never fewer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from dlc_core.arith.analyzer import Analyzer
from dlc_core.arith.iter_map import IterMap, detect_iter_map
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.dtype import INDEX
from dlc_core.ir.expr import (
    Expr,
    Load,
    Ramp,
    Var,
    const,
    const_value,
    free_vars,
    loads_in,
    maximum,
    minimum,
    post_order,
)
from dlc_core.ir.expr import substitute as substitute_expr
from dlc_core.tir.functor import child_stmts, exprs_of
from dlc_core.tir.stmt import Alloc, Block, For, Let, Range, Region, Stmt, Store


class Span(NamedTuple):
    """All values from `low` to `high`, both included."""

    low: Expr
    high: Expr


@dataclass(frozen=True, eq=False)
class Access:
    """One load or store.  `indices` are over loop variables; `loops` are those inside the walked
    statement."""

    buffer: Buffer
    indices: tuple[Expr, ...]
    writes: bool
    loops: tuple[For, ...]
    block: Block | None


def accesses(root: Stmt, buffers: Iterable[Buffer] | None = None) -> list[Access]:
    """Every load and store inside, of the given buffers or of all; not those in loops that never run."""
    wanted = None if buffers is None else set(buffers)
    found: list[Access] = []

    def visit(stmt: Stmt, env: Mapping[Var, Expr], loops: tuple[For, ...], block: Block | None) -> None:
        if isinstance(stmt, For):
            if const_value(stmt.extent) == 0:
                return
            loops = (*loops, stmt)
        elif isinstance(stmt, Block):
            bound = {a.var: substitute_expr(v, env) for a, v in zip(stmt.axes, stmt.values, strict=True)}
            env, block = {**env, **bound}, stmt
        elif isinstance(stmt, Let):
            env = {**env, stmt.var: substitute_expr(stmt.value, env)}
        memo: dict[Expr, Expr] = {}

        def placed(indices: Sequence[Expr]) -> tuple[Expr, ...]:
            return tuple(substitute_expr(i, env, memo=memo) for i in indices)

        if not isinstance(stmt, Alloc):
            for expr in loads_in(*exprs_of(stmt)):
                if wanted is None or expr.buffer in wanted:
                    found.append(Access(expr.buffer, placed(expr.indices), False, loops, block))  # noqa: PERF401
        if isinstance(stmt, Store) and (wanted is None or stmt.buffer in wanted):
            found.append(Access(stmt.buffer, placed(stmt.indices), True, loops, block))
        for child in child_stmts(stmt):
            visit(child, env, loops, block)

    visit(root, {}, (), None)
    return found


def span(expr: Expr, moving: Iterable[Var], analyzer: Analyzer) -> Span | None:
    """Bounds of an index while variables take all values of the ranges bound in `analyzer`; None where
    unknown."""
    if isinstance(expr, Ramp):
        ends = [span(expr.base + expr.stride * i, moving, analyzer) for i in (0, expr.lanes - 1)]
        return _union(ends, analyzer)
    if expr.dtype is not INDEX or loads_in(expr):
        return None
    found = analyzer.bounds(expr, moving)
    return None if found is None else Span(*found)


def _union(spans: Sequence[Span | None], analyzer: Analyzer) -> Span | None:
    total: Span | None = None
    for item in spans:
        if item is None:
            return None
        if total is None:
            total = item
        else:
            low, high = minimum(total.low, item.low), maximum(total.high, item.high)
            total = Span(analyzer.simplify(low), analyzer.simplify(high))
    return total


def bind_all(analyzer: Analyzer, loops: Iterable[For]) -> None:
    for stmt in loops:
        analyzer.bind(stmt.var, stmt.begin, stmt.extent)


def hull(
    found: Sequence[Access], analyzer: Analyzer, *, outer: Iterable[For] = (), clip: bool = True
) -> list[Span]:
    """The smallest box known to hold all accesses (of one buffer), over their own loops and those of `outer`.

    Indices beyond the buffer's shape are never touched (a condition guards them), so ends are clipped to it.
    """
    buffer = found[0].buffer
    groups: dict[tuple[For, ...], dict[tuple[Expr, ...], None]] = {}
    for access in found:
        groups.setdefault(access.loops, {})[access.indices] = None
    wholes = [Span(const(0), analyzer.simplify(size - 1)) for size in buffer.shape]
    totals: list[Span | None] = [None] * buffer.ndim
    for loops, places in groups.items():
        moving = (*outer, *loops)
        names = [s.var for s in moving]
        with analyzer.scope():
            bind_all(analyzer, moving)
            for dim in range(buffer.ndim):
                for index in dict.fromkeys(place[dim] for place in places):
                    one = span(index, names, analyzer) or wholes[dim]
                    before = totals[dim]
                    totals[dim] = one if before is None or before == one else _union([before, one], analyzer)
    box: list[Span] = []
    for total, whole in zip(totals, wholes, strict=True):
        assert total is not None
        if clip:
            low, high = maximum(total.low, 0), minimum(total.high, whole.high)
            total = Span(analyzer.simplify(low), analyzer.simplify(high))
        box.append(total)
    return box


def extent_of(item: Span, analyzer: Analyzer) -> Expr:
    """Number of values, never negative: a part may be empty."""
    extent = analyzer.simplify(item.high - item.low + 1)
    return extent if analyzer.prove(extent >= 0) else analyzer.simplify(maximum(extent, 0))


def read_regions(block: Block) -> tuple[Region, ...]:
    """What a block reads, as regions over its axes: points where one place is read, else whole buffers.

    The buffer a reduction accumulates in is not listed, as long as it is read where it is written.
    """
    places: dict[Buffer, list[tuple[Expr, ...]]] = {}
    written: set[tuple[Buffer, tuple[Expr, ...]]] = set()
    work: list[Stmt] = [block.body]
    inner: set[Var] = set()
    while work:
        stmt = work.pop()
        if isinstance(stmt, For):
            inner.add(stmt.var)
        if isinstance(stmt, Let):
            inner.add(stmt.var)
        if isinstance(stmt, Store):
            written.add((stmt.buffer, stmt.indices))
        for expr in loads_in(*exprs_of(stmt)):
            known = places.setdefault(expr.buffer, [])
            if expr.indices not in known:
                known.append(expr.indices)
        work.extend(reversed(child_stmts(stmt)))
    regions: list[Region] = []
    for buffer, found in places.items():
        if all((buffer, place) in written for place in found):
            continue
        point = len(found) == 1 and not any(isinstance(e, Load) or e in inner for e in post_order(*found[0]))
        regions.append(point_region(buffer, found[0]) if point else whole_region(buffer))
    return tuple(regions)


def point_region(buffer: Buffer, indices: Sequence[Expr]) -> Region:
    return Region(buffer, tuple(Range(i, const(1)) for i in indices))


def whole_region(buffer: Buffer) -> Region:
    return Region(buffer, tuple(Range(const(0), d) for d in buffer.shape))


def iter_map(
    values: Sequence[Expr], loops: Iterable[For], predicate: Expr, analyzer: Analyzer
) -> tuple[IterMap, list[Expr]] | None:
    """How values split and fuse loops, and where each value begins; None where that is not understood.

    Other variables in them are symbols in the ranges that `analyzer` knows.
    """
    moving = list(loops)
    from_zero: dict[Var, Expr] = {s.var: s.var + s.begin for s in moving}
    own = {s.var for s in moving}
    exprs = [substitute_expr(v, from_zero) for v in (*values, predicate)]
    fixed = [v for v in free_vars(*exprs, *(s.extent for s in moving)) if v not in own]
    # detect_iter_map takes symbols to be 1 at least.
    up: dict[Var, Expr] = {}
    down: dict[Var, Expr] = {}
    for var in fixed:
        low = analyzer.const_bounds(var)[0]
        if low < 0:
            return None
        if low == 0:
            bigger = Var(var.name)
            up[var], down[bigger] = bigger - 1, var + 1
    *indices, cond = (substitute_expr(e, up) for e in exprs)
    found = detect_iter_map(indices, {s.var: substitute_expr(s.extent, up) for s in moving}, cond)
    if found is None:
        return None
    extents = tuple(None if e is None else substitute_expr(e, down) for e in found.extents)
    begins = [analyzer.simplify(substitute_expr(part.base, down)) for part in found.sums]
    return replace(found, extents=extents), begins
