"""Vectorisation of loops: whole vectors first, then narrower powers of two for the tail."""

from __future__ import annotations

from dlc_core.diag import ScheduleError
from dlc_core.ir.expr import const_value
from dlc_core.schedule.handles import LoopRV
from dlc_core.schedule.rules.cpu.heuristics import LOOPS
from dlc_core.schedule.schedule import Schedule


def vectors_of(extent: int, lanes: int) -> int:
    """Return into how many vectors `vectorize_columns` splits an extent: 28 of 16 lanes are 16 + 8 + 4."""
    return extent // lanes + (extent % lanes).bit_count()


def vectorize_columns(schedule: Schedule, loop: LoopRV, lanes: int) -> None:
    """Unroll a loop of constant extent into vectors; on scalar machines, into elements."""
    extent = const_value(schedule.extent(loop))
    if extent is None:
        raise ScheduleError(
            f"loop {loop.name!r} of extent {schedule.extent(loop)} cannot be vectorised",
            why="it is not constant",
        )
    if extent < 2:
        return
    if lanes < 2:
        schedule.unroll(loop)
        return
    width = min(lanes, 1 << (extent.bit_length() - 1))
    if width == extent:
        schedule.vectorize(loop)
        return
    loops = schedule.split(loop, [None, width], tail="partition")
    schedule.unroll(loops[0])
    schedule.vectorize(loops[1])
    if loops.tail is not None:
        vectorize_columns(schedule, loops.tail.loop, lanes)


def vectorize_long(schedule: Schedule, loop: LoopRV, lanes: int) -> None:
    """Vectorise a loop into whole vectors, which are unrolled if there are few.

    The tail has narrower vectors, or single elements if it is symbolic.
    """
    extent = const_value(schedule.extent(loop))
    if lanes < 2:
        return
    if extent is not None and extent <= LOOPS.unrolled_vectors * lanes:
        vectorize_columns(schedule, loop, lanes)
        return
    loops = schedule.split(loop, [None, lanes], tail="partition")
    schedule.vectorize(loops[1])
    if loops.tail is not None and const_value(schedule.extent(loops.tail.loop)) is not None:
        vectorize_columns(schedule, loops.tail.loop, lanes)
