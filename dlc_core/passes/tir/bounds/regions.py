"""Proofs about the accesses of external functions, by the regions that blocks declare.

A block that passes an address to an intrinsic or an external function declares in `reads` and `writes` the
boxes that the function accesses. It is proved that each box is inside its buffer, in every dim, for every
execution of the block, and that the address is in a box. Kernels of the module and tensor copies are not
checked here; their parameters and boxes are proved elsewhere. Calls outside of blocks declare no regions, so
nothing is proved about them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dlc_core.ir.buffer import Buffer
from dlc_core.ir.expr import Call, Expr, Load, const, const_value, logical_and, post_order
from dlc_core.passes.tir.bounds.facts import Fact, facts_in_block, with_facts
from dlc_core.passes.tir.bounds.proof import Access, Proof
from dlc_core.passes.tir.bounds.prover import Prover
from dlc_core.support.record import record
from dlc_core.tir.functor import child_stmts, exprs_of
from dlc_core.tir.intrinsics import BULK, KERNEL, LAUNCH
from dlc_core.tir.stmt import Block, PrimFunc, Region, Stmt, View

_PROVED_ELSEWHERE = (KERNEL, LAUNCH)


@record(frozen=True)
class _PassedAddress:
    """An address that a call passes, the block around it, and the buffer that its regions name."""

    block: Block
    callee: str
    address: Load
    base: Buffer

    @property
    def regions(self) -> list[Region]:
        found = dict.fromkeys((*self.block.reads, *self.block.writes))
        return [region for region in found if region.buffer is self.base]


def prove_regions(func: PrimFunc) -> Proof:
    """Prove which regions of blocks that pass addresses are inside their buffers, for all values of the
    parameters.

    For a region without a proof, `when` is the condition on sizes under which it is inside, if known.
    """
    addresses_by_stmt: dict[Stmt, list[_PassedAddress]] = {}
    for stmt, one in _passed(func.body):
        addresses_by_stmt.setdefault(stmt, []).append(one)
    prover = Prover(func, {})
    if not addresses_by_stmt:
        return prover.proof
    callees = {one.block: one.callee for addresses in addresses_by_stmt.values() for one in addresses}
    bases = {(one.block, one.base) for addresses in addresses_by_stmt.values() for one in addresses}
    prover.learn_ranges()
    for stmt, fact in with_facts(func.body):
        if isinstance(stmt, Block) and stmt in callees:
            inside = facts_in_block(stmt, fact)
            for region in dict.fromkeys((*stmt.reads, *stmt.writes)):
                if (stmt, region.buffer) in bases:
                    _region(prover, stmt, region, inside, callees[stmt])
        for one in addresses_by_stmt.get(stmt, ()):
            _address(prover, one, fact)
    return prover.proof


def _region(prover: Prover, block: Block, region: Region, fact: Fact | None, callee: str) -> None:
    when: Expr | None = logical_and()
    for one, dim in zip(region.ranges, region.buffer.shape, strict=True):
        enough = prover.is_between(one.begin, dim - one.extent + const(1), fact)
        when = None if when is None or enough is None else logical_and(when, enough)
    if when is not None and const_value(when):
        prover.proof.proved += 1
        return
    why = f"block {block.name} passes {_region_text(region)} of {region.buffer!r} to {callee}"
    prover.proof.open.append(Access(block, "passes", region.buffer, (), (), why, when))


def _address(prover: Prover, one: _PassedAddress, fact: Fact | None) -> None:
    """Check that an address is in a declared region. Windows are proved separately, and are skipped."""
    indices, regions = one.address.indices, one.regions
    if regions and one.address.buffer is not one.base:
        return
    if any(_is_in_region(prover, indices, region, fact) for region in regions):
        return
    at = f"{one.address.buffer.name}[{', '.join(map(str, indices))}]"
    declared = "declares " + (
        " and ".join(map(_region_text, regions)) if regions else f"no region of {one.base.name}"
    )
    why = f"block {one.block.name} passes the address of {at} to {one.callee}, and {declared}"
    prover.proof.open.append(Access(one.block, "passes", one.address.buffer, indices, (), why))


def _is_in_region(prover: Prover, indices: Sequence[Expr], region: Region, fact: Fact | None) -> bool:
    offsets = [
        prover.facts.at(fact).simplify(index - box.begin)
        for index, box in zip(indices, region.ranges, strict=True)
    ]
    if all(const_value(offset) == 0 for offset in offsets):
        return True  # an empty region has a begin too, and nothing of it is accessed
    found = (
        prover.is_between(offset, box.extent, fact)
        for offset, box in zip(offsets, region.ranges, strict=True)
    )
    return all(enough is not None and const_value(enough) for enough in found)


def _region_text(region: Region) -> str:
    return f"{region.buffer.name}[{', '.join(map(str, region.ranges))}]"


def _passed(root: Stmt) -> Iterator[tuple[Stmt, _PassedAddress]]:
    """Yield the addresses that statements in blocks pass, with the statements."""
    bases: dict[Buffer, Buffer] = {}
    work: list[tuple[Stmt, Block | None]] = [(root, None)]
    while work:
        stmt, block = work.pop()
        if isinstance(stmt, Block):
            block = stmt
        elif block is not None:
            if isinstance(stmt, View):
                bases[stmt.buffer] = bases.get(stmt.base, stmt.base)
            for name, address in _addresses(stmt):
                base = bases.get(address.buffer, address.buffer)
                yield stmt, _PassedAddress(block, name, address, base)
        work += [(child, block) for child in reversed(child_stmts(stmt))]


def _addresses(stmt: Stmt) -> Iterator[tuple[str, Load]]:
    """Yield the addresses that calls in a statement pass, with the names of the callees."""
    for e in post_order(*exprs_of(stmt)):
        if not isinstance(e, Call) or e.name in ("prefetch", BULK) or e.name.startswith(_PROVED_ELSEWHERE):
            continue
        for arg in e.args:
            if isinstance(arg, Call) and arg.name == "address_of" and isinstance(arg.args[0], Load):
                yield e.name, arg.args[0]


__all__ = ["prove_regions"]
