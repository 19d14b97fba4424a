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

from dlc_core.runtime.memory.host import aligned_bytes, allocator

Host = np.ndarray[Any, Any]
Block = tuple[Host, Host]
"""The array that owns memory, and its aligned part."""

LARGE = 1 << 16
"""The minimum size in bytes of results whose memory is kept."""
CALLS = 2
"""The number of calls whose result memory is kept. Callers often use results during the next
call."""

_STEPS = 8
"""Size classes from a power of two to the next: at most an eighth of a block is unused."""


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
        self._kept: dict[int, deque[Block]] = {}
        self._bytes = 0
        self._limit = 0

    def allocators(
        self, shapes: Sequence[tuple[int, ...]], dtypes: Sequence[np.dtype[Any]]
    ) -> list[Callable[[], Host]]:
        """Functions that create the results of a call: uninitialised arrays of these shapes."""
        made: list[Callable[[], Host]] = []
        total = 0
        for shape, dtype in zip(shapes, dtypes, strict=True):
            size = math.prod(shape) * dtype.itemsize
            if size < LARGE:
                made.append(allocator(shape, dtype))
            else:
                total += class_of(size)
                made.append(partial(self._allocate, class_of(size), shape, dtype))
        self._limit = max(self._limit, CALLS * total)
        return made

    def clear(self) -> None:
        """Free all kept memory that no result uses."""
        with self._lock:
            self._kept.clear()
            self._bytes = 0

    def _allocate(self, size: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Host:
        kept = self._kept.get(size)
        for _ in range(len(kept) if kept else 0):
            assert kept is not None
            try:
                # Only one thread can take a block from the queue, so the reference count is not racy.
                found, references = _oldest(kept)
            except IndexError:
                break
            array: Host | None = np.ndarray(shape, dtype, found[1]) if references == _UNUSED else None
            kept.append(found)
            if array is not None:
                return array
        block = _block(aligned_bytes(size))
        fresh: Host = np.ndarray(shape, dtype, block[1])
        with self._lock:
            own = self._kept.setdefault(size, deque())
            own.append(block)
            self._bytes += size
            for other in sorted(self._kept, key=size.__eq__):
                self._drop_oldest(other)
        return fresh

    def _drop_oldest(self, size: int) -> None:
        """Drop the oldest blocks of a size while more bytes than the limit are kept. They are freed with
        their last array.
        """
        kept = self._kept[size]
        while kept and self._bytes > self._limit:
            with suppress(IndexError):
                kept.popleft()
                self._bytes -= size


def _block(aligned: Host) -> Block:
    owner = aligned.base
    return (owner if isinstance(owner, np.ndarray) else aligned), aligned


def _oldest(kept: deque[Block]) -> tuple[Block, int]:
    """Remove the oldest block; return it with the reference count of its owner."""
    found = kept.popleft()
    return found, sys.getrefcount(found[0])


_UNUSED = _oldest(deque([_block(aligned_bytes(1))]))[1]
"""The reference count that `_oldest` returns for memory that no array uses."""


__all__ = ["Recycled", "class_of"]
