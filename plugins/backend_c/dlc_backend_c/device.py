"""The device `c`: C sources, compiled by the compiler of this machine and run in this process."""

from __future__ import annotations

import ctypes
import hashlib
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dlc_backend_c.codegen import FORMAT
from dlc_backend_c.emit import ENTRY_SUFFIX, FAILURE
from dlc_backend_c.toolchain import build_shared, compiler_version
from dlc_core.config import config
from dlc_core.diag import ArtifactError, RuntimeFailure
from dlc_core.runtime.device import HostMemory
from dlc_core.runtime.failure import failure_of
from dlc_core.target import Artifact

_ENTRY = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32)


class Entry:
    """A callable entry point."""

    def __init__(self, symbol: str, library: ctypes.CDLL, metadata: Mapping[str, Any]) -> None:
        self.symbol = symbol
        self.metadata = metadata
        self._library = library
        try:
            address = ctypes.cast(library[symbol + ENTRY_SUFFIX], ctypes.c_void_p).value
        except AttributeError:
            raise ArtifactError(f"the library has no entry {symbol}") from None
        assert address is not None
        self.call = _ENTRY(address)

    def __call__(self, buffers: Sequence[int], scalars: Sequence[int], threads: int) -> None:
        """Run on addresses and integers; RuntimeFailure where the code says that it failed."""
        self.prepare(buffers, scalars, threads)()

    def prepare(self, buffers: Sequence[int], scalars: Sequence[int], threads: int) -> Callable[[], None]:
        """The same call with its arguments in place."""
        pointers = (ctypes.c_void_p * max(1, len(buffers)))(*buffers)
        values = (ctypes.c_int64 * max(1, len(scalars)))(*scalars)

        def run() -> None:
            status = self.call(pointers, values, threads)
            if status:
                raise self._failed(status)

        return run

    def _failed(self, status: int) -> RuntimeFailure:
        seen = (ctypes.c_int64 * 3).in_dll(self._library, FAILURE)
        return failure_of(self.symbol, status, self.metadata, (seen[1], seen[2]))


class LoadedArtifact:
    """Compiled C in memory."""

    def __init__(self, library: ctypes.CDLL, metadata: Mapping[str, Any]) -> None:
        self._library = library
        self._metadata = metadata

    def entry(self, symbol: str) -> Entry:
        return Entry(symbol, self._library, self._metadata)

    def close(self) -> None:
        """The library stays mapped: threads of the language's runtime may still be in it."""


class CDevice(HostMemory):
    """This process's memory and cores.  Handles are addresses."""

    name = "c"
    formats = (FORMAT,)
    dlpack_device = (1, 0)

    def load(self, artifact: Artifact) -> LoadedArtifact:
        """Compile and map the code; none of it runs yet.  What was compiled before is taken from the cache
        folder of dlc.
        """
        flags = tuple(str(flag) for flag in artifact.metadata.get("flags", ()))
        library = kept(artifact.code, ".so", flags, lambda source, out: build_shared(source, out, flags))
        return LoadedArtifact(_open(library), artifact.metadata)

    def launch(self, entry: Entry, buffers: Sequence[int], scalars: Sequence[int], threads: int) -> None:
        """Returns when the work is done."""
        entry(buffers, scalars, threads)


def kept(
    code: bytes, suffix: str, words: Sequence[str], build: Callable[[Path, Path], None], tool: str = ""
) -> Path:
    """What `build(source, out)` makes of C, kept in the cache folder of dlc by its text, `words` and the
    compiler, named `tool` where it is not that of this machine.
    """
    parts = [code, " ".join(words).encode(), (tool or compiler_version()).encode()]
    folder = Path(config.cache_dir) / "c"
    folder.mkdir(parents=True, exist_ok=True)
    place = folder / (hashlib.sha256(b"\0".join(parts)).hexdigest()[:32] + suffix)
    if not place.exists():
        with tempfile.TemporaryDirectory(dir=folder) as name:
            source, made = Path(name, "model.c"), Path(name, "model" + suffix)
            source.write_bytes(code)
            build(source, made)
            made.replace(place)
    return place


def _open(library: Path) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(str(library))
    except OSError as error:
        raise ArtifactError("the compiled C cannot be loaded", why=str(error)) from None


__all__ = ["CDevice", "Entry", "LoadedArtifact", "kept"]
