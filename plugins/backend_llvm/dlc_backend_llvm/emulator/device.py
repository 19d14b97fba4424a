"""The device `emulator`, which runs object files of other machines by QEMU.

Memory is in this process until a launch uses it. Then it is moved to the emulated process.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from dlc_backend_llvm.cpu import HostCpu
from dlc_backend_llvm.emulator.qemu import problem
from dlc_backend_llvm.form import ENTRY_SUFFIX, FORMAT
from dlc_backend_llvm.host import describe
from dlc_backend_llvm.objects import read_object
from dlc_core.backend import Blocks
from dlc_core.diag import ArtifactError
from dlc_core.foreign.needed import check_self_contained
from dlc_core.runtime.guard.failures import status_failure
from dlc_core.runtime.guard.mode import PAGE, Layout
from dlc_core.support.lazy import lazy
from dlc_core.target import Artifact
from dlc_core.target.confined import Binary

if TYPE_CHECKING:
    from dlc_backend_llvm.emulator import server as process
    from dlc_backend_llvm.emulator.server import Server
else:
    process = lazy("dlc_backend_llvm.emulator.server")

MEMORY_BYTES = 1 << 34
"""Bytes of memory of all emulated machines together."""

_servers: dict[tuple[str, str, str], Server] = {}
_lock = threading.RLock()


def server_for(cpu: HostCpu) -> Server:
    """The process of a machine. It is started on first use."""
    key = (cpu.triple, cpu.cpu, cpu.features)
    with _lock:
        found = _servers.get(key)
        if found is None or not found.alive:
            found = _servers[key] = process.Server(cpu)
        return found


@dataclass
class _Block:
    """Allocated memory: its bytes in this process, or its address in an emulated process.

    In guard mode it has a layout. Pages outside of its slots are then protected in the emulated process.
    """

    size: int
    align: int
    here: bytearray | None
    server: Server | None = None
    address: int = 0
    layout: Layout | None = None

    def move(self, server: Server) -> None:
        """Move the memory to an emulated process."""
        data = self.here
        if data is None and self.server is not None:
            self._protect(True)
            data = bytearray(self.server.read(self.address, self.size))
            self.release()
        if self.layout is None:
            address = server.alloc(self.size, self.align)
        else:
            address = server.map(self._mapped) + PAGE + self.layout.begin
        if data:
            server.write(address, memoryview(data))
        self.server, self.address, self.here = server, address, None
        self._protect(False)

    def release(self) -> None:
        """Free the memory in the emulated process."""
        if self.server is None or not self.server.alive:
            return
        if self.layout is None:
            self.server.free(self.address)
        else:
            self.server.unmap(self.address - self.layout.begin - PAGE, self._mapped)

    @property
    def _mapped(self) -> int:
        """The bytes of its pages, and of a guard page before and after these."""
        return self.size if self.layout is None else -(-self.layout.size // PAGE) * PAGE + 2 * PAGE

    def _protect(self, touched: bool) -> None:
        """Allow or forbid accesses of the pages between values."""
        if self.layout is None or self.server is None:
            return
        first = self.address - self.layout.begin
        last, end = first - PAGE, first - PAGE + self._mapped
        for _, begin, after in self.layout.pages():
            self.server.protect(last, first + begin - last, touched)
            last = first + after
        self.server.protect(last, end - last, touched)


@dataclass(frozen=True)
class Entry:
    """A callable entry point."""

    symbol: str
    server: Server
    address: int


class LoadedCode:
    """A library in an emulated process. It is never unloaded."""

    def __init__(self, server: Server, library: int) -> None:
        self._server = server
        self._library = library

    def entry(self, symbol: str) -> Entry:
        address = self._server.symbol(self._library, symbol + ENTRY_SUFFIX)
        if not address:
            raise ArtifactError(f"the code has no entry point {symbol!r}")
        return Entry(symbol, self._server, address)

    def close(self) -> None:
        """Does not unload the library, because worker threads may wait in its code."""


class EmulatorDevice:
    """Emulated processes, one for each processor that code was compiled for."""

    name = "emulator"
    formats = (FORMAT,)
    source_formats = MappingProxyType({FORMAT: Binary(b"\x7fELF")})

    def __init__(self) -> None:
        self._blocks: Blocks[_Block] = Blocks(f"device {self.name!r}", MEMORY_BYTES)

    # Memory

    def alloc(self, size: int, align: int = 64) -> int:
        """Allocate zeroed memory. Raises RuntimeFailure if there is not enough."""
        return self._blocks.add(size, lambda: _Block(size, align, bytearray(size)))

    def alloc_guarded(self, layout: Layout) -> int:
        """Allocate memory with a layout of guard mode."""

        def make() -> _Block:
            whole = bytearray(layout.size)
            for region, first, end in layout.pages():
                whole[first:end] = bytes([region.fill]) * (min(end, layout.size) - first)
            return _Block(layout.size - layout.begin, PAGE, whole[layout.begin :], layout=layout)

        return self._blocks.add(layout.size - layout.begin, make)

    def free(self, handle: int) -> None:
        self._blocks.take(handle).release()

    def write(self, handle: int, data: memoryview, offset: int = 0) -> None:
        block, source = self._part(handle, offset, data.nbytes), data.cast("B") if data.nbytes else data
        if block.here is not None:
            block.here[offset : offset + source.nbytes] = source
        elif block.server is not None:
            block.server.write(block.address + offset, source)

    def read(self, handle: int, out: memoryview, offset: int = 0) -> None:
        block = self._part(handle, offset, out.nbytes)
        if not out.nbytes:
            return
        if block.here is not None:
            out.cast("B")[:] = block.here[offset : offset + out.nbytes]
        elif block.server is not None:
            out.cast("B")[:] = block.server.read(block.address + offset, out.nbytes)

    def _part(self, handle: int, offset: int, size: int) -> _Block:
        return self._blocks.window(handle, offset, size)

    def _on(self, handle: int, server: Server) -> int:
        """The address of memory in an emulated process, after moving it there if necessary."""
        block = self._blocks.get(handle).memory
        if block.server is not server:
            block.move(server)
        return block.address

    # Code

    def check(self, artifact: Artifact) -> None:
        """Raise ArtifactError if the code cannot be linked or run on this machine."""
        machine, cpu = read_object(artifact.code).machine, _cpu(artifact.metadata)
        if machine != cpu.arch:
            raise ArtifactError(f"the code is for {machine}, but its metadata says {cpu.triple}")
        why = problem(cpu)
        if why is not None:
            raise ArtifactError(f"code for {cpu.triple} cannot be emulated on this machine", why=why)

    def load(self, artifact: Artifact) -> LoadedCode:
        self.check(artifact)
        check_self_contained(artifact.metadata, "an emulated processor")
        server = server_for(_cpu(artifact.metadata))
        return LoadedCode(server, server.load(artifact.code))

    def launch(self, entry: Entry, buffers: Sequence[int], scalars: Sequence[int], threads: int) -> None:
        """Run an entry point, and return when it has finished."""
        with _lock:
            places = [self._on(handle, entry.server) for handle in buffers]
        status = entry.server.call(entry.address, places, scalars, threads)
        if status:
            raise status_failure(entry.symbol, status)

    def sync(self) -> None:
        """Launches return when they have finished."""


def _cpu(metadata: Mapping[str, Any]) -> HostCpu:
    triple, cpu, features = (str(metadata.get(key, "")) for key in ("triple", "cpu", "features"))
    return describe(triple, cpu, features)


DEVICE = EmulatorDevice()

__all__ = ["DEVICE", "EmulatorDevice", "server_for"]
