"""Allocation of a `Layout` of guard mode: memory between protected pages.

If a process accesses a protected page, the operating system ends it or calls a signal handler. `owner_of`
returns the value next to an address.
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
from dlc_core.runtime.guard.mode import PAGE, Layout, Region
from dlc_core.runtime.memory.host import NDArray, address

_NONE, _READ = 0, 1
_LIVE: weakref.WeakValueDictionary[int, GuardedMemory] = weakref.WeakValueDictionary()
"""Live memory by its begin address."""


@cache
def _protect() -> Callable[[int, int, int], None]:
    """The system function that sets the access rights of pages."""
    try:
        call = ctypes.CDLL(None, use_errno=True).mprotect
    except (OSError, AttributeError, TypeError) as error:
        raise UnsupportedError(
            "guard mode is not possible here", why="this system cannot protect pages", hint="use Linux"
        ) from error
    call.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]

    def protect(start: int, size: int, how: int) -> None:
        if size and call(start, size, how):
            raise RuntimeFailure("pages cannot be protected", why=f"error {ctypes.get_errno()}")

    return protect


class GuardedMemory:
    """Memory of a layout, its regions filled."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        length = -(-layout.size // PAGE) * PAGE
        try:
            memory = mmap.mmap(-1, length + 2 * PAGE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except (OSError, ValueError, OverflowError) as error:
            raise RuntimeFailure(f"cannot allocate {layout.size} bytes", why=str(error)) from None
        whole = np.frombuffer(memory, np.uint8)
        self._all = whole[PAGE : PAGE + length]
        self._start = address(whole) + PAGE
        last = 0
        for region, first, end in self.layout.pages():
            if not last <= first <= end <= length:
                raise RuntimeFailure(f"{region.name} does not lie in {layout.size} bytes of memory")
            self._all[first:end] = region.fill
            _protect()(self._start + last, first - last, _NONE)
            last = end
        _protect()(self._start - PAGE, PAGE, _NONE)
        _protect()(self._start + last, length - last + PAGE, _NONE)
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

    def part(self, region: Region) -> NDArray:
        """The bytes of a region."""
        return self._all[region.offset : region.end]

    def seal(self) -> None:
        """From now on nobody may write its regions."""
        for _, first, end in self.layout.pages():
            _protect()(self._start + first, end - first, _READ)

    def check(self) -> None:
        """Raise RuntimeFailure if the rest of a value's own pages was written."""
        for region, first, end in self.layout.pages():
            for where, rest in (
                ("before", self._all[first : region.offset]),
                ("behind", self._rest(region, end)),
            ):
                if rest.size and not (rest == region.fill).all():
                    count = int((rest != region.fill).sum())
                    raise RuntimeFailure(f"{count} bytes {where} {region.name} have been written")

    def describe(self, where: int) -> str | None:
        """Describe the neighbourhood of an address; None if it is elsewhere."""
        at = where - self._start
        if not -PAGE <= at < self._all.size + PAGE:
            return None
        return min((_distance(region, at) for region in self.layout.regions), default=(0, ""))[1]

    def _rest(self, region: Region, end: int) -> NDArray:
        return self._all[region.end : end]


def _distance(region: Region, at: int) -> tuple[int, str]:
    if at < region.offset:
        return region.offset - at, f"{region.offset - at} bytes before {region.name}, of {region.size} bytes"
    if at < region.end:
        return (
            0,
            f"byte {at - region.offset} of {region.name}, of {region.size} bytes, which may not be written",
        )
    return at - region.end, f"{at - region.end} bytes behind {region.name}, of {region.size} bytes"


def live() -> list[GuardedMemory]:
    """All that there is, in the order in which it was made."""
    return list(_LIVE.values())


def owner_of(where: int) -> str | None:
    """Name the value next to an address; None outside of guarded memory."""
    return next(filter(None, (memory.describe(where) for memory in live())), None)


def guarded_copy(layout: Layout, data: NDArray) -> GuardedMemory:
    """Memory of one value, which it has."""
    made = GuardedMemory(layout)
    made.bytes[:] = data.reshape(-1).view(np.uint8)
    return made


def shaped(memory: NDArray, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray:
    """Bytes as an array."""
    return memory.view(dtype).reshape(shape)


__all__ = ["GuardedMemory", "guarded_copy", "live", "owner_of", "shaped"]
