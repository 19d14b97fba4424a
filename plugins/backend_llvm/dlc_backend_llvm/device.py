"""The device `cpu`, which runs object files in this process."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from struct import Struct
from types import MappingProxyType
from typing import Any

from dlc_backend_llvm.form import ENTRY_SUFFIX, FORMAT
from dlc_backend_llvm.host import host_cpu
from dlc_backend_llvm.loaded import Loaded as LoadedObject
from dlc_backend_llvm.loading import load_object
from dlc_backend_llvm.objects import read_object
from dlc_backend_llvm.pool import pool
from dlc_backend_llvm.stopping import failure
from dlc_backend_llvm.structure import check_structure
from dlc_core.cancel import current
from dlc_core.diag import ArtifactError
from dlc_core.foreign.resolve import addresses, guarded_call
from dlc_core.runtime.device import HostMemory
from dlc_core.target import Artifact

_ENTRY = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32)

_SYSTEM = """
    cldemote clflushopt clwb clzero enqcmd fsgsbase hreset invpcid kl lwp movdir64b movdiri mwaitx pconfig pku
    prfchw ptwrite rdpid rdpru rdrnd rdseed rtm serialize sgx shstk tsxldtrk uintr usermsr waitpkg wbnoinvd
    widekl xsavec xsaveopt xsaves ras specrestrict ssbs predres sb mte pauth bti
"""
_SYSTEM_FEATURES = frozenset(_SYSTEM.split())
"""Features that only system software uses. Generated code does not need them."""


@lru_cache(maxsize=256)
def _pack(code: str, count: int) -> Callable[..., bytes]:
    """A packer of `count` numbers into the bytes of a C array."""
    return Struct(f"{count}{code}").pack


_NONE: Mapping[str, Any] = MappingProxyType({})


class Entry:
    """A callable entry point."""

    def __init__(
        self,
        symbol: str,
        address: int,
        owner: LoadedObject,
        metadata: Mapping[str, Any] = _NONE,
    ) -> None:
        self.symbol = symbol
        self.metadata = metadata
        self.address = address
        self.call = guarded_call(_ENTRY(address), metadata)
        self._stopping = pool().stopping
        self._under_token = (
            self.call
            if self._stopping is None
            else guarded_call(self._stopping.under_token(address), metadata)
        )
        self._owner = owner

    def __call__(self, buffers: Sequence[int], scalars: Sequence[int], threads: int) -> None:
        """Run on buffer addresses and scalars. Raises RuntimeFailure if the code returns a status other than
        0, and CancelledError if the call was cancelled.
        """
        pointers = _pack("P", len(buffers))(*buffers)
        call = self.call if current() is None else self._under_token
        status = call(pointers, _pack("q", len(scalars))(*scalars) if scalars else None, threads)
        if status:
            raise self._failed(status)

    def launcher(self, buffers: int, scalars: int) -> Callable[[Sequence[int], Sequence[int], int], None]:
        """A function that calls the entry point with these numbers of buffers and scalars."""
        plain, under_token, failed, pointers = self.call, self._under_token, self._failed, _pack("P", buffers)
        values = _pack("q", scalars) if scalars else None

        def run(buffers: Sequence[int], scalars: Sequence[int], threads: int) -> None:
            call = plain if current() is None else under_token
            status = call(pointers(*buffers), values(*scalars) if values else None, threads)
            if status:
                raise failed(status)

        return run

    def prepare(self, buffers: Sequence[int], scalars: Sequence[int], threads: int) -> Callable[[], None]:
        """A function without arguments that calls the entry point with these arguments."""
        pointers = (ctypes.c_void_p * max(1, len(buffers)))(*buffers)
        values = (ctypes.c_int64 * max(1, len(scalars)))(*scalars)
        plain, under_token, failed = self.call, self._under_token, self._failed

        def run() -> None:
            status = (plain if current() is None else under_token)(pointers, values, threads)
            if status:
                raise failed(status)

        return run

    def _failed(self, status: int) -> BaseException:
        return failure(self.symbol, status, self._stopping)


class LoadedArtifact:
    """A loaded artefact."""

    def __init__(self, loaded: LoadedObject, metadata: Mapping[str, Any] = _NONE) -> None:
        self._loaded = loaded
        self._metadata = metadata

    def entry(self, symbol: str) -> Entry:
        return Entry(symbol, self._loaded.address(symbol + ENTRY_SUFFIX), self._loaded, self._metadata)

    def close(self) -> None:
        self._loaded.close()


class CpuDevice(HostMemory):
    """The memory and the cores of this process. Handles are addresses."""

    name = "cpu"
    formats = (FORMAT,)
    dlpack_device = (1, 0)

    def check(self, artifact: Artifact) -> None:
        """Raise ArtifactError for code of another architecture, or with features that this
        processor lacks.
        """
        host = host_cpu()
        machine = read_object(artifact.code).machine
        if machine != host.arch:
            raise ArtifactError(
                f"the code is for {machine}, this machine is {host.arch}",
                hint="compile the model here, or for this target with -mtriple",
            )
        self.check_machine(artifact.metadata)

    def check_machine(self, metadata: Mapping[str, Any]) -> None:
        """Raise ArtifactError for code of another system, or with features that this processor lacks."""
        host = host_cpu()
        triple = metadata.get("triple")
        if isinstance(triple, str) and _system(triple) != _system(host.triple):
            raise ArtifactError(
                f"the code is for {triple}, this machine is {host.triple}", hint="compile the model here"
            )
        missing = [name for name in _required(metadata) if not host.has(name)]
        if missing:
            raise ArtifactError(
                f"the code uses processor features that this machine does not have: {', '.join(missing)}",
                hint="compile the model here, or for a common processor such as -mcpu=x86-64-v3",
            )

    def load(self, artifact: Artifact) -> LoadedArtifact:
        """Map code into this process, without running any of it. Raises ArtifactError if it is for another
        machine, or has another structure than generated code.
        """
        self.check(artifact)
        pool()
        given = addresses(artifact.metadata)
        check_structure(artifact.code, [symbol + ENTRY_SUFFIX for symbol in artifact.symbols], given)
        return LoadedArtifact(load_object(artifact.code, given), artifact.metadata)

    def launch(self, entry: Entry, buffers: Sequence[int], scalars: Sequence[int], threads: int) -> None:
        """Run an entry point, and return when it has finished."""
        entry(buffers, scalars, threads)


def _system(triple: str) -> str:
    """The parts of a triple that determine the calling convention: without vendor and C library."""
    words = triple.split("-")
    return next((w for w in words[1:] if w.startswith(("linux", "darwin", "macos", "windows"))), words[-1])


def _required(metadata: Mapping[str, Any]) -> list[str]:
    features: Any = metadata.get("features", "")
    words = features.split(",") if isinstance(features, str) else []
    return [w[1:] for w in words if w.startswith("+") and w[1:] not in _SYSTEM_FEATURES]


DEVICE = CpuDevice()

__all__ = ["DEVICE", "CpuDevice", "Entry", "LoadedArtifact"]
