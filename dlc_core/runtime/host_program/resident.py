"""Values of host programs that stay on devices with their own memory.

A `ResidentValue` is on the host, on devices, or both. A copy is made once, when it is first needed, and
directly if one device can copy from the other. Values between segments of one device never leave it. Memory
of dead values is reused: a `Pool` keeps blocks by size classes, so a call needs only as many blocks of a
class as it has live values of that class.
"""

from __future__ import annotations

import math
import threading
import weakref
from collections import deque
from typing import Any

import numpy as np

from dlc_core.ir.dtype import DTypeLike, dtype
from dlc_core.runtime.call.arrays import NDArray, contiguous
from dlc_core.runtime.call.checked import Host, device_errors
from dlc_core.runtime.device import Device
from dlc_core.runtime.memory.host import bytes_of
from dlc_core.runtime.memory.recycled import class_of


class Pool:
    """A pool of memory of one device, for values of calls. `allocated` is the number of bytes that it has
    allocated.
    """

    def __init__(self, device: Device) -> None:
        self.device = device
        self.allocated = 0
        self._lock = threading.Lock()
        self._free: dict[int, list[int]] = {}
        # The garbage collector may free arrays while this thread has the lock, so this queue needs none.
        self._returned: deque[tuple[int, int]] = deque()
        self._finalizer = weakref.finalize(self, _free_all, device, self._free, self._returned)
        self._finalizer.atexit = False

    def empty(self, shape: tuple[int, ...], dtype_: DTypeLike) -> NDArray:
        """An uninitialised array. Its memory returns to the pool with the last reference to it."""
        size = class_of(math.prod(shape) * dtype(dtype_).itemsize)
        with self._lock:
            self._collect()
            blocks = self._free.get(size)
            if blocks:
                handle = blocks.pop()
            else:
                handle = self.device.alloc(size)
                self.allocated += size
        return NDArray(
            self.device, handle, shape, dtype_, free=lambda given: self._returned.append((size, given))
        )

    def upload(self, host: Host) -> NDArray:
        """Copy a host array to the device."""
        host = contiguous(host)
        made = self.empty(host.shape, host.dtype)
        if host.nbytes:
            with device_errors(self.device):
                self.device.write(made.handle, bytes_of(host))
        return made

    def copy_from(self, array: NDArray) -> NDArray | None:
        """A copy of an array of another device; None if this device cannot copy from it directly."""
        copy = getattr(self.device, "copy", None)
        if copy is None:
            return None
        made = self.empty(array.shape, array.dtype)
        with device_errors(self.device):
            is_copied = not array.nbytes or copy(made.handle, array.device, array.handle, array.nbytes)
        return made if is_copied else None

    def clear(self) -> None:
        """Free all unused blocks."""
        with self._lock:
            _free_all(self.device, self._free, self._returned)

    def _collect(self) -> None:
        """Move returned blocks to the lists of free blocks."""
        while self._returned:
            size, handle = self._returned.popleft()
            self._free.setdefault(size, []).append(handle)


def _free_all(device: Device, free: dict[int, list[int]], returned: deque[tuple[int, int]]) -> None:
    handles = [handle for blocks in free.values() for handle in blocks]
    free.clear()
    while returned:
        handles.append(returned.popleft()[1])
    for handle in handles:
        device.free(handle)


class ResidentValue:
    """A value that is on the host, on devices, or both."""

    __slots__ = ("_host", "_lock", "_on")

    def __init__(self, host: Host | None = None, on: NDArray | None = None) -> None:
        self._lock = threading.RLock()  # launches in several threads may need the value
        self._host = host
        self._on: dict[int, NDArray] = {} if on is None else {id(on.device): on}

    @property
    def shape(self) -> tuple[int, ...]:
        found = next(iter(self._on.values())) if self._host is None else self._host
        shape: tuple[int, ...] = found.shape
        return shape

    def host(self) -> Host:
        """The value as a host array. If necessary, it waits for the device and copies."""
        with self._lock:
            if self._host is None:
                array = next(iter(self._on.values()))
                with device_errors(array.device):
                    self._host = array.numpy()
            return self._host

    def on_device(self, pool: Pool) -> NDArray:
        """The value as an array on a device. If necessary, it is copied."""
        with self._lock:
            found = self._on.get(id(pool.device))
            if found is None:
                if self._host is None:
                    found = next(filter(None, map(pool.copy_from, self._on.values())), None)
                found = self._on[id(pool.device)] = pool.upload(self.host()) if found is None else found
            return found

    def item(self) -> Any:
        """The Python value of a single element, for conditions."""
        return self.host().item()


def to_resident(value: Any) -> Any:
    """Wrap host arrays as resident values, also in tuples."""
    if isinstance(value, tuple):
        return tuple([to_resident(item) for item in value])
    return value if isinstance(value, ResidentValue) else ResidentValue(np.asarray(value))


def to_host(value: Any) -> Any:
    """Convert resident values to host arrays, also in tuples."""
    if isinstance(value, tuple):
        return tuple([to_host(item) for item in value])
    return value.host() if isinstance(value, ResidentValue) else value


__all__ = ["Pool", "ResidentValue", "to_host", "to_resident"]
