"""Which elements statements touch, as boxes with symbolic ends.

An access's indices are written over loop variables: axes of blocks are replaced by their bindings.  `span` then
bounds an index over the iterations of chosen loops, leaving the others as symbols.  Boxes contain every element
touched, never fewer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dlc_core.arith.analyzer import Analyzer
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.dtype import INDEX
from dlc_core.ir.expr import Binary, Const, Expr, Load, Ramp, Select, Unary, Var, const, maximum, minimum, post_order
from dlc_core.ir.expr import substitute as substitute_expr
from dlc_core.tir.functor import child_stmts, exprs_of
from dlc_core.tir.stmt import Alloc, Block, For, Let, Range, Region, Stmt, Store


class Span(NamedTuple):
    """All values from `low` to `high`, both included."""

    low: Expr
    high: Expr


@dataclass(frozen=True, eq=False)
class Access:
    """One load or store.  `indices` are over loop variables; `loops` are those inside the walked statement."""

    buffer: Buffer
    indices: tuple[Expr, ...]
    writes: bool
    loops: tuple[For, ...]
    block: Block | None


def accesses(root: Stmt, buffers: Iterable[Buffer] | None = None) -> list[Access]:
    """Every load and store inside, of the given buffers or of all."""
    wanted = None if buffers is None else set(buffers)
    found: list[Access] = []

    def visit(stmt: Stmt, env: Mapping[Var, Expr], loops: tuple[For, ...], block: Block | None) -> None:
        if isinstance(stmt, For):
            loops = (*loops, stmt)
        elif isinstance(stmt, Block):
            bound = {a.var: substitute_expr(v, env) for a, v in zip(stmt.axes, stmt.values, strict=True)}
            env, block = {**env, **bound}, stmt
        elif isinstance(stmt, Let):
            env = {**env, stmt.var: substitute_expr(stmt.value, env)}
        if not isinstance(stmt, Alloc):
            for expr in post_order(*exprs_of(stmt)):
                if isinstance(expr, Load) and (wanted is None or expr.buffer in wanted):
                    place = tuple(substitute_expr(i, env) for i in expr.indices)
                    found.append(Access(expr.buffer, place, False, loops, block))
        if isinstance(stmt, Store) and (wanted is None or stmt.buffer in wanted):
            place = tuple(substitute_expr(i, env) for i in stmt.indices)
            found.append(Access(stmt.buffer, place, True, loops, block))
        for child in child_stmts(stmt):
            visit(child, env, loops, block)

    visit(root, {}, (), None)
    return found


def span(expr: Expr, ranges: Mapping[Var, Span], analyzer: Analyzer) -> Span | None:
    """Bounds of an index while the variables of `ranges` take their values; None where nothing is known.

    `analyzer` must know the ranges too.
    """
    found = _span(analyzer.simplify(expr), ranges, analyzer)
    return None if found is None else Span(analyzer.simplify(found.low), analyzer.simplify(found.high))


def _span(e: Expr, ranges: Mapping[Var, Span], analyzer: Analyzer) -> Span | None:
    if isinstance(e, Var):
        own = ranges.get(e)
        if own is None:
            return Span(e, e)
        # Ends may depend on other variables of `ranges`.
        low, high = _span(own.low, ranges, analyzer), _span(own.high, ranges, analyzer)
        return None if low is None or high is None else Span(low.low, high.high)
    if isinstance(e, Const):
        return Span(e, e)
    if isinstance(e, Ramp):
        return _ramp_span(e, ranges, analyzer)
    if e.dtype is not INDEX or isinstance(e, Load):
        return None
    if not any(isinstance(x, Load) or x in ranges for x in post_order(e)):
        return Span(e, e)
    if isinstance(e, Unary) and e.op == "neg":
        inner = _span(e.a, ranges, analyzer)
        return None if inner is None else Span(-inner.high, -inner.low)
    if isinstance(e, Select):
        return _union([_span(e.a, ranges, analyzer), _span(e.b, ranges, analyzer)], analyzer)
    if isinstance(e, Binary):
        a, b = _span(e.a, ranges, analyzer), _span(e.b, ranges, analyzer)
        if e.op == "floormod" and b is not None and b.low is b.high:
            return _mod_span(a, b.low, analyzer)
        return None if a is None or b is None else _binary_span(e.op, a, b, analyzer)
    return None


def _ramp_span(e: Ramp, ranges: Mapping[Var, Span], analyzer: Analyzer) -> Span | None:
    first = _span(analyzer.simplify(e.base), ranges, analyzer)
    last = _span(analyzer.simplify(e.base + e.stride * (e.lanes - 1)), ranges, analyzer)
    return _union([first, last], analyzer)


def _binary_span(op: str, a: Span, b: Span, analyzer: Analyzer) -> Span | None:
    if op == "add":
        return Span(a.low + b.low, a.high + b.high)
    if op == "sub":
        return Span(a.low - b.high, a.high - b.low)
    if op == "min":
        return Span(minimum(a.low, b.low), minimum(a.high, b.high))
    if op == "max":
        return Span(maximum(a.low, b.low), maximum(a.high, b.high))
    if op == "mul":
        if a.low is a.high:
            a, b = b, a
        if b.low is not b.high:
            return None
        if analyzer.prove(b.low >= 0):
            return Span(a.low * b.low, a.high * b.low)
        return Span(a.high * b.low, a.low * b.low) if analyzer.prove(b.low <= 0) else None
    if op == "floordiv" and b.low is b.high and analyzer.prove(b.low > 0):
        return Span(a.low // b.low, a.high // b.low)
    return None


def _mod_span(a: Span | None, divisor: Expr, analyzer: Analyzer) -> Span | None:
    if not analyzer.prove(divisor > 0):
        return None
    if a is not None and analyzer.prove_equal(a.low // divisor, a.high // divisor):
        return Span(a.low % divisor, a.high % divisor)
    return Span(const(0), divisor - 1)


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


def loop_ranges(loops: Iterable[For]) -> dict[Var, Span]:
    return {s.var: Span(s.begin, s.begin + s.extent - 1) for s in loops}


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
    spans: list[Span | None] = []
    for dim, size in enumerate(buffer.shape):
        whole = Span(const(0), analyzer.simplify(size - 1))
        total: Span | None = None
        seen: set[tuple[Expr, tuple[For, ...]]] = set()
        for access in found:
            key = access.indices[dim], access.loops
            if key in seen:
                continue
            seen.add(key)
            with analyzer.scope():
                bind_all(analyzer, (*outer, *access.loops))
                one = span(access.indices[dim], loop_ranges((*outer, *access.loops)), analyzer)
            one = whole if one is None else one
            total = one if total is None else _union([total, one], analyzer)
        assert total is not None
        if clip:
            low, high = maximum(total.low, 0), minimum(total.high, whole.high)
            total = Span(analyzer.simplify(low), analyzer.simplify(high))
        spans.append(total)
    return [s for s in spans if s is not None]


def extent_of(item: Span, analyzer: Analyzer) -> Expr:
    return analyzer.simplify(item.high - item.low + 1)


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
        for expr in post_order(*exprs_of(stmt)):
            if isinstance(expr, Load):
                known = places.setdefault(expr.buffer, [])
                if expr.indices not in known:
                    known.append(expr.indices)
        work.extend(reversed(child_stmts(stmt)))
    regions: list[Region] = []
    for buffer, found in places.items():
        if all((buffer, place) in written for place in found):
            continue
        point = len(found) == 1 and not any(
            isinstance(e, Load) or e in inner for e in post_order(*found[0])
        )
        regions.append(point_region(buffer, found[0]) if point else whole_region(buffer))
    return tuple(regions)


def point_region(buffer: Buffer, indices: Sequence[Expr]) -> Region:
    return Region(buffer, tuple(Range(i, const(1)) for i in indices))


def whole_region(buffer: Buffer) -> Region:
    return Region(buffer, tuple(Range(const(0), d) for d in buffer.shape))
