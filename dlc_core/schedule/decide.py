"""Deciding conditions in blocks by the ranges of the loops around them."""

from __future__ import annotations

from dataclasses import replace

from dlc_core.ir.expr import Call, Expr, Select, loads_in, substitute, unary
from dlc_core.schedule.dependence import outer_blocks
from dlc_core.schedule.handles import LoopRV
from dlc_core.schedule.query import read_by
from dlc_core.schedule.tree import Program
from dlc_core.tir.functor import transform_stmt
from dlc_core.tir.stmt import Block


def decide(program: Program, handle: LoopRV) -> None:
    for block in outer_blocks(program.loop(handle).body):
        program.replace({block: _decided(program, block)})


def _decided(program: Program, block: Block) -> Block:
    analyzer = program.analyzer(*list(program.tree.ancestors(block))[:1])
    bindings = {axis.var: at for axis, at in zip(block.axes, block.values, strict=True)}

    def choose(e: Expr) -> Expr | None:
        if isinstance(e, Call) and e.name == "if_then_else":
            cond, then, otherwise = e.args
        elif isinstance(e, Select):
            cond, then, otherwise = e.cond, e.a, e.b
        else:
            return None
        known = substitute(cond, bindings)
        if loads_in(known):
            return None
        if analyzer.prove(known):
            return then
        return otherwise if analyzer.prove(unary("not", known)) else None

    found = transform_stmt(block, expr_fn=choose)
    assert isinstance(found, Block)
    left = read_by(found)
    return replace(found, reads=tuple(region for region in found.reads if region.buffer in left))


__all__ = ["decide"]
