"""Fewer garbage collections while a compile runs.

A compile creates hundreds of thousands of immutable nodes without reference cycles, which reference counting
frees.  With Python's default thresholds the collector scans them repeatedly, takes a tenth of the compile's
time, and frees almost nothing.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

THRESHOLDS = (200_000, 20, 100)
"""Allocations before a collection, and collections of a generation before one of the next."""

_lock = Lock()
_inside = 0
_before: tuple[int, int, int] = (0, 0, 0)


@contextmanager
def fewer_collections() -> Iterator[None]:
    """Raise the collector's thresholds until the last of these blocks, of any thread, has ended.

    A disabled collector stays disabled. Thresholds that other code sets in the meantime are kept.
    """
    global _inside, _before
    with _lock:
        if not _inside:
            _before = gc.get_threshold()
            if 0 < _before[0] < THRESHOLDS[0]:
                gc.set_threshold(*THRESHOLDS)
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if not _inside and gc.get_threshold() == THRESHOLDS:
                gc.set_threshold(*_before)


__all__ = ["fewer_collections"]
