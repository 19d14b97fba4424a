"""Borders made where they are read: the padded input of a window, a band of rows at a time, in the cache.

for band of rows (parallel):
  padded[…] = the rows that the band reads, with their border
  for row of the band: …
"""

from __future__ import annotations

from collections.abc import Sequence

from dlc_core.ir.expr import const_value
from dlc_core.schedule.handles import BlockRV, LoopRV
from dlc_core.schedule.rules.analysis import bytes_of, is_pointwise
from dlc_core.schedule.rules.base import Machine
from dlc_core.schedule.rules.cpu.maps import schedule_map
from dlc_core.schedule.rules.cpu.vector import vectorize_long
from dlc_core.schedule.schedule import Schedule
from dlc_core.tir.stmt import Store

CACHE_SHARE = 4
"""A band takes one part in so many of the second cache."""
LEAST_ROWS = 4
"""Rows of a band: the borders of smaller ones would be made too often."""
BANDS_PER_THREAD = 4


def bands(
    schedule: Schedule, producers: Sequence[BlockRV], loops: Sequence[LoopRV], machine: Machine
) -> list[LoopRV]:
    """Cut the rows of `loops` (outer to inner, around the reader) into bands and make there what `producers`
    give; returns the loops.  Where sizes are not known, or too few rows fit, producers run before.
    """
    s = schedule
    row = next((i for i, loop in enumerate(loops) if const_value(s.extent(loop)) != 1), None)
    size = None if row is None else _rows(s, producers, loops[row], machine)
    if row is None or size is None:
        for handle in producers:
            schedule_map(s, handle, machine)
        return list(loops)
    band, inner = s.split(loops[row], [None, size], tail="exact")
    lanes = machine.lanes(32)
    for handle in producers:
        s.compute_at(handle, band)
        vectorize_long(s, s.get_loops(handle)[-1], lanes)
    return [*loops[:row], band, inner, *loops[row + 1 :]]


def _rows(s: Schedule, producers: Sequence[BlockRV], loop: LoopRV, machine: Machine) -> int | None:
    """Rows of a band: a divisor of the loop's extent."""
    extent = const_value(s.extent(loop))
    if not producers or not isinstance(extent, int):
        return None
    total = 0
    for handle in producers:
        block = s.get(handle)
        if not is_pointwise(block) or not isinstance(block.body, Store) or len(block.axes) < 2:
            return None
        size = bytes_of(block.body.buffer)
        if size is None:
            return None
        total += size
    caches = machine.description.caches
    fitting = caches[min(1, len(caches) - 1)] // CACHE_SHARE * extent // max(total, 1)
    if machine.threads > 1:
        fitting = min(fitting, max(extent // (BANDS_PER_THREAD * machine.threads), LEAST_ROWS))
    size = max((n for n in range(1, min(fitting, extent) + 1) if extent % n == 0), default=1)
    return size if size >= min(LEAST_ROWS, extent) else None


__all__ = ["bands"]
