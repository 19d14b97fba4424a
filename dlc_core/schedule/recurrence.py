"""Recurrences: blocks that read elements which they computed at other points, as scans do, and the loops that
must keep their order.

The elements that a block reads from a buffer and those that it writes there are compared as boxes over the
iterations of loops. If they are not proved to be different, they count as a dependence.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dlc_core.arith.analyzer import Analyzer
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.expr import Expr, Var, loads_in, substitute
from dlc_core.schedule.regions import Access, Span, accesses, bind_all, hull
from dlc_core.schedule.tree import Program
from dlc_core.tir.functor import allocations, exprs_of, stmts, stores_in
from dlc_core.tir.stmt import Block, For


def recurrent_buffers(block: Block) -> list[Buffer]:
    """The outer buffers that a block reads at other indices than it writes."""
    written: dict[Buffer, set[tuple[Expr, ...]]] = {}
    for store in stores_in(block.body):
        written.setdefault(store.buffer, set()).add(store.indices)
    found: dict[Buffer, None] = {}
    for stmt in stmts(block.body):
        for load in loads_in(*exprs_of(stmt)):
            if load.buffer in written and load.indices not in written[load.buffer]:
                found[load.buffer] = None
    if not found:
        return []
    own = set(allocations(block.body))
    return [b for b in found if b not in own]


def passes_on(program: Program, block: Block, loop: For) -> Buffer | None:
    """A buffer through which a block may pass values between iterations of a loop, if there is one."""
    for buffer in recurrent_buffers(block):
        if not _is_free(program, block, buffer, loop, ()):
            return buffer
    return None


def violated_by_order(
    program: Program, block: Block, old: Sequence[For], new: Sequence[For]
) -> Buffer | None:
    """A buffer whose dependences another loop order would violate, if there is one.

    `old` and `new` are the same nested loops around the block, in two orders.
    """
    for buffer in recurrent_buffers(block):
        carrying = [s for s in old if not _is_free(program, block, buffer, s, [o for o in old if o is not s])]
        if carrying != [s for s in new if s in carrying]:
            return buffer
    return None


def _is_free(program: Program, block: Block, buffer: Buffer, loop: For, others: Iterable[For]) -> bool:
    """Whether a loop provably carries no dependence, for any iterations of the loops `others`.

    Other loops around `loop` are fixed; loops inside it vary.
    """
    inner = [s for s in program.tree.loops_above(block) if s not in program.tree.loops_above(loop)]
    moving = list(dict.fromkeys([*others, *(s for s in inner if s is not loop)]))
    found = accesses(block, [buffer])
    analyzer = program.analyzer(*list(program.tree.ancestors(loop))[:1])
    writes = {a.indices: a for a in found if a.writes}
    reads = {a.indices: a for a in found if not a.writes and a.indices not in writes}
    return all(_are_disjoint(w, r, loop, moving, analyzer) for w in writes.values() for r in reads.values())


def _are_disjoint(write: Access, read: Access, loop: For, moving: Sequence[For], analyzer: Analyzer) -> bool:
    """Whether a write and a read of different iterations are provably disjoint.

    In some dim all indices read must be below, or all above, those that other iterations write.
    """
    one, other = Var(loop.var.name), Var(loop.var.name)
    with analyzer.scope():
        bind_all(analyzer, [loop])
        boxes = [hull([a], analyzer, outer=moving, clip=False) for a in (write, read)]
    with analyzer.scope():
        bind_all(analyzer, [loop])
        for var in (one, other):
            analyzer.bind(var, loop.begin, loop.extent)
        for w, r in zip(*boxes, strict=True):
            if _below(_at(w, loop.var, one), _at(r, loop.var, other), analyzer):
                return True
            if _below(_at(r, loop.var, other), _at(w, loop.var, one), analyzer):
                return True
            if _in_step(w, r, loop.var, analyzer):
                return True
    return False


def _below(a: Span, b: Span, analyzer: Analyzer) -> bool:
    return analyzer.prove(a.high < b.low)


def _in_step(w: Span, r: Span, var: Var, analyzer: Analyzer) -> bool:
    """Whether indices rise with the loop, and those of an iteration are below those of the next ones."""
    following_w, following_r = _at(w, var, var + 1), _at(r, var, var + 1)
    rising = analyzer.prove(w.low <= following_w.low) and analyzer.prove(r.low <= following_r.low)
    return rising and _below(w, following_r, analyzer) and _below(r, following_w, analyzer)


def _at(item: Span, var: Var, value: Expr) -> Span:
    return Span(substitute(item.low, {var: value}), substitute(item.high, {var: value}))


__all__ = ["passes_on", "recurrent_buffers", "violated_by_order"]
