"""Allocation of a `Layout` of guard mode: memory between protected pages.

If a process accesses a protected page, the operating system ends it or calls a signal handler. `owner_of`
describes an address by the nearest value.
"""

from __future__ import annotations

import ctypes
import mmap
import weakref
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from dlc_core.diag import RuntimeFailure, UnsupportedError
from dlc_core.runtime.guard.mode import PAGE, Layout, SizedSlot
from dlc_core.runtime.memory.host import NDArray, address

_PROT_NONE, _PROT_READ = 0, 1
_LIVE: weakref.WeakValueDictionary[int, GuardedMemory] = weakref.WeakValueDictionary()
"""All live memory by its start address."""


@cache
def _protect() -> Callable[[int, int, int], None]:
    """The system function that sets the access rights of pages."""
    try:
        mprotect = ctypes.CDLL(None, use_errno=True).mprotect
    except (OSError, AttributeError, TypeError) as error:
        raise UnsupportedError(
            "guard mode is not possible here", why="this system cannot protect pages", hint="use Linux"
        ) from error
    mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]

    def protect(start: int, size: int, rights: int) -> None:
        if size and mprotect(start, size, rights):
            raise RuntimeFailure("pages cannot be protected", why=f"error {ctypes.get_errno()}")

    return protect


class GuardedMemory:
    """Memory with the layout `layout`. The pages of its slots hold the slots' fill bytes; all others are
    protected.
    """

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        length = -(-layout.size // PAGE) * PAGE
        try:
            memory = mmap.mmap(-1, length + 2 * PAGE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except (OSError, ValueError, OverflowError) as error:
            raise RuntimeFailure(f"cannot allocate {layout.size} bytes", why=str(error)) from None
        mapped = np.frombuffer(memory, np.uint8)
        self._all = mapped[PAGE : PAGE + length]
        self._start = address(mapped) + PAGE
        previous = 0
        for slot, first, end in self.layout.pages():
            if not previous <= first <= end <= length:
                raise RuntimeFailure(f"{slot.name} is not inside of the {layout.size} bytes of memory")
            self._all[first:end] = slot.fill
            _protect()(self._start + previous, first - previous, _PROT_NONE)
            previous = end
        _protect()(self._start - PAGE, PAGE, _PROT_NONE)
        _protect()(self._start + previous, length - previous + PAGE, _PROT_NONE)
        _LIVE[self._start] = self

    @property
    def __array_interface__(self) -> dict[str, Any]:
        size = self.layout.size - self.layout.begin
        return {
            "version": 3,
            "typestr": "|u1",
            "shape": (size,),
            "data": (self._start + self.layout.begin, False),
        }

    @property
    def bytes(self) -> NDArray:
        """The bytes from the layout's `begin` on; the array keeps the memory alive."""
        return np.asarray(self)

    def part(self, slot: SizedSlot) -> NDArray:
        """The bytes of a slot."""
        return self._all[slot.offset : slot.end]

    def seal(self) -> None:
        """Make the memory read-only."""
        for _, first, end in self.layout.pages():
            _protect()(self._start + first, end - first, _PROT_READ)

    def check(self) -> None:
        """Raise RuntimeFailure if bytes of a value's pages outside of the value were written."""
        for slot, first, end in self.layout.pages():
            for where, rest in (
                ("before", self._all[first : slot.offset]),
                ("after", self._all[slot.end : end]),
            ):
                if rest.size and not (rest == slot.fill).all():
                    count = int((rest != slot.fill).sum())
                    raise RuntimeFailure(f"{count} bytes {where} {slot.name} have been written")

    def describe(self, at: int) -> str | None:
        """The position of an address relative to the nearest value, as text; None if it is outside of this
        memory.
        """
        offset = at - self._start
        if not -PAGE <= offset < self._all.size + PAGE:
            return None
        return min((_distance(slot, offset) for slot in self.layout.slots), default=(0, ""))[1]


def _distance(slot: SizedSlot, at: int) -> tuple[int, str]:
    """The bytes between an offset and a slot, and the position of the offset as text."""
    if at < slot.offset:
        return slot.offset - at, f"{slot.offset - at} bytes before {slot.name}, of {slot.size} bytes"
    if at < slot.end:
        text = f"byte {at - slot.offset} of {slot.name}, of {slot.size} bytes, which may not be written"
        return 0, text
    return at - slot.end, f"{at - slot.end} bytes after {slot.name}, of {slot.size} bytes"


def live() -> list[GuardedMemory]:
    """All live guarded memory, oldest first."""
    return list(_LIVE.values())


def owner_of(at: int) -> str | None:
    """Describe an address by the nearest value; None if it is in no guarded memory."""
    return next(filter(None, (memory.describe(at) for memory in live())), None)


def guarded_copy(layout: Layout, data: NDArray) -> GuardedMemory:
    """Guarded memory that holds a copy of one value."""
    made = GuardedMemory(layout)
    made.bytes[:] = data.reshape(-1).view(np.uint8)
    return made


def shaped(memory: NDArray, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray:
    """View bytes as an array. Raises RuntimeFailure for a shape that NumPy does not support."""
    try:
        return memory.view(dtype).reshape(shape)
    except ValueError as error:  # it has no elements, and the product of its other dims exceeds 63 bits
        raise RuntimeFailure(f"a result cannot have the shape {shape}", why=str(error)) from None


__all__ = ["GuardedMemory", "guarded_copy", "live", "owner_of", "shaped"]
