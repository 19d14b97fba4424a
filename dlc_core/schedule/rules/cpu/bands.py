"""Padding on demand: the padded input of a window is computed part by part, in the cache.

    for band of rows (parallel):                        for strip of channels (parallel):
      padded[…] = the rows that the band reads            padded[…] = the channels of the strip
      for row of the band: …                              for row: …

Bands are used if there are enough rows for all threads, else strips.
"""

from __future__ import annotations

from collections.abc import Sequence

from dlc_core.decisions import Decision
from dlc_core.ir.expr import const_value
from dlc_core.schedule.handles import BlockRV, LoopRV
from dlc_core.schedule.rules.analysis import bytes_of, is_pointwise
from dlc_core.schedule.rules.base import Machine
from dlc_core.schedule.rules.cpu.heuristics import WINDOWS
from dlc_core.schedule.rules.cpu.maps import schedule_map
from dlc_core.schedule.rules.cpu.vector import vectorize_long
from dlc_core.schedule.schedule import Schedule
from dlc_core.tir.stmt import Store

BORDER = Decision(
    "conv.border",
    "Where the padded input of windows is computed: per band of rows, per strip of channels, or before.",
    ("bands", "strips", "before"),
    has_values=True,
)


def tile_producers(
    schedule: Schedule,
    producers: Sequence[BlockRV],
    loops: Sequence[LoopRV],
    strips: LoopRV,
    machine: Machine,
) -> list[LoopRV]:
    """Compute `producers` in parts, inside the loops around their reader.

    `loops` are these loops, outer to inner, and `strips` the loop inside them. Returns the loops afterwards,
    the one to parallelise first. With symbolic sizes the producers run before the reader.
    """
    s = schedule
    row = next((i for i, loop in enumerate(loops) if const_value(s.extent(loop)) != 1), None)
    total = _bytes(s, producers)
    extent = None if row is None else const_value(s.extent(loops[row]))
    if row is None or total is None or not isinstance(extent, int):
        for handle in producers:
            schedule_map(s, handle, machine)
        return [*loops, strips]
    size = BORDER.pick(
        _rows(extent, total, machine) or 0,
        lambda: [-1, 0, *(n for n in range(1, extent + 1) if extent % n == 0)],
        lambda rows: "bands" if rows > 0 else "before" if rows else "strips",
    )
    if size < 0:
        for handle in producers:
            schedule_map(s, handle, machine)
        return [*loops, strips]
    if size:
        at, inner = s.split(loops[row], [None, size], tail="exact")
        order = [*loops[:row], at, inner, *loops[row + 1 :], strips]
    else:
        at = strips
        order = [*loops[:row], strips, *loops[row:]]
        s.reorder(*order[row:])
    lanes = machine.lanes(32)
    for handle in producers:
        s.compute_at(handle, at)
        vectorize_long(s, s.get_loops(handle)[-1], lanes)
    return order


def _bytes(s: Schedule, producers: Sequence[BlockRV]) -> int | None:
    """Return the bytes of the producers' results; None without producers, or if one is not pointwise."""
    total = 0
    for handle in producers:
        block = s.get(handle)
        if not is_pointwise(block) or not isinstance(block.body, Store) or len(block.axes) < 2:
            return None
        size = bytes_of(block.body.buffer)
        if size is None:
            return None
        total += size
    return total or None


def _rows(extent: int, total: int, machine: Machine) -> int | None:
    """Return the rows of a band, a divisor of all rows: as many as fit the cache, but at least one band per
    thread.
    """
    caches = machine.description.caches
    fitting = caches[min(1, len(caches) - 1)] // WINDOWS.band_divisor * extent // total
    for parts in (WINDOWS.bands_per_thread * machine.threads, machine.threads):
        most = min(fitting, extent // parts)
        size = max((n for n in range(1, most + 1) if extent % n == 0), default=1)
        if size >= WINDOWS.min_band_rows and (extent // size) % machine.threads == 0:
            return size
    return None


__all__ = ["tile_producers"]
