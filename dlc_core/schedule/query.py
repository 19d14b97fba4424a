"""Questions about a program: its blocks, their loops, and who reads what they write."""

from __future__ import annotations

from collections.abc import Iterable

from dlc_core.ir.buffer import Buffer
from dlc_core.ir.expr import loads_in
from dlc_core.schedule.dependence import outer_blocks
from dlc_core.schedule.handles import BlockRV, LoopRV
from dlc_core.schedule.tree import Program
from dlc_core.tir.functor import exprs_of, stmts
from dlc_core.tir.stmt import Block, Stmt, Store


def written_by(stmt: Stmt) -> list[Buffer]:
    return list(dict.fromkeys(s.buffer for s in stmts(stmt) if isinstance(s, Store)))


def read_by(stmt: Stmt) -> list[Buffer]:
    """Buffers loaded from, in first-use order."""
    return list(dict.fromkeys(e.buffer for s in stmts(stmt) for e in loads_in(*exprs_of(s))))


def writers(program: Program, buffers: Iterable[Buffer]) -> list[Block]:
    wanted = set(buffers)
    return [b for b in program.tree.blocks.values() if not wanted.isdisjoint(written_by(b))]


def readers(program: Program, buffers: Iterable[Buffer]) -> list[Block]:
    wanted = set(buffers)
    return [b for b in program.tree.blocks.values() if not wanted.isdisjoint(read_by(b))]


def producers(program: Program, handle: BlockRV) -> list[BlockRV]:
    """Blocks that write what the block reads, itself left out."""
    block = program.block(handle)
    return [BlockRV(b.name) for b in writers(program, read_by(block)) if b is not block]


def consumers(program: Program, handle: BlockRV) -> list[BlockRV]:
    """Blocks that read what the block writes, itself left out."""
    block = program.block(handle)
    return [BlockRV(b.name) for b in readers(program, written_by(block)) if b is not block]


def output_blocks(program: Program) -> list[BlockRV]:
    """Blocks that write a parameter of the function."""
    return [BlockRV(b.name) for b in writers(program, program.func.buffers)]


def loops_of(program: Program, handle: BlockRV) -> list[LoopRV]:
    return [LoopRV(s.var) for s in program.tree.loops_above(program.block(handle))]


def child_blocks(program: Program, handle: BlockRV | LoopRV) -> list[BlockRV]:
    if isinstance(handle, LoopRV):
        return [BlockRV(b.name) for b in outer_blocks(program.loop(handle))]
    block = program.block(handle)
    inside = [block.body] if block.init is None else [block.init, block.body]
    return [BlockRV(b.name) for part in inside for b in outer_blocks(part)]
