"""`compact_buffers`: allocate each intermediate buffer in the innermost loop that contains all its uses, and
shrink it to the box that is accessed there."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from dlc_core.arith.analyzer import Analyzer
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.expr import (
    Expr,
    Load,
    Var,
    const,
    const_value,
    load,
    maximum,
    transform,
)
from dlc_core.schedule.alignment import Alignment, alignments, strides_for, with_strides
from dlc_core.schedule.dependence import axis_kinds
from dlc_core.schedule.recurrence import recurrent_buffers
from dlc_core.schedule.regions import Access, Span, accesses, escapes, extent_of, hull, iter_map
from dlc_core.schedule.tree import Program, Tree, touched, touches, with_children
from dlc_core.support.record import record
from dlc_core.tir.functor import bound_vars, child_stmts, stmts
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
    """Move every allocation inward and shrink its buffer; results, loops and block names are unchanged."""
    program = Program(func)
    for buffer in list(program.tree.allocs):
        sink(program, buffer)
    shrink(program)
    return program.func


def sink(program: Program, buffer: Buffer) -> None:
    """Move an allocation into loops as long as their iterations pass no values through the buffer."""
    alloc = program.tree.allocs[buffer]
    touching = program.tree.touching(buffer)
    spot = alloc.body
    inside: list[Stmt] = []
    while True:
        if isinstance(spot, For):
            if spot.kind in ("vectorized", "unrolled") or not is_private_to(program, spot, buffer):
                break
            spot = spot.body
        elif isinstance(spot, (Alloc, View, Let)) and spot.body in touching:
            if not touches(spot, buffer):
                spot = spot.body
            else:
                break
        elif isinstance(spot, Seq):
            inside = [part for part in spot.stmts if part in touching]
            if len(inside) != 1:
                break
            spot = inside[0]
        else:
            break
    if not touching:
        program.replace({alloc: alloc.body})
        return
    if spot is alloc.body and (not isinstance(spot, Seq) or len(inside) == len(spot.stmts)):
        return
    wrapped: Stmt = Alloc(buffer, spot)
    if isinstance(spot, Seq):
        first, last = spot.stmts.index(inside[0]), spot.stmts.index(inside[-1])
        wrapped = seq(
            *spot.stmts[:first], Alloc(buffer, seq(*spot.stmts[first : last + 1])), *spot.stmts[last + 1 :]
        )
    program.replace({alloc: Tree(alloc.body).replace({spot: wrapped})})


def is_private_to(program: Program, loop: For, buffer: Buffer) -> bool:
    """Whether every element that an iteration reads was written earlier in the same iteration."""
    found = accesses(loop.body, [buffer])
    if any(a.block is None for a in found) or escapes(loop.body, buffer):
        return False
    analyzer = program.analyzer(loop, inside=True)
    order = list(dict.fromkeys(a.block for a in found if a.block is not None))
    written: dict[Block, list[Span] | None] = {}
    for position, block in enumerate(order):
        if "reduce" in axis_kinds(block, loop.var):
            return False
        own = [a for a in found if a.block is block]
        reads = [a for a in own if not a.writes]
        writes = [a for a in own if a.writes]
        starts_itself = bool(writes) and block.init is not None and buffer not in recurrent_buffers(block)
        if reads and not starts_itself:
            needed = hull(reads, analyzer)
            earlier = [written[b] for b in order[:position] if b in written]
            if not any(box is not None and contains(box, needed, analyzer) for box in earlier):
                return False
        if writes:
            written[block] = exact_box(writes, analyzer)
    return True


def contains(box: Sequence[Span], part: Sequence[Span], analyzer: Analyzer) -> bool:
    return all(
        analyzer.prove(b.low <= p.low) and analyzer.prove(p.high <= b.high)
        for b, p in zip(box, part, strict=True)
    )


def exact_box(writes: Sequence[Access], analyzer: Analyzer) -> list[Span] | None:
    """The box that writes cover exactly; None if they are not known to cover a box."""
    if not writes:
        return None
    first = _box_of(writes[0], analyzer)
    seen = {(writes[0].indices, writes[0].loops)}
    for write in writes[1:]:
        if first is None:
            return None
        if (write.indices, write.loops) in seen or write.indices == writes[0].indices:
            continue
        seen.add((write.indices, write.loops))
        box = _box_of(write, analyzer)
        if box is None or not (contains(first, box, analyzer) and contains(box, first, analyzer)):
            return None
    return first


def _box_of(write: Access, analyzer: Analyzer) -> list[Span] | None:
    found = iter_map(write.indices, write.loops, write.predicate, analyzer)
    if found is None:
        return None
    box: list[Span] = []
    for low, extent in zip(found[1], found[0].extents, strict=True):
        if extent is None:
            return None
        box.append(Span(low, analyzer.simplify(low + extent - 1)))
    return box


@record(frozen=True)
class _Box:
    """The smaller buffer, its origin in the old buffer, and upper bounds of the origin's domains."""

    buffer: Buffer
    lows: tuple[Expr, ...]
    domains: tuple[Expr, ...]


def shrink(program: Program) -> None:
    """Shrink every allocated buffer to the box that is accessed during its live range."""
    found: dict[Buffer, list[Access]] = {}
    for access in accesses(program.func.body, program.tree.allocs):
        found.setdefault(access.buffer, []).append(access)
    for buffer in found:
        alloc = program.tree.allocs[buffer]
        above = list(program.tree.ancestors(alloc))
        if any(isinstance(s, Block) for s in above):
            # A block's body sees only its axes, so the box of a buffer allocated there is over these.
            found[buffer] = accesses(alloc.body, [buffer])
        else:
            outer = sum(isinstance(s, For) for s in above)
            found[buffer] = [replace(a, loops=a.loops[outer:]) for a in found[buffer]]
    aligned = alignments(program.tree.blocks.values())
    boxes = {
        b: box for b, own in found.items() if (box := _box(program, b, own, aligned.get(b, []))) is not None
    }
    if boxes:
        tree = program.tree
        touching = {stmt for buffer in boxes for stmt in tree.touching(buffer)}
        touching.update(stmt for buffer in boxes for stmt in tree.ancestors(tree.allocs[buffer]))
        program.set_body(_Rebase(boxes, touching).stmt(program.func.body, {}))


def _box(
    program: Program, buffer: Buffer, found: Sequence[Access], aligned: Sequence[Alignment]
) -> _Box | None:
    alloc = program.tree.allocs[buffer]
    if (
        (buffer.strides is not None and not aligned)
        or const_value(buffer.offset) != 0
        or escapes(alloc.body, buffer)
    ):
        return None
    analyzer = program.analyzer(alloc)
    above = [s for s in program.tree.ancestors(alloc) if isinstance(s, (For, Block))]
    around = [v for s in above for v in bound_vars(s)]
    box = hull(found, analyzer)
    extents = [_bounded(extent_of(item, analyzer), analyzer) for item in box]
    lows = tuple(item.low for item in box)
    if all(const_value(low) == 0 for low in lows) and all(
        analyzer.prove_equal(extent, size) for extent, size in zip(extents, buffer.shape, strict=True)
    ):
        return None
    small = buffer.like(shape=extents)
    small.align = buffer.align
    if buffer.strides is not None:
        small = with_strides(small, strides_for(small.shape, aligned))
    domains = (_domain(low, size, around, analyzer) for low, size in zip(lows, buffer.shape, strict=True))
    return _Box(small, lows, tuple(domains))


def _domain(low: Expr, size: Expr, loops: Sequence[Var], analyzer: Analyzer) -> Expr:
    """An extent above every value of `low` that depends on no loop.

    It may exceed the buffer's size: an empty box may start after the buffer's end.
    """
    found = analyzer.bounds(low, loops)
    return size if found is None else analyzer.simplify(maximum(size, found[1] + 1))


def _bounded(extent: Expr, analyzer: Analyzer) -> Expr:
    """A constant upper bound of the extent; the extent itself if there is none."""
    if const_value(extent) is not None:
        return extent
    high = analyzer.const_bounds(extent)[1]
    return extent if high == math.inf else const(max(0, int(high)))


Bases = Mapping[Buffer, tuple[Expr, ...]]
"""The origin of each shrunk buffer in the old one, in terms of visible variables."""


class _Rebase:
    """Rewrite accesses `old[i]` to `new[i - low]`.

    A block's body cannot use loop variables, so `low` becomes an axis of each block that needs it.
    """

    def __init__(self, boxes: Mapping[Buffer, _Box], touching: set[Stmt]) -> None:
        self.boxes = boxes
        self.touching = touching

    def stmt(self, stmt: Stmt, bases: Bases) -> Stmt:
        if isinstance(stmt, Alloc) and stmt.buffer in self.boxes:
            box = self.boxes[stmt.buffer]
            return Alloc(box.buffer, self.stmt(stmt.body, {**bases, stmt.buffer: box.lows}))
        if stmt not in self.touching:
            return stmt
        match stmt:
            case Block():
                return self.block(stmt, bases)
            case Store():
                return self.store(stmt, bases)
        memo: dict[Expr, Expr] = {}
        match stmt:
            case Eval():
                return Eval(self.expr(stmt.value, bases, memo))
            case If() | While():
                stmt = replace(stmt, cond=self.expr(stmt.cond, bases, memo))
            case Let():
                stmt = replace(stmt, value=self.expr(stmt.value, bases, memo))
        return with_children(stmt, [self.stmt(child, bases) for child in child_stmts(stmt)])

    def expr(self, expr: Expr, bases: Bases, memo: dict[Expr, Expr]) -> Expr:
        def visit(e: Expr) -> Expr | None:
            if isinstance(e, Load) and e.buffer in bases:
                return load(self.boxes[e.buffer].buffer, _minus(e.indices, bases[e.buffer]))
            return None

        return transform(expr, visit, memo)

    def store(self, stmt: Store, bases: Bases) -> Store:
        memo: dict[Expr, Expr] = {}
        indices = tuple(self.expr(i, bases, memo) for i in stmt.indices)
        value = self.expr(stmt.value, bases, memo)
        if stmt.buffer not in bases:
            return Store(stmt.buffer, indices, value)
        return Store(self.boxes[stmt.buffer].buffer, _minus(indices, bases[stmt.buffer]), value)

    def block(self, stmt: Block, bases: Bases) -> Block:
        axes: dict[Expr, IterVar] = {}
        inner: dict[Buffer, tuple[Expr, ...]] = {}
        used = {b for s in stmts(stmt) for b in touched(s) if b in bases}
        for buffer, lows in bases.items():
            if buffer not in used:
                continue
            for dim, low in enumerate(lows):
                if const_value(low) is None and low not in axes:
                    domain = Range(const(0), self.boxes[buffer].domains[dim])
                    axes[low] = IterVar(Var(f"v_{buffer.name}_{dim}"), domain)
            inner[buffer] = tuple(axes[low].var if low in axes else low for low in lows)

        def region(r: Region) -> Region:
            if r.buffer not in inner:
                return r
            begins = _minus([x.begin for x in r.ranges], inner[r.buffer])
            ranges = tuple(Range(b, x.extent) for b, x in zip(begins, r.ranges, strict=True))
            return Region(self.boxes[r.buffer].buffer, ranges)

        return replace(
            stmt,
            axes=(*stmt.axes, *axes.values()),
            values=(*stmt.values, *axes),
            reads=tuple(map(region, stmt.reads)),
            writes=tuple(map(region, stmt.writes)),
            init=None if stmt.init is None else self.stmt(stmt.init, inner),
            body=self.stmt(stmt.body, inner),
        )


def _minus(indices: Sequence[Expr], bases: Sequence[Expr]) -> tuple[Expr, ...]:
    return tuple(index - base for index, base in zip(indices, bases, strict=True))
