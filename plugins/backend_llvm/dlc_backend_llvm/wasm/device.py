"""The device `wasm`, which links WebAssembly objects and runs them in Wasmtime (the pip package `wasmtime`).

Each program has one instance with its own memory. A launch copies the buffers into this memory and back, so
run times of calls through `dlc.compile` do not measure the code; `benchmarks/wasm.py` does.
"""

from __future__ import annotations

import importlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from dlc_backend_llvm.form import ENTRY_SUFFIX, FORMAT
from dlc_backend_llvm.triples import normal_arch
from dlc_backend_llvm.wasm.builtins import builtins_object
from dlc_backend_llvm.wasm.linking import HEAP, find_linker, link_module
from dlc_core.backend import SimulatedDevice
from dlc_core.diag import ArtifactError, PluginError, RuntimeFailure, UnsupportedError
from dlc_core.foreign.needed import check_self_contained
from dlc_core.runtime.guard.failures import status_failure
from dlc_core.runtime.guard.mode import Layout
from dlc_core.runtime.memory.host import NDArray
from dlc_core.target import Artifact
from dlc_core.target.confined import Binary

_PAGE = 1 << 16
_ALIGN = 64


def wasmtime() -> Any:
    """The module `wasmtime`. Raises PluginError if it cannot be imported."""
    try:
        return importlib.import_module("wasmtime")
    except ImportError as error:
        raise PluginError(
            "WebAssembly needs a runtime here", why=str(error), hint="install it with: pip install wasmtime"
        ) from None


def problem() -> str | None:
    """The reason why modules cannot be linked or run on this machine; None if they can."""
    try:
        find_linker()
        wasmtime()
    except (UnsupportedError, PluginError) as error:
        return f"{error.what}: {error.hint}"
    return None


@dataclass(frozen=True)
class Entry:
    """An entry point of a module."""

    symbol: str
    program: Program


class Program:
    """A module with its instance. Calls are made one after the other."""

    def __init__(self, artifact: Artifact) -> None:
        run = wasmtime()
        symbols = [f"{symbol}{ENTRY_SUFFIX}" for symbol in artifact.symbols]
        machine = [str(artifact.metadata[key]) for key in ("triple", "cpu", "features")]
        code = link_module([artifact.code, builtins_object(*machine)], symbols)
        self._symbols = artifact.symbols
        self._run: Any = run
        self._store = run.Store(run.Engine())
        module = run.Module(self._store.engine, code)
        self._exports = run.Instance(self._store, module, []).exports(self._store)
        self._memory = self._exports["memory"]
        self._heap = self._exports[HEAP].value(self._store) & 0xFFFFFFFF

    def entry(self, symbol: str) -> Entry:
        if symbol not in self._symbols:
            raise ArtifactError(f"the module has no entry point {symbol}")
        return Entry(symbol, self)

    def call(self, symbol: str, blocks: Sequence[NDArray], scalars: Sequence[int], threads: int) -> None:
        """Call an entry point on copies of buffers, and copy these back. Raises RuntimeFailure if memory is
        short, if the code traps, or if it returns a status.
        """
        at = -(-self._heap // _ALIGN) * _ALIGN
        addresses = []
        for block in blocks:
            addresses.append(at)
            at += -(-block.nbytes // _ALIGN) * _ALIGN
        tables = struct.pack(f"<{len(blocks)}I", *addresses).ljust(8 * len(blocks), b"\0")
        tables += struct.pack(f"<{len(scalars)}q", *scalars)
        store, memory = self._store, self._memory
        lacking = at + len(tables) - memory.data_len(store)
        try:
            if lacking > 0:
                memory.grow(store, -(-lacking // _PAGE))
            for address, data in zip((*addresses, at), (*(b.tobytes() for b in blocks), tables), strict=True):
                if data:  # Wasmtime refuses to write nothing at the end of memory
                    memory.write(store, data, address)
            entry = self._exports[symbol + ENTRY_SUFFIX]
            status = entry(store, _signed(at), _signed(at + 8 * len(blocks)), threads)
        except (self._run.Trap, self._run.WasmtimeError) as error:
            raise RuntimeFailure(f"{symbol} failed in WebAssembly", why=str(error).splitlines()[-1]) from None
        if status:
            raise status_failure(symbol, status)
        for address, block in zip(addresses, blocks, strict=True):
            block[:] = np.frombuffer(memory.read(store, address, address + block.nbytes), np.uint8)

    def close(self) -> None:
        """Does nothing: the instance is freed with the program."""


class WasmDevice(SimulatedDevice):
    """Instances of modules in this process."""

    name = "wasm"
    formats = (FORMAT,)
    source_formats = MappingProxyType({FORMAT: Binary(b"\0asm")})
    memory_bytes = 1 << 32

    def alloc_guarded(self, layout: Layout) -> int:
        raise UnsupportedError("WebAssembly has no protected pages, which guard mode needs")

    def check(self, artifact: Artifact) -> None:
        """Raise ArtifactError for code of another machine, and if modules cannot be run here."""
        triple = str(artifact.metadata.get("triple", ""))
        if normal_arch(triple) != "wasm32":
            raise ArtifactError(f"the code is for {triple}, not for WebAssembly")
        why = problem()
        if why:
            raise ArtifactError("the module cannot be run on this machine", why=why)

    def load(self, artifact: Artifact) -> Program:
        self.check(artifact)
        check_self_contained(artifact.metadata, "a WebAssembly module")
        return Program(artifact)

    def run(self, entry: Any, blocks: Sequence[NDArray], scalars: Sequence[int], threads: int) -> None:
        entry.program.call(entry.symbol, blocks, scalars, threads)


def _signed(address: int) -> int:
    """An address as the signed number that the runtime takes."""
    return address - (1 << 32) if address >> 31 else address


DEVICE = WasmDevice()

__all__ = ["DEVICE", "WasmDevice", "problem", "wasmtime"]
