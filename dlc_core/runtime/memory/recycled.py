"""Reuse of result memory after the caller has released the result.

The system maps and zeroes new memory page by page at the first write, which takes longer than the write. So
the memory of large results is kept, as much as for `CALLS` calls.
"""

from __future__ import annotations

import math
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np

from dlc_core.runtime.memory.host import aligned_bytes, maker

Host = np.ndarray[Any, Any]
Kept = tuple[Host, Host]
"""The array that owns memory, and its aligned part."""

LARGE = 1 << 16
"""The minimum size in bytes of results whose memory is kept."""
CALLS = 2
"""The number of calls whose result memory is kept. Callers often hold the results of one call while they make
the next."""

_STEPS = 8
"""Size classes between a power of two and the next: at most an eighth of a block is unused."""


def class_of(size: int) -> int:
    """The size class of a value: the bytes of its block."""
    if size <= 64:
        return 64
    step = max(64, (1 << (size - 1).bit_length()) // (2 * _STEPS))
    return -(-size // step) * step


class Recycled:
    """Memory for the results of one entry point."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[int, deque[Kept]] = {}
        self._bytes = 0
        self._most = 0

    def makers(
        self, shapes: Sequence[tuple[int, ...]], dtypes: Sequence[np.dtype[Any]]
    ) -> list[Callable[[], Host]]:
        """Functions that create the results of a call: uninitialised arrays of these shapes."""
        made: list[Callable[[], Host]] = []
        total = 0
        for shape, dtype in zip(shapes, dtypes, strict=True):
            size = math.prod(shape) * dtype.itemsize
            if size < LARGE:
                made.append(maker(shape, dtype))
            else:
                total += class_of(size)
                made.append(partial(self._make, class_of(size), shape, dtype))
        self._most = max(self._most, CALLS * total)
        return made

    def clear(self) -> None:
        """Free all kept memory that no result uses."""
        with self._lock:
            self._kept.clear()
            self._bytes = 0

    def _make(self, size: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Host:
        kept = self._kept.get(size)
        for _ in range(len(kept) if kept else 0):
            assert kept is not None
            try:
                # Only one thread can take a block from the queue, so the reference count is not racy.
                found, holders = _next(kept)
            except IndexError:
                break
            made: Host | None = np.ndarray(shape, dtype, found[1]) if holders == _UNHELD else None
            kept.append(found)
            if made is not None:
                return made
        new = _owned(aligned_bytes(size))
        fresh: Host = np.ndarray(shape, dtype, new[1])
        with self._lock:
            own = self._kept.setdefault(size, deque())
            own.append(new)
            self._bytes += size
            for other in sorted(self._kept, key=size.__eq__):
                self._leave(other)
        return fresh

    def _leave(self, size: int) -> None:
        """Stop keeping the oldest blocks of a size while there are too many. They are freed with their last
        array.
        """
        kept = self._kept[size]
        while kept and self._bytes > self._most:
            with suppress(IndexError):
                kept.popleft()
                self._bytes -= size


def _owned(aligned: Host) -> Kept:
    owner = aligned.base
    return (owner if isinstance(owner, np.ndarray) else aligned), aligned


def _next(kept: deque[Kept]) -> tuple[Kept, int]:
    """The oldest block, and its reference count."""
    found = kept.popleft()
    return found, sys.getrefcount(found[0])


_UNHELD = _next(deque([_owned(aligned_bytes(1))]))[1]
"""The reference count of memory that has no other owner."""


__all__ = ["Recycled", "class_of"]
