"""Queries about a program: its blocks, their loops, producers and consumers."""

from __future__ import annotations

from collections.abc import Iterable

from dlc_core.ir.buffer import Buffer
from dlc_core.ir.expr import loads_in
from dlc_core.schedule.dependence import outer_blocks
from dlc_core.schedule.handles import BlockRV, LoopRV
from dlc_core.schedule.regions import is_opaque
from dlc_core.schedule.tree import Program
from dlc_core.tir.functor import child_stmts, exprs_of
from dlc_core.tir.stmt import Block, Stmt, Store


def written_by(stmt: Stmt) -> list[Buffer]:
    """The outer buffers that a statement writes, by first use; opaque blocks write those they declare."""
    found, own = _used(stmt, writes=True)
    return [b for b in found if b not in own]


def read_by(stmt: Stmt) -> list[Buffer]:
    """The outer buffers that a statement reads, by first use; opaque blocks read those they declare."""
    found, own = _used(stmt, writes=False)
    return [b for b in found if b not in own]


def _used(root: Stmt, *, writes: bool) -> tuple[dict[Buffer, None], set[Buffer]]:
    found: dict[Buffer, None] = {}
    own: set[Buffer] = set()
    work = [root]
    while work:
        stmt = work.pop()
        if isinstance(stmt, Block) and is_opaque(stmt):
            found.update((r.buffer, None) for r in (stmt.writes if writes else stmt.reads))
            continue
        own.update(stmt.bound_buffers())
        if not writes:
            found.update((e.buffer, None) for e in loads_in(*exprs_of(stmt)))
        elif isinstance(stmt, Store):
            found[stmt.buffer] = None
        work += child_stmts(stmt)[::-1]
    return found, own


def writers(program: Program, buffers: Iterable[Buffer]) -> list[Block]:
    """The outermost blocks that write one of the buffers."""
    selected = set(buffers)
    return [b for b in program.tree.outermost if not selected.isdisjoint(written_by(b))]


def readers(program: Program, buffers: Iterable[Buffer]) -> list[Block]:
    """The outermost blocks that read one of the buffers."""
    selected = set(buffers)
    return [b for b in program.tree.outermost if not selected.isdisjoint(read_by(b))]


def producers(program: Program, handle: BlockRV) -> list[BlockRV]:
    """The outermost blocks that write what the block reads, except itself and the blocks that contain it."""
    block = program.block(handle)
    around = program.tree.path(block)
    return [BlockRV(b.name) for b in writers(program, read_by(block)) if b not in around]


def consumers(program: Program, handle: BlockRV) -> list[BlockRV]:
    """The outermost blocks that read what the block writes, except itself and the blocks that contain it."""
    block = program.block(handle)
    around = program.tree.path(block)
    return [BlockRV(b.name) for b in readers(program, written_by(block)) if b not in around]


def output_blocks(program: Program) -> list[BlockRV]:
    """The blocks that write a parameter of the function."""
    return [BlockRV(b.name) for b in writers(program, program.func.buffers)]


def loops_of(program: Program, handle: BlockRV) -> list[LoopRV]:
    return [LoopRV(s.var) for s in program.tree.loops_above(program.block(handle))]


def child_blocks(program: Program, handle: BlockRV | LoopRV) -> list[BlockRV]:
    if isinstance(handle, LoopRV):
        return [BlockRV(b.name) for b in outer_blocks(program.loop(handle))]
    block = program.block(handle)
    inside = [block.body] if block.init is None else [block.init, block.body]
    return [BlockRV(b.name) for part in inside for b in outer_blocks(part)]
