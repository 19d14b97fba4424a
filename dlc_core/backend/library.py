"""Source text compiled to a library by this machine's C compiler, cached, and called in this process."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dlc_core.backend.binary_cache import cached_binary
from dlc_core.backend.compiler import NO_OPENMP, build_shared
from dlc_core.backend.packed import ENTRY_SUFFIX
from dlc_core.diag import ArtifactError, RuntimeFailure
from dlc_core.foreign.declare import Source
from dlc_core.foreign.resolve import addresses, guarded_call
from dlc_core.runtime.guard.failures import status_failure
from dlc_core.target import Artifact
from dlc_core.target.artifact import FLAGS
from dlc_core.target.c_text import CText
from dlc_core.target.confined import check_source
from dlc_core.target.source.foreign import AT, BY_ADDRESS

_ENTRY = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32)


class LibraryEntry:
    """A callable entry point."""

    def __init__(self, symbol: str, library: ctypes.CDLL, metadata: Mapping[str, Any]) -> None:
        self.symbol = symbol
        self.metadata = metadata
        self._library = library
        try:
            address = ctypes.cast(library[symbol + ENTRY_SUFFIX], ctypes.c_void_p).value
        except AttributeError:
            raise ArtifactError(f"the library has no entry point {symbol}") from None
        assert address is not None
        self.call = guarded_call(_ENTRY(address), metadata)

    def __call__(self, buffers: Sequence[int], scalars: Sequence[int], threads: int) -> None:
        """Run on buffer addresses and scalars. Raises RuntimeFailure if the code returns an error status."""
        self.prepare(buffers, scalars, threads)()

    def prepare(self, buffers: Sequence[int], scalars: Sequence[int], threads: int) -> Callable[[], None]:
        """A function without arguments that calls the entry point with these arguments."""
        pointers = (ctypes.c_void_p * max(1, len(buffers)))(*buffers)
        values = (ctypes.c_int64 * max(1, len(scalars)))(*scalars)

        def run() -> None:
            status = self.call(pointers, values, threads)
            if status:
                raise self._failed(status)

        return run

    def _failed(self, status: int) -> RuntimeFailure:
        return status_failure(self.symbol, status)


class Library:
    """Compiled and loaded sources."""

    def __init__(self, library: ctypes.CDLL, metadata: Mapping[str, Any]) -> None:
        self._library = library
        self.metadata = metadata

    def entry(self, symbol: str) -> LibraryEntry:
        """An entry point of the library. Raises ArtifactError if there is none with this name."""
        return LibraryEntry(symbol, self._library, self.metadata)

    def close(self) -> None:
        """Does nothing: the library stays mapped, because threads of the language's runtime may still run its
        code.
        """


def load_library(artifact: Artifact, more: Sequence[str] = ()) -> Library:
    """Compile and load the source text of an artefact, with `more` compiler options, without running any of
    it. If it was compiled before, the library is loaded from dlc's cache folder.
    """
    check_source(artifact, CText())
    flags = (*map(str, artifact.metadata.get(FLAGS, ())), *more)
    linked = addresses(artifact.metadata)
    if linked:
        flags = (*flags, f"-D{BY_ADDRESS}")
    library = _open(_compiled(artifact.code, flags))
    for symbol, address in linked.items():
        ctypes.c_void_p.in_dll(library, AT + symbol).value = address
    return Library(library, artifact.metadata)


def source_address(source: Source) -> int:
    """Compile the C text of a foreign function, and return its address. Raises UnsupportedError without a
    compiler, and CodegenError if it refuses the text.
    """
    library = _open(_compiled(source.text.encode(), ("-std=gnu99", "-O2", "-ffp-contract=fast")))
    try:
        return ctypes.cast(library[source.symbol], ctypes.c_void_p).value or 0
    except AttributeError:
        hint = "define it as a function that is not static"
        raise ArtifactError(f"the C text does not define {source.symbol}", hint=hint) from None


def _compiled(text: bytes, flags: Sequence[str]) -> Path:
    return cached_binary(text, ".so", flags, lambda source, out: build_shared(source, out, flags))


def _open(library: Path) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(str(library))
    except OSError as error:
        hint = NO_OPENMP if "__kmpc_" in str(error) or "GOMP_" in str(error) else ""
        raise ArtifactError("the compiled code cannot be loaded", why=str(error), hint=hint) from None


__all__ = ["Library", "LibraryEntry", "load_library", "source_address"]
