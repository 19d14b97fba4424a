"""The device `cpu`: object files run in this process."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from dlc_backend_llvm.codegen import ENTRY_SUFFIX, FORMAT
from dlc_backend_llvm.engine import Loaded as LoadedObject
from dlc_backend_llvm.engine import engine
from dlc_backend_llvm.pool import pool
from dlc_core.diag import RuntimeFailure
from dlc_core.target import Artifact

_ENTRY = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32)


class Entry:
    """A callable entry point: `call(buffer pointers, scalars, threads)` with ctypes arrays, no checks, no allocation."""

    def __init__(self, address: int, owner: LoadedObject) -> None:
        self.address = address
        self.call = _ENTRY(address)
        self._owner = owner


class LoadedArtifact:
    """An artefact in memory."""

    def __init__(self, loaded: LoadedObject) -> None:
        self._loaded = loaded

    def entry(self, symbol: str) -> Entry:
        return Entry(self._loaded.address(symbol + ENTRY_SUFFIX), self._loaded)

    def close(self) -> None:
        self._loaded.close()


class CpuDevice:
    """This process's memory and cores.  Handles are addresses."""

    name = "cpu"
    formats = (FORMAT,)

    def __init__(self) -> None:
        self._live: dict[int, Any] = {}

    def alloc(self, size: int, align: int = 64) -> int:
        """Uninitialised memory; raises RuntimeFailure when there is none."""
        try:
            raw = (ctypes.c_char * (size + align))()
        except (MemoryError, ValueError, OverflowError) as error:
            raise RuntimeFailure(f"cannot allocate {size} bytes", why=str(error)) from None
        start = ctypes.addressof(raw)
        handle = start + (-start) % align
        self._live[handle] = raw
        return handle

    def free(self, handle: int) -> None:
        if self._live.pop(handle, None) is None:
            raise RuntimeFailure(f"freeing {handle:#x}, which is not allocated")

    def write(self, handle: int, data: memoryview, offset: int = 0) -> None:
        flat = data.cast("B") if data.nbytes else data
        ctypes.memmove(handle + offset, bytes(flat) if flat.readonly else (ctypes.c_char * flat.nbytes).from_buffer(flat), flat.nbytes)

    def read(self, handle: int, out: memoryview, offset: int = 0) -> None:
        flat = out.cast("B")
        ctypes.memmove((ctypes.c_char * flat.nbytes).from_buffer(flat), handle + offset, flat.nbytes)

    def load(self, artifact: Artifact) -> LoadedArtifact:
        """Map code into this process.  The artefact must be of this machine's architecture."""
        pool()
        return LoadedArtifact(engine().load(artifact.code))

    def launch(self, entry: Entry, buffers: Sequence[int], scalars: Sequence[int], threads: int = 1) -> None:
        pointers = (ctypes.c_void_p * max(1, len(buffers)))(*buffers)
        values = (ctypes.c_int64 * max(1, len(scalars)))(*scalars)
        status = entry.call(pointers, values, threads)
        if status != 0:
            raise RuntimeFailure(f"the native entry returned status {status}")

    def sync(self) -> None:
        """Launches return when they have finished."""
