"""Proofs of what functions outside of a program touch: the regions that blocks declare.

A block that passes addresses to an intrinsic or to a function outside of the module says in `reads` and
`writes` what that touches.  Such a region is a box: it is proved to lie in its buffer, in every dim, wherever
the block runs.  Kernels of the module and bulk copies are not looked at here: their own parameters and boxes
are proved.
"""

from __future__ import annotations

from collections.abc import Iterator

from dlc_core.ir.buffer import Buffer
from dlc_core.ir.expr import Call, Expr, Load, const, const_value, logical_and, post_order
from dlc_core.passes.tir.bounds.facts import Fact
from dlc_core.passes.tir.bounds.prover import Access, Proof, Prover, facts_in_block, with_facts
from dlc_core.tir.functor import child_stmts, exprs_of
from dlc_core.tir.intrinsics import BULK, KERNEL, LAUNCH
from dlc_core.tir.stmt import Block, PrimFunc, Region, Stmt

_LOOKED_AT = (KERNEL, LAUNCH)


def prove_regions(func: PrimFunc) -> Proof:
    """Which regions of blocks that pass addresses lie in their buffers for all values of its parameters.

    An open one says in `when` under which sizes it does, where that is known.
    """
    blocks = {b: passed for b in _blocks(func.body) if (passed := _passed(b))}
    prover = Prover(func, {})
    if not blocks:
        return prover.proof
    prover.learn_ranges()
    for stmt, fact in with_facts(func.body):
        if isinstance(stmt, Block) and stmt in blocks:
            inside = facts_in_block(stmt, fact)
            for region in dict.fromkeys((*stmt.reads, *stmt.writes)):
                if region.buffer in blocks[stmt]:
                    _region(prover, stmt, region, inside, blocks[stmt][region.buffer])
    return prover.proof


def _region(prover: Prover, block: Block, region: Region, fact: Fact | None, callee: str) -> None:
    when: Expr | None = logical_and()
    for one, dim in zip(region.ranges, region.buffer.shape, strict=True):
        enough = prover.is_between(one.begin, dim - one.extent + const(1), fact)
        when = None if when is None or enough is None else logical_and(when, enough)
    if when is not None and const_value(when):
        prover.proof.proved += 1
        return
    box = ", ".join(map(str, region.ranges))
    why = f"block {block.name} passes {region.buffer.name}[{box}] of {region.buffer!r} to {callee}"
    prover.proof.open.append(Access(block, "passes", region.buffer, (), (), why, when))


def _blocks(root: Stmt) -> Iterator[Block]:
    work = [root]
    while work:
        stmt = work.pop()
        if isinstance(stmt, Block):
            yield stmt
        work += child_stmts(stmt)


def _passed(block: Block) -> dict[Buffer, str]:
    """The buffers whose addresses a block passes by itself, and the function that gets them."""
    found: dict[Buffer, str] = {}
    work = [stmt for stmt in (block.init, block.body) if stmt is not None]
    while work:
        stmt = work.pop()
        if isinstance(stmt, Block):
            continue
        work += child_stmts(stmt)
        for e in post_order(*exprs_of(stmt)):
            if not isinstance(e, Call) or e.name in ("prefetch", BULK) or e.name.startswith(_LOOKED_AT):
                continue
            for arg in e.args:
                if isinstance(arg, Call) and arg.name == "address_of" and isinstance(arg.args[0], Load):
                    found.setdefault(arg.args[0].buffer, e.name)
    return found


__all__ = ["prove_regions"]
