"""Asking for memory ahead of its use: `prefetch` notes what is wanted, a pass makes hints of it."""

from __future__ import annotations

from dlc_core.schedule.handles import LoopRV
from dlc_core.schedule.loops import annotate
from dlc_core.schedule.tree import Program
from dlc_core.tir.functor import buffers_read

PREFETCH = "prefetch"
"""Annotation of a loop: a buffer's name, and how many elements ahead of its reads the loop asks for."""


def prefetch(program: Program, handle: LoopRV, buffer: str, ahead: int) -> None:
    loop = program.loop(handle)
    what = f"cannot prefetch {buffer!r} in loop {loop.var.name!r}"
    known = [b.name for b in buffers_read(loop.body)]
    if known.count(buffer) != 1:
        raise program.error(
            what, loop, why="it reads no one buffer of that name", hint=f"it reads {', '.join(known)}"
        )
    if ahead < 1:
        raise program.error(what, loop, why=f"{ahead} elements ahead is not ahead")
    annotate(program, handle, PREFETCH, (buffer, ahead))


__all__ = ["PREFETCH", "prefetch"]
