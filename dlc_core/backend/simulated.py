"""A simulated device: its own memory, a command queue, and estimated cycles.

It behaves like a device behind a bus: handles are not addresses, memory is limited and must be copied,
launches are asynchronous. The code is source text of the C family. This machine's C compiler compiles it, so
results are computed by the generated code.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dlc_core.backend.blocks import Blocks
from dlc_core.backend.compiler import native_flags
from dlc_core.backend.library import Library, LibraryEntry, load_library
from dlc_core.backend.packed import CYCLES
from dlc_core.backend.queue import CommandQueue, Event, Job
from dlc_core.runtime.device import Loaded
from dlc_core.runtime.guard.memory import GuardedMemory
from dlc_core.runtime.guard.mode import Layout
from dlc_core.runtime.memory.host import NDArray, address, aligned_bytes
from dlc_core.target import Artifact


@dataclass(frozen=True)
class SimulatedEntry:
    """An entry point of a program on the device."""

    function: LibraryEntry

    @property
    def cycles(self) -> int:
        """The estimated cycles of a launch."""
        return int(self.function.metadata.get(CYCLES, {}).get(self.function.symbol, 0))


class SimulatedProgram:
    """A program on the device."""

    def __init__(self, library: Library) -> None:
        self._library = library

    def entry(self, symbol: str) -> SimulatedEntry:
        """An entry point of the program. Raises ArtifactError if there is none with this name."""
        return SimulatedEntry(self._library.entry(symbol))

    def close(self) -> None:
        self._library.close()


class SimulatedDevice:
    """A simulated device. A subclass defines `name` and `formats` (the format of a `SourceCodegen`), and
    overrides the methods that its hardware implements.

    `memory_bytes` is the size of its memory. `cycles` is the sum of the cycles of all launches so far,
    estimated by the cost model for the target of the code. Kernels whose work depends on symbolic dims count
    as 0.
    """

    name: str
    formats: tuple[str, ...]
    memory_bytes = 1 << 36
    queued = True

    def __init__(self) -> None:
        self.cycles = 0
        self._blocks: Blocks[NDArray] = Blocks(f"device {self.name!r}", self.memory_bytes)
        self._queue = CommandQueue(f"dlc-{self.name}")

    @property
    def memory_used(self) -> int:
        """The allocated bytes of its memory."""
        return self._blocks.used

    def alloc(self, size: int, align: int = 64) -> int:
        """Allocate uninitialised memory. Raises RuntimeFailure if there is not enough."""

        def make() -> NDArray:
            raw = aligned_bytes(max(1, size) + align)
            start = -address(raw) % align
            return raw[start : start + size]

        return self._blocks.add(size, make)

    def alloc_guarded(self, layout: Layout) -> int:
        """Allocate memory for guard mode."""
        return self._blocks.add(layout.size - layout.begin, lambda: GuardedMemory(layout).bytes)

    def free(self, handle: int) -> None:
        """Free memory. Earlier launches may still use it."""
        self._blocks.take(handle)

    def write(self, handle: int, data: memoryview, offset: int = 0) -> None:
        """Copy bytes to the device, after all earlier launches."""
        given = np.frombuffer(data, np.uint8)
        window = self._window(handle, offset, given.nbytes)
        self._queue.record().wait()
        window[:] = given

    def read(self, handle: int, out: memoryview, offset: int = 0) -> None:
        """Copy bytes from the device to fill `out`, after all earlier launches."""
        array = np.frombuffer(out, np.uint8)
        window = self._window(handle, offset, array.nbytes)
        self._queue.record().wait()
        array[:] = window

    def copy(self, handle: int, source: Any, from_handle: int, size: int) -> bool:
        """Enqueue a copy from a simulated device, this or another one. It is ordered in the queues of both
        devices.

        Returns False, without a copy, if one of the devices overrides the simulated memory.
        """
        if not (_is_simulated(self) and _is_simulated(source)):
            return False
        window, given = self._window(handle, 0, size), source._window(from_handle, 0, size)
        before = self.record()

        def move() -> None:
            before.wait()
            window[:] = given

        source.submit(move)
        if source is not self:
            moved = source.record()

            def follow() -> None:
                moved.wait()

            self.submit(follow)
        return True

    def load(self, artifact: Artifact) -> Loaded:
        """Compile the source text for this machine, without running any of it."""
        return SimulatedProgram(load_library(artifact, native_flags()))

    def launch(self, entry: Any, buffers: Sequence[int], scalars: Sequence[int], threads: int) -> None:
        """Enqueue a call of an entry point."""
        blocks = [self.memory(handle) for handle in buffers]
        values = tuple(scalars)
        self.submit(lambda: self.run(entry, blocks, values, threads))

    def submit(self, job: Job) -> None:
        """Enqueue a job."""
        self._queue.submit(job)

    def run(
        self, entry: SimulatedEntry, blocks: Sequence[NDArray], scalars: Sequence[int], threads: int
    ) -> None:
        """Run an entry point now. `blocks` is the memory of its buffers, as arrays of bytes."""
        entry.function([address(block) for block in blocks], scalars, threads)
        self.cycles += entry.cycles

    def record(self) -> Event:
        """An event that is reached when all earlier launches have finished."""
        return self._queue.record()

    def sync(self) -> None:
        """Wait until all launches have finished. Raises RuntimeFailure if one failed."""
        self._queue.wait()

    def memory(self, handle: int) -> NDArray:
        """The memory of a handle as an array of bytes. Raises RuntimeFailure for an unknown handle."""
        return self._blocks.get(handle).memory

    def _window(self, handle: int, offset: int, size: int) -> NDArray:
        return self._blocks.window(handle, offset, size)[offset : offset + size]


def _is_simulated(device: Any) -> bool:
    """Whether a device uses the simulated memory. Subclasses may override it by that of hardware."""
    own = type(device)
    return isinstance(device, SimulatedDevice) and all(
        getattr(own, name) is getattr(SimulatedDevice, name) for name in ("alloc", "memory")
    )


__all__ = ["SimulatedDevice", "SimulatedEntry", "SimulatedProgram"]
