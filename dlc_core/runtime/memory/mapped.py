"""Memory of this process that the system can take back: pages of files, and what the C library keeps.

    drop_pages(array)     drop the pages of a file mapped read-only that an array is a view of
    drop_code(folder)     drop the code pages of the libraries of a folder
    return_free()         give freed memory back to the system

A compile reads each weight of a model's file once and writes it in another layout. Without these functions,
the process keeps both copies in memory until it ends.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from dlc_core.runtime.memory.host import NDArray, address

LEAST = 1 << 16
"""The minimum size in bytes of arrays whose pages are dropped: a call of the system costs as much as reading
a smaller array."""


def drop_pages(array: NDArray) -> None:
    """Drop the pages of an array from this process's memory if it is a view of a file mapped read-only.

    A later access reads them again, usually from the system's cache of files. Other arrays, and those of
    memory that may have been written, keep their pages.
    """
    owner = _mapping(array)
    if owner is None or array.nbytes < LEAST:
        return
    start = address(np.frombuffer(owner, np.uint8))
    begin, end = (at - start for at in _extent(array))
    begin = -(-begin // mmap.PAGESIZE) * mmap.PAGESIZE
    if begin < end:
        with suppress(OSError, ValueError):
            owner.madvise(mmap.MADV_DONTNEED, begin, end - begin)


def _mapping(array: NDArray) -> mmap.mmap | None:
    """The mapping whose memory an array is a view of, if no one can have written to it."""
    owner: Any = array
    while isinstance(owner, (np.ndarray, memoryview)):
        owner = owner.base if isinstance(owner, np.ndarray) else owner.obj
    if not isinstance(owner, mmap.mmap) or not hasattr(mmap, "MADV_DONTNEED"):
        return None
    return owner if memoryview(owner).readonly else None


def _extent(array: NDArray) -> tuple[int, int]:
    """The addresses of the first byte of an array and of the end of its last."""
    low = high = address(array)
    for size, stride in zip(array.shape, array.strides, strict=True):
        reach = (size - 1) * stride
        low, high = low + min(0, reach), high + max(0, reach)
    return low, high + array.itemsize


def drop_code(folder: str) -> None:
    """Drop the code pages of the shared libraries in a folder, on Linux.

    The system maps them again at the next call, from its cache of files, which takes a few milliseconds.
    """
    advise = _madvise()
    for start, size in _code_of(folder):
        advise(start, size, mmap.MADV_DONTNEED)


@cache
def _code_of(folder: str) -> tuple[tuple[int, int], ...]:
    """The addresses and sizes of the executable parts of loaded libraries. Nothing ever writes to these."""
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
    except OSError:  # another system
        return ()
    found = []
    for line in lines:
        extent, protection, *_, path = line.split(maxsplit=5)
        if protection == "r-xp" and path.startswith(f"{folder}{os.sep}"):
            begin, end = (int(word, 16) for word in extent.split("-"))
            found.append((begin, end - begin))
    return tuple(found)


@cache
def _madvise() -> Callable[[int, int, int], int]:
    library = ctypes.CDLL(None)
    library.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    found: Callable[[int, int, int], int] = library.madvise
    return found


def return_free() -> None:
    """Give the memory that has been freed back to the system, where the C library can."""
    trim = _trim()
    if trim is not None:
        trim(0)


@cache
def _trim() -> Callable[[int], int] | None:
    """glibc's `malloc_trim`; None if the C library has no such function."""
    try:
        found: Callable[[int], int] | None = getattr(ctypes.CDLL(None), "malloc_trim", None)
    except (OSError, TypeError):  # this system has no such library
        return None
    return found


__all__ = ["drop_code", "drop_pages", "return_free"]
