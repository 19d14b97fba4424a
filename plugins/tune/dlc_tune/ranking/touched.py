"""The memory that strided accesses reach: distinct cache lines, contiguous parts, and the room in a cache."""

from __future__ import annotations

import math
from collections.abc import Iterable

from dlc_core.support.record import record
from dlc_core.target.description import Description


@record(frozen=True)
class Touched:
    """The memory that an access reaches in some loops."""

    bytes: float
    """The bytes of its distinct cache lines."""
    run: float
    """The bytes of its contiguous parts."""
    room: float
    """The bytes of a cache that hold it. Rows at distances with a large power of two as a factor are mapped
    to few sets of a cache, and take the room of all sets."""


@record(frozen=True)
class Lines:
    """The bytes of a cache line, and those of a way of the cache: addresses that differ by a multiple of the
    latter are mapped to the same set."""

    line: int = 64
    way: int = 4096

    @staticmethod
    def of(machine: Description) -> Lines:
        size = machine.caches[0] if machine.caches else Lines().way
        return Lines(machine.cache_line, max(machine.cache_line, size // max(1, machine.cache_ways)))


def touched(dims: Iterable[tuple[float, int]], itemsize: int, lines: Lines) -> Touched:
    """The memory that an access reaches, from the strides in elements and the extents of its dims.

    >>> touched([(1000, 4), (1, 16)], 4, Lines())
    Touched(bytes=256.0, run=64.0, room=256.0)
    >>> touched([(1024, 4), (1, 16)], 4, Lines())
    Touched(bytes=256.0, run=64.0, room=16384.0)
    """
    run = 1.0
    rows: list[list[float]] = []
    """The distance and the number of equal parts, inner before outer."""
    for stride, extent in sorted((s, e) for s, e in dims if s and e > 1):
        if not rows and stride <= run:
            run += stride * (extent - 1)
        elif rows and stride % rows[-1][0] == 0 and stride <= rows[-1][0] * rows[-1][1]:
            rows[-1][1] += stride / rows[-1][0] * (extent - 1)
        else:
            rows.append([stride, float(extent)])
    if rows and rows[0][0] * itemsize < lines.line:
        run += rows[0][0] * (rows[0][1] - 1)
        rows = rows[1:]
    whole = math.ceil(run * itemsize / lines.line) * float(lines.line)
    count = math.prod([number for _, number in rows])
    room = whole * count
    if rows:
        distance = int(rows[0][0] * itemsize)
        period = min(distance & -distance, lines.way) if distance else lines.way
        room *= max(1.0, period / whole)
    return Touched(whole * count, run * itemsize, room)


__all__ = ["Lines", "Touched", "touched"]
