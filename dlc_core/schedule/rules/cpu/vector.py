"""Vectorising a loop of known extent."""

from __future__ import annotations

from dlc_core.ir.expr import const_value
from dlc_core.schedule.handles import LoopRV
from dlc_core.schedule.schedule import Schedule


def vectorize_columns(schedule: Schedule, loop: LoopRV, lanes: int) -> None:
    """Whole vectors, unrolled, then one narrower vector for what is left; the extent must be constant."""
    extent = const_value(schedule.extent(loop))
    assert extent is not None
    if extent <= lanes:
        if extent > 1:
            schedule.vectorize(loop)
        return
    loops = schedule.split(loop, [None, lanes], tail="partition")
    schedule.unroll(loops[0])
    schedule.vectorize(loops[1])
    if loops.tail is not None and (const_value(schedule.extent(loops.tail.loop)) or 0) > 1:
        schedule.vectorize(loops.tail.loop)
