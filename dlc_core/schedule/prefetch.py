"""Software prefetching: `prefetch` annotates a loop, and a pass makes hints of the annotation; `prefetch_at`
inserts a hint for any address.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dlc_core.ir.buffer import Buffer
from dlc_core.ir.expr import Var, const_value
from dlc_core.schedule.handles import LoopRV
from dlc_core.schedule.index_map import IndexMap
from dlc_core.schedule.loops import annotate
from dlc_core.schedule.regions import point_region
from dlc_core.schedule.tree import Program
from dlc_core.tir.functor import buffers_read
from dlc_core.tir.intrinsics import address_of
from dlc_core.tir.intrinsics import prefetch as hint
from dlc_core.tir.stmt import Block, Eval, IterVar, Range, seq

PREFETCH = "prefetch"
"""Annotation of a loop: a buffer's name and the prefetch distance in elements.

If iterations of surrounding loops share the prefetch, the number of parts and the first part follow.
"""
PREFETCH_PART = "prefetch_part"
"""Annotation of a loop around one with `PREFETCH`: the factor of its variable in the number of the part."""


def prefetch(
    program: Program,
    handle: LoopRV,
    buffer: str,
    ahead: int,
    among: Sequence[LoopRV] = (),
    rounds: Sequence[int] = (),
) -> None:
    loop = program.loop(handle)
    what = f"cannot prefetch {buffer!r} in loop {loop.var.name!r}"
    known = [b.name for b in buffers_read(loop.body)]
    if known.count(buffer) != 1:
        raise program.error(
            what, loop, why="it reads no one buffer of that name", hint=f"it reads {', '.join(known)}"
        )
    if ahead < 1:
        raise program.error(what, loop, why=f"{ahead} elements ahead is not ahead")
    if not among:
        annotate(program, handle, PREFETCH, (buffer, ahead))
        return
    if len(among) != len(rounds):
        raise program.error(what, loop, why=f"{len(among)} loops have {len(rounds)} numbers of rounds")
    above = {other.var for other in program.tree.loops_above(loop)}
    first, parts = 0, 1
    for other, count in zip(reversed(among), reversed(rounds), strict=True):
        outer = program.loop(other)
        begin, extent = const_value(outer.begin), const_value(outer.extent)
        if outer.var not in above:
            raise program.error(what, loop, outer, why="a loop whose rounds share it is not around it")
        if begin is None or extent is None or begin + extent > count:
            raise program.error(what, outer, why=f"it is not known to be within {count} rounds")
        if extent == 1:
            first += begin * parts
        else:
            annotate(program, other, PREFETCH_PART, parts)
        parts *= count
    annotate(program, handle, PREFETCH, (buffer, ahead, parts, first))


def prefetch_at(
    program: Program, handle: LoopRV, name: str, counts: Sequence[LoopRV], places: IndexMap
) -> None:
    loop = program.loop(handle)
    what = f"cannot prefetch {name!r} in loop {loop.var.name!r}"
    buffers = [b for b in program.func.params if isinstance(b, Buffer)]
    found = [b for b in buffers if b.name == name]
    if not found:
        known = ", ".join(b.name for b in buffers)
        raise program.error(what, loop, why="no parameter has that name", hint=f"there are {known}")
    (buffer,) = found
    outer = [program.loop(count) for count in counts]
    away = [o for o in outer if o is not loop and o not in program.tree.loops_above(loop)]
    if away:
        raise program.error(what, loop, *away, why="a loop that counts is not around it")
    if (len(places.inputs), len(places.outputs)) != (len(outer), buffer.ndim):
        raise program.error(
            what, loop, why=f"{places} is no index of {buffer.ndim} dims for {len(outer)} loops"
        )
    axes = tuple(Var(f"v_{o.var.name}") for o in outer)
    point = places(*axes)
    block = Block(
        program.fresh_block_name(f"prefetch_{name}"),
        tuple(IterVar(v, Range(o.begin, o.extent)) for v, o in zip(axes, outer, strict=True)),
        tuple(o.var for o in outer),
        (point_region(buffer, point),),
        (),
        Eval(hint(address_of(buffer, *point))),
    )
    program.replace({loop: replace(loop, body=seq(block, loop.body))})


__all__ = ["PREFETCH", "PREFETCH_PART", "prefetch", "prefetch_at"]
