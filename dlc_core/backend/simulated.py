"""A device that exists in software alone: memory of its own, a queue of commands, cycles that are estimated.

Programs see what they would see of a card behind a bus: handles that are no addresses, copies in and out, a
limit of memory, launches that return before they have run.  The code is source text of the C family, compiled
by the compiler of this machine, so that results are those of real arithmetic.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np

from dlc_core.backend.compiler import native_flags
from dlc_core.backend.library import Library, LibraryEntry, load_library
from dlc_core.backend.packed import CYCLES
from dlc_core.backend.queue import CommandQueue, Event
from dlc_core.diag import RuntimeFailure
from dlc_core.runtime.memory import NDArray, address, aligned_bytes
from dlc_core.target import Artifact

LARGEST = 3
"""Buffers that an error about memory names."""


@dataclass(frozen=True)
class SimulatedEntry:
    """A function of a program on the device."""

    function: LibraryEntry

    @property
    def cycles(self) -> int:
        """What a launch is estimated to take."""
        return int(self.function.metadata.get(CYCLES, {}).get(self.function.symbol, 0))


class SimulatedProgram:
    """Code on the device."""

    def __init__(self, library: Library) -> None:
        self._library = library

    def entry(self, symbol: str) -> SimulatedEntry:
        """A function of it; ArtifactError where it has none of that name."""
        return SimulatedEntry(self._library.entry(symbol))

    def close(self) -> None:
        self._library.close()


class SimulatedDevice:
    """A subclass gives `name` and `formats`, those of a `SourceCodegen`, and overrides what its hardware
    already does.

    `memory_bytes` is the size of its memory.  `cycles` are those that all launches took so far, by the cost
    model of the target that the code was made for; those of entries whose work depends on dims count as none.
    """

    name: str
    formats: tuple[str, ...]
    memory_bytes = 1 << 36
    queued = True

    def __init__(self) -> None:
        self.cycles = 0
        self._lock = threading.Lock()
        self._handles = count(1)
        self._blocks: dict[int, NDArray] = {}
        self._used = 0
        self._queue = CommandQueue(f"dlc-{self.name}")

    def alloc(self, size: int, align: int = 64) -> int:
        """Uninitialised memory; RuntimeFailure where not so much is free."""
        with self._lock:
            if self._used + size > self.memory_bytes:
                largest = sorted((b.nbytes for b in self._blocks.values()), reverse=True)[:LARGEST]
                raise RuntimeFailure(
                    f"device {self.name!r} is out of memory",
                    why=f"{size} bytes are asked for, {self._used} of {self.memory_bytes} are in use",
                    details=[f"the largest buffers have {', '.join(map(str, largest))} bytes"]
                    * bool(largest),
                )
            raw = aligned_bytes(max(1, size) + align)
            start = -address(raw) % align
            handle = next(self._handles)
            self._blocks[handle] = raw[start : start + size]
            self._used += size
            return handle

    def free(self, handle: int) -> None:
        """Give memory back; what was launched before may still use it."""
        with self._lock:
            block = self._blocks.pop(handle, None)
            if block is None:
                raise RuntimeFailure(f"freeing {handle}, which is not allocated on device {self.name!r}")
            self._used -= block.nbytes

    def write(self, handle: int, data: memoryview, offset: int = 0) -> None:
        """Copy bytes to the device, after everything that was launched before."""
        given = np.frombuffer(data, np.uint8)
        window = self._window(handle, offset, given.nbytes)
        self._queue.record().wait()
        window[:] = given

    def read(self, handle: int, out: memoryview, offset: int = 0) -> None:
        """Copy bytes from the device, as much as `out` takes, after everything that was launched before."""
        wanted = np.frombuffer(out, np.uint8)
        window = self._window(handle, offset, wanted.nbytes)
        self._queue.record().wait()
        wanted[:] = window

    def load(self, artifact: Artifact) -> SimulatedProgram:
        """Compile the source text for the machine that simulates; none of it runs yet."""
        return SimulatedProgram(load_library(artifact, native_flags()))

    def launch(self, entry: Any, buffers: Sequence[int], scalars: Sequence[int], threads: int) -> None:
        """Have a function run after everything that was launched before; returns at once."""
        blocks = [self._block(handle) for handle in buffers]
        values = tuple(scalars)
        self._queue.submit(lambda: self.run(entry, blocks, values, threads))

    def run(
        self, entry: SimulatedEntry, blocks: Sequence[NDArray], scalars: Sequence[int], threads: int
    ) -> None:
        """Run a function on memory of the device, which the simulation reaches as arrays of bytes."""
        entry.function([address(block) for block in blocks], scalars, threads)
        self.cycles += entry.cycles

    def record(self) -> Event:
        """An event that is reached when everything launched so far has finished."""
        return self._queue.record()

    def sync(self) -> None:
        """Wait until everything launched has finished; raises RuntimeFailure for what failed."""
        self._queue.wait()

    def _block(self, handle: int) -> NDArray:
        block = self._blocks.get(handle)
        if block is None:
            raise RuntimeFailure(f"{handle} is no memory of device {self.name!r}")
        return block

    def _window(self, handle: int, offset: int, size: int) -> NDArray:
        block = self._block(handle)
        if not 0 <= offset <= offset + size <= block.nbytes:
            raise RuntimeFailure(
                f"bytes {offset}:{offset + size} are outside the {block.nbytes} bytes of memory {handle}"
            )
        return block[offset : offset + size]


__all__ = ["SimulatedDevice", "SimulatedEntry", "SimulatedProgram"]
