"""The protocols of devices, which run artefacts and which a vendor implements, and memory of devices on the
host.

A device has seven methods: `alloc free write read load launch sync`.  It names memory by opaque handles,
which are integers, and addresses if the device has addresses.  These members are optional:

    host_memory = True              handles are addresses of this process, and calls copy nothing
    dlpack_device = (type, id)      the memory in DLPack's terms; arrays are exchanged without a copy
    queued = True                   launches may be asynchronous; launches, copies and frees take effect in
                                    the order of the requests; a call waits only for results that it reads
    measure(entry, buffers, scalars, threads, figures)
                                    a synchronous launch that adds, for each call of a kernel, its nanoseconds
                                    and 1 to figures[site]: int64, by the entry's call sites
    cycles                          a counter of clock cycles that launches advance, an integer; profiles
                                    read it before and after each segment while the device is idle, and
                                    divide by `frequency` of the target's description
    copy(handle, source, from_handle, size) -> bool
                                    copies bytes directly from the memory of the device `source`, which may be
                                    the device itself; it comes after earlier and before later requests of
                                    both devices; False if the device cannot copy from that one
    alloc_guarded(layout) -> handle
                                    memory for guard mode: see `runtime.guard.mode.Layout`
    record() -> event               a mark in the queue: `event.done`, `event.wait()`, and optionally
                                    `event.time`, the `time.perf_counter()` at which it was reached
    source_formats                  a mapping of those of `formats` whose code a compiler or linker of this
                                    machine reads to their rules (`target.confined`); files of them need a
                                    permission of the caller, see `dlc.open`
    check(artifact)                 raises ArtifactError if this machine cannot run it; runs nothing
    check_machine(metadata)         the same for an exported library, by its artefact's metadata
    at(target) -> Device            the device that a target's options name, if there are several; opens none

An entry point, which `Loaded.entry` returns, may have

    prepare(buffers, scalars, threads) -> Callable[[], None]     a prepared call, for bound calls
    launcher(buffers, scalars) -> Callable[[Sequence[int], Sequence[int], int], None]
                                                    `launch` and `sync` in one, for this number of each
    evaluate(arrays, weights, threads) -> Sequence[array]        takes and returns arrays, without buffers

Without `prepare` every bound call is a `launch`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from dlc_core.diag import ArtifactError, RuntimeFailure
from dlc_core.runtime.memory.host import NDArray, address, aligned_bytes
from dlc_core.target import Artifact, Target


@runtime_checkable
class Loaded(Protocol):
    """Code ready to run on a device."""

    def entry(self, symbol: str) -> Any:
        """The entry point with this name, for `Device.launch`."""
        ...

    def close(self) -> None:
        """Free the memory of the code. None of it may be running."""
        ...


@runtime_checkable
class Device(Protocol):
    """A device. `formats` are the artefact formats that it loads. Sizes are in bytes."""

    name: str
    formats: tuple[str, ...]

    def alloc(self, size: int, align: int = 64) -> int:
        """Allocate uninitialised memory. Raises RuntimeFailure if there is not enough."""
        ...

    def free(self, handle: int) -> None:
        """Free memory; earlier launches may still use it.

        The garbage collector may call it in a thread that is inside another method of the device. It must not
        wait for a lock that such a thread holds. `backend.blocks.Blocks` needs none.
        """
        ...

    def write(self, handle: int, data: memoryview, offset: int = 0) -> None:
        """Copy bytes to the device."""
        ...

    def read(self, handle: int, out: memoryview, offset: int = 0) -> None:
        """Copy bytes from the device to fill `out`."""
        ...

    def load(self, artifact: Artifact) -> Loaded:
        """Load code, without running any of it. Raises ArtifactError if it is not for this machine."""
        ...

    def launch(self, entry: Any, buffers: Sequence[int], scalars: Sequence[int], threads: int) -> None:
        """Run an entry point on buffers (handles in the order of parameters) and integers. It may return
        before the launch has finished.
        """
        ...

    def sync(self) -> None:
        """Wait until all launches have finished. Raises RuntimeFailure if one failed."""
        ...


class HostMemory:
    """The methods `alloc free write read sync` for a device that works in this process's memory. Handles are
    addresses.
    """

    host_memory = True

    def __init__(self) -> None:
        self._live: dict[int, NDArray] = {}

    def alloc(self, size: int, align: int = 64) -> int:
        memory = aligned_bytes(max(size, 1) + align)
        start = -address(memory) % align
        handle = address(memory) + start
        self._live[handle] = memory[start : start + size]
        return handle

    def free(self, handle: int) -> None:
        if self._live.pop(handle, None) is None:
            raise RuntimeFailure(f"freeing {handle:#x}, which is not allocated")

    def write(self, handle: int, data: memoryview, offset: int = 0) -> None:
        source = np.frombuffer(data, np.uint8)
        self._window(handle, offset, source.nbytes)[:] = source

    def read(self, handle: int, out: memoryview, offset: int = 0) -> None:
        target = np.frombuffer(out, np.uint8)
        target[:] = self._window(handle, offset, target.nbytes)

    def sync(self) -> None:
        """Launches return when they have finished."""

    def _window(self, handle: int, offset: int, size: int) -> NDArray:
        memory = self._live.get(handle)
        if memory is None or not 0 <= offset <= offset + size <= memory.nbytes:
            raise RuntimeFailure(f"bytes {offset}:{offset + size} are outside the memory at {handle:#x}")
        return memory[offset : offset + size]


def check_format(device: Device, artifact: Artifact) -> None:
    """Raise ArtifactError for code of a format that the device does not run."""
    if artifact.format not in device.formats:
        raise ArtifactError(
            f"device {device.name!r} does not run the format {artifact.format!r}",
            hint=f"it runs {', '.join(device.formats)}; compile the model again",
        )


def device_at(device: Any, target: Target) -> Any:
    """The device that runs code for a target: `device`, or the one of several that the target selects."""
    choose = getattr(device, "at", None)
    return device if choose is None else choose(target)


def shares_memory(device: Any) -> bool:
    """Whether a device's handles are addresses of this process."""
    return bool(getattr(device, "host_memory", False))


def is_queued(device: Any) -> bool:
    """Whether launches on a device are asynchronous."""
    return bool(getattr(device, "queued", False))


def prepare(
    device: Device, entry: Any, buffers: Sequence[int], scalars: Sequence[int], threads: int
) -> Callable[[], None]:
    """A function that calls an entry point with these arguments, and waits for it."""
    own = getattr(entry, "prepare", None)
    if own is not None:
        ready: Callable[[], None] = own(buffers, scalars, threads)
        return ready

    def run() -> None:
        device.launch(entry, buffers, scalars, threads)
        device.sync()

    return run


__all__ = [
    "Device",
    "HostMemory",
    "Loaded",
    "check_format",
    "device_at",
    "is_queued",
    "prepare",
    "shares_memory",
]
