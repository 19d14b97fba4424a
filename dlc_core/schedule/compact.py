"""Intermediate buffers as small as what is alive: allocated in the innermost loop that holds all their uses,
and shrunk to the box that is touched there."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from dlc_core.arith.analyzer import Analyzer
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.expr import (
    Call,
    Expr,
    Load,
    Var,
    const,
    const_value,
    load,
    maximum,
    post_order,
    transform,
)
from dlc_core.schedule.dependence import axis_kinds
from dlc_core.schedule.regions import Access, Span, accesses, extent_of, hull, iter_map
from dlc_core.schedule.tree import Program, Tree, with_children
from dlc_core.tir.functor import child_stmts, exprs_of, stmts
from dlc_core.tir.stmt import (
    Alloc,
    Block,
    Eval,
    For,
    If,
    IterVar,
    Let,
    PrimFunc,
    Range,
    Region,
    Seq,
    Stmt,
    Store,
    View,
    While,
    seq,
)


def compact_buffer_allocation(func: PrimFunc) -> PrimFunc:
    """The function with every allocated buffer sunk and shrunk; meaning, loops and block names stay."""
    program = Program(func)
    for buffer in list(program.tree.allocs):
        sink(program, buffer)
        shrink(program, buffer)
    return program.func


def sink(program: Program, buffer: Buffer) -> None:
    """Move an allocation inward as long as no value passes between the iterations of the loops it enters."""
    alloc = program.tree.allocs[buffer]
    spot = alloc.body
    while True:
        inside = _users(spot, buffer)
        if isinstance(spot, For):
            if spot.kind in ("vectorized", "unrolled") or not _private(program, spot, buffer):
                break
            spot = spot.body
        elif isinstance(spot, (Alloc, View, Let)) and not _mentions(spot, buffer):
            spot = spot.body
        elif isinstance(spot, Seq) and len(inside) == 1:
            spot = inside[0]
        else:
            break
    if spot is alloc.body and not isinstance(spot, Seq):
        return
    wrapped: Stmt = Alloc(buffer, spot)
    if isinstance(spot, Seq):
        inside = _users(spot, buffer)
        if not inside:
            program.replace({alloc: alloc.body})
            return
        first, last = spot.stmts.index(inside[0]), spot.stmts.index(inside[-1])
        wrapped = seq(
            *spot.stmts[:first], Alloc(buffer, seq(*spot.stmts[first : last + 1])), *spot.stmts[last + 1 :]
        )
    program.replace({alloc: Tree(alloc.body).replace({spot: wrapped})})


def _users(stmt: Stmt, buffer: Buffer) -> list[Stmt]:
    """The parts of a sequence that touch a buffer."""
    if not isinstance(stmt, Seq):
        return []
    return [part for part in stmt.stmts if any(_mentions(s, buffer) for s in stmts(part))]


def _mentions(stmt: Stmt, buffer: Buffer) -> bool:
    if isinstance(stmt, Store) and stmt.buffer is buffer:
        return True
    if isinstance(stmt, View) and stmt.base is buffer:
        return True
    return any(isinstance(e, Load) and e.buffer is buffer for e in post_order(*exprs_of(stmt)))


def _private(program: Program, loop: For, buffer: Buffer) -> bool:
    """Whether every element read in an iteration is written in the same iteration before."""
    found = accesses(loop.body, [buffer])
    if any(a.block is None for a in found) or _escapes(loop.body, buffer):
        return False
    analyzer = program.analyzer(loop)
    order = list(dict.fromkeys(a.block for a in found if a.block is not None))
    written: dict[Block, list[Span] | None] = {}
    for position, block in enumerate(order):
        if "reduce" in axis_kinds(block, loop.var):
            return False
        own = [a for a in found if a.block is block]
        reads = [a for a in own if not a.writes]
        writes = [a for a in own if a.writes]
        starts_itself = bool(writes) and block.init is not None
        if reads and not starts_itself:
            needed = hull(reads, analyzer)
            earlier = [written[b] for b in order[:position] if b in written]
            if not any(box is not None and _contains(box, needed, analyzer) for box in earlier):
                return False
        if writes:
            written[block] = exact_box(block, writes, analyzer)
    return True


def _contains(box: Sequence[Span], part: Sequence[Span], analyzer: Analyzer) -> bool:
    return all(
        analyzer.prove(b.low <= p.low) and analyzer.prove(p.high <= b.high)
        for b, p in zip(box, part, strict=True)
    )


def exact_box(block: Block, writes: Sequence[Access], analyzer: Analyzer) -> list[Span] | None:
    """The box of which a block writes every element and nothing else; None where it is not known to be
    one."""
    if not writes or any(w.indices != writes[0].indices for w in writes):
        return None
    found = iter_map(writes[0].indices, writes[0].loops, block.predicate, analyzer)
    if found is None:
        return None
    box: list[Span] = []
    for low, extent in zip(found[1], found[0].extents, strict=True):
        if extent is None:
            return None
        box.append(Span(low, analyzer.simplify(low + extent - 1)))
    return box


def _escapes(stmt: Stmt, buffer: Buffer) -> bool:
    """Whether the buffer's address is taken, or another buffer is a window on it."""
    for part in stmts(stmt):
        if isinstance(part, View) and part.base is buffer:
            return True
        for expr in post_order(*exprs_of(part)):
            taken = expr.args if isinstance(expr, Call) and expr.name == "address_of" else ()
            if any(isinstance(a, Load) and a.buffer is buffer for a in taken):
                return True
    return False


def shrink(program: Program, buffer: Buffer) -> None:
    """Replace a buffer by one of the box that is touched while it is alive."""
    alloc = program.tree.allocs.get(buffer)
    if alloc is None or buffer.strides is not None or const_value(buffer.offset) != 0:
        return
    found = accesses(alloc.body, [buffer])
    if not found or _escapes(alloc.body, buffer):
        return
    analyzer = program.analyzer(alloc)
    box = hull(found, analyzer)
    extents = [_bounded(extent_of(item, analyzer), analyzer) for item in box]
    lows = [item.low for item in box]
    if all(const_value(low) == 0 for low in lows) and all(
        analyzer.prove_equal(extent, size) for extent, size in zip(extents, buffer.shape, strict=True)
    ):
        return
    small = buffer.like(shape=extents)
    small.align = buffer.align
    around = [s.var for s in program.tree.path(alloc) if isinstance(s, For)]
    domains = [_domain(low, size, around, analyzer) for low, size in zip(lows, buffer.shape, strict=True)]
    program.replace({alloc: Alloc(small, rebased(alloc.body, buffer, small, lows, domains))})


def _domain(low: Expr, size: Expr, loops: Sequence[Var], analyzer: Analyzer) -> Expr:
    """An extent that holds `low`, in no terms of loops: a box where nothing is touched may begin beyond the
    buffer."""
    found = analyzer.bounds(low, loops)
    return size if found is None else analyzer.simplify(maximum(size, found[1] + 1))


def _bounded(extent: Expr, analyzer: Analyzer) -> Expr:
    """A constant that the extent never exceeds, where there is one."""
    if const_value(extent) is not None:
        return extent
    high = analyzer.const_bounds(extent)[1]
    return extent if high == math.inf else const(max(0, int(high)))


def rebased(body: Stmt, old: Buffer, new: Buffer, lows: Sequence[Expr], domains: Sequence[Expr]) -> Stmt:
    """Accesses of `old[i]` become accesses of `new[i - low]`.

    A block's body knows no loops, so each block that needs a `low` gets it as an axis, of extent
    `domains[dim]`.
    """

    def rebuild(stmt: Stmt, bases: Sequence[Expr]) -> Stmt:
        if not any(_mentions(s, old) for s in stmts(stmt)):
            return stmt
        if isinstance(stmt, Block):
            return block(stmt, bases)
        memo: dict[Expr, Expr] = {}

        def visit(expr: Expr) -> Expr | None:
            if isinstance(expr, Load) and expr.buffer is old:
                return load(new, _minus(expr.indices, bases))
            return None

        def sub(expr: Expr) -> Expr:
            return transform(expr, visit, memo)

        if isinstance(stmt, Store):
            indices = tuple(map(sub, stmt.indices))
            if stmt.buffer is old:
                return Store(new, _minus(indices, bases), sub(stmt.value))
            return Store(stmt.buffer, indices, sub(stmt.value))
        if isinstance(stmt, Eval):
            return Eval(sub(stmt.value))
        if isinstance(stmt, For):
            stmt = replace(stmt, begin=sub(stmt.begin), extent=sub(stmt.extent))
        elif isinstance(stmt, (If, While)):
            stmt = replace(stmt, cond=sub(stmt.cond))
        elif isinstance(stmt, Let):
            stmt = replace(stmt, value=sub(stmt.value))
        return with_children(stmt, [rebuild(child, bases) for child in child_stmts(stmt)])

    def block(stmt: Block, bases: Sequence[Expr]) -> Block:
        axes: dict[Expr, Var] = {}
        for dim, base in enumerate(bases):
            if const_value(base) is None:
                axes.setdefault(base, Var(f"v_{old.name}_{dim}"))
        inner = [axes.get(base, base) for base in bases]

        def region(r: Region) -> Region:
            if r.buffer is not old:
                return r
            begins = _minus([x.begin for x in r.ranges], inner)
            return Region(new, tuple(Range(b, x.extent) for b, x in zip(begins, r.ranges, strict=True)))

        sizes = {base: domains[list(bases).index(base)] for base in axes}
        return replace(
            stmt,
            axes=(*stmt.axes, *(IterVar(var, Range(const(0), sizes[base])) for base, var in axes.items())),
            values=(*stmt.values, *axes),
            reads=tuple(map(region, stmt.reads)),
            writes=tuple(map(region, stmt.writes)),
            init=None if stmt.init is None else rebuild(stmt.init, inner),
            body=rebuild(stmt.body, inner),
        )

    return rebuild(body, lows)


def _minus(indices: Sequence[Expr], bases: Sequence[Expr]) -> tuple[Expr, ...]:
    return tuple(index - base for index, base in zip(indices, bases, strict=True))
