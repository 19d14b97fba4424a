"""Host memory: aligned allocation and the addresses of arrays."""

from __future__ import annotations

import ctypes
import math
import mmap
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np

from dlc_core.diag import RuntimeFailure

NDArray = np.ndarray[Any, Any]

ALIGN = 64
"""The alignment in bytes: the size of a cache line, and of the widest vector register."""

LARGE_PAGE = 1 << 21
"""The size in bytes of large pages."""

MIN_LARGE = 1 << 19
"""The minimum size in bytes of long-lived memory for which large pages are requested."""

MIN_ALIGNED = 4096
"""Results of at least this many bytes are aligned. For smaller ones, alignment costs more than it gains."""


def aligned_bytes(size: int) -> NDArray:
    """Allocate uninitialised bytes, aligned to ALIGN. Raises RuntimeFailure if there is not enough memory."""
    try:
        raw = np.empty(size + ALIGN, np.uint8)
    except (MemoryError, ValueError, OverflowError) as error:
        raise RuntimeFailure(f"cannot allocate {size} bytes", why=str(error)) from None
    start = -address(raw) % ALIGN
    return raw[start : start + size]


def long_lived_bytes(size: int) -> NDArray:
    """Like `aligned_bytes`, for memory that many calls use. It is in large pages if the system supports them.

    Large pages need fewer TLB entries, and hardware prefetchers do not stop at small page boundaries.
    """
    advice = getattr(mmap, "MADV_HUGEPAGE", None)
    if size < MIN_LARGE or advice is None:
        return aligned_bytes(size)
    length = -(-size // LARGE_PAGE) * LARGE_PAGE
    try:
        memory = mmap.mmap(-1, length + LARGE_PAGE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except (OSError, ValueError, OverflowError) as error:
        raise RuntimeFailure(f"cannot allocate {size} bytes", why=str(error)) from None
    raw = np.frombuffer(memory, np.uint8)
    start = -address(raw) % LARGE_PAGE
    # The request fails if large pages are not available. Normal pages are used then.
    with suppress(OSError):
        memory.madvise(advice, start, length)
    return raw[start : start + size]


def empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray:
    """An uninitialised array. Large ones are aligned to ALIGN."""
    size = math.prod(shape) * dtype.itemsize
    if size < MIN_ALIGNED:
        return np.empty(shape, dtype)
    return aligned_bytes(size).view(dtype).reshape(shape)


def copied(array: NDArray) -> NDArray:
    """A copy in C order. Raises RuntimeFailure if there is not enough memory."""
    made = empty(array.shape, array.dtype)
    made[...] = array
    return made


def allocator(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Callable[[], NDArray]:
    """A function that creates arrays like `empty`, of one shape and dtype.

    Raises RuntimeFailure for an empty shape the product of whose other dims overflows in NumPy.
    """
    if 0 in shape and math.prod(dim for dim in shape if dim) * dtype.itemsize > sys.maxsize:
        raise RuntimeFailure(
            f"a result has the shape {shape}",
            why="the dims other than 0 multiply to more bytes than a process can address",
            hint="give it smaller sizes",
        )
    small = math.prod(shape) * dtype.itemsize < MIN_ALIGNED
    return partial(np.empty if small else empty, shape, dtype)


def bytes_of(array: NDArray) -> memoryview:
    """The bytes of a contiguous array, writeable if the array is."""
    flat: Any = array.reshape(-1).view(np.uint8)
    return memoryview(flat)


def _address_slow(array: NDArray) -> int:
    """The address of an array's first element."""
    return int(array.ctypes.data)


def _choose_address() -> Callable[[NDArray], int]:
    """The fastest function for the address of an array that works in this interpreter.

    NumPy's public `array.ctypes.data` takes more than a microsecond. In NumPy's binary interface the data
    pointer is the first field after the object header. This is tested before it is used.
    """
    head = object.__basicsize__
    read = ctypes.c_void_p.from_address

    def fast(array: NDArray) -> int:
        return read(id(array) + head).value or 0

    probe = np.arange(12, dtype=np.float32).reshape(3, 4)
    views = (probe, probe[1:, 2:], probe.T, np.empty((0,), np.int8), np.zeros((), np.complex128))
    try:
        agrees = all(fast(view) == _address_slow(view) for view in views)
    except (ValueError, TypeError):
        return _address_slow
    return fast if agrees else _address_slow


address = _choose_address()
"""The address of the first element of an array. The array must stay alive while the address is used."""


__all__ = [
    "ALIGN",
    "NDArray",
    "address",
    "aligned_bytes",
    "allocator",
    "bytes_of",
    "copied",
    "empty",
    "long_lived_bytes",
]
