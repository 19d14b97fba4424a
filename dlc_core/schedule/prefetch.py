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
from dlc_core.schedule.tree import Program
from dlc_core.tir.functor import buffers_read
from dlc_core.tir.intrinsics import address_of
from dlc_core.tir.intrinsics import prefetch as hint
from dlc_core.tir.stmt import Block, Eval, IterVar, Range, Region, seq

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
    distance: int,
    shared_by: Sequence[LoopRV] = (),
    extents: Sequence[int] = (),
) -> None:
    loop = program.loop(handle)
    what = f"cannot prefetch {buffer!r} in loop {loop.var.name!r}"
    known = [b.name for b in buffers_read(loop.body)]
    if known.count(buffer) != 1:
        raise program.error(
            what,
            loop,
            why="it does not read exactly one buffer of that name",
            hint=f"it reads {', '.join(known)}",
        )
    if distance < 1:
        raise program.error(what, loop, why=f"the distance of {distance} elements is not positive")
    if not shared_by:
        annotate(program, handle, PREFETCH, (buffer, distance))
        return
    if len(shared_by) != len(extents):
        raise program.error(what, loop, why=f"{len(shared_by)} loops have {len(extents)} extents")
    above = {other.var for other in program.tree.loops_above(loop)}
    first, parts = 0, 1
    for other, count in zip(reversed(shared_by), reversed(extents), strict=True):
        outer = program.loop(other)
        begin, extent = const_value(outer.begin), const_value(outer.extent)
        if outer.var not in above:
            raise program.error(what, loop, outer, why="a loop that shares it is not around it")
        if begin is None or extent is None or begin + extent > count:
            raise program.error(what, outer, why=f"it is not known to stay within {count} iterations")
        if extent == 1:
            first += begin * parts
        else:
            annotate(program, other, PREFETCH_PART, parts)
        parts *= count
    annotate(program, handle, PREFETCH, (buffer, distance, parts, first))


def prefetch_at(
    program: Program, handle: LoopRV, name: str, loops: Sequence[LoopRV], index_map: IndexMap
) -> None:
    loop = program.loop(handle)
    what = f"cannot prefetch {name!r} in loop {loop.var.name!r}"
    buffers = [b for b in program.func.params if isinstance(b, Buffer)]
    found = [b for b in buffers if b.name == name]
    if not found:
        known = ", ".join(b.name for b in buffers)
        raise program.error(what, loop, why="no parameter has that name", hint=f"there are {known}")
    (buffer,) = found
    outer = [program.loop(each) for each in loops]
    away = [o for o in outer if o is not loop and o not in program.tree.loops_above(loop)]
    if away:
        raise program.error(what, loop, *away, why="a loop of the index is not around it")
    if (len(index_map.inputs), len(index_map.outputs)) != (len(outer), buffer.ndim):
        raise program.error(
            what, loop, why=f"{index_map} does not map {len(outer)} loops to {buffer.ndim} dims"
        )
    axes = tuple(Var(f"v_{o.var.name}") for o in outer)
    point = index_map(*axes)
    block = Block(
        program.fresh_block_name(f"prefetch_{name}"),
        tuple(IterVar(v, Range(o.begin, o.extent)) for v, o in zip(axes, outer, strict=True)),
        tuple(o.var for o in outer),
        (Region.point(buffer, point),),
        (),
        Eval(hint(address_of(buffer, *point))),
    )
    program.replace({loop: replace(loop, body=seq(block, loop.body))})


__all__ = ["PREFETCH", "PREFETCH_PART", "prefetch", "prefetch_at"]
