"""Libraries that `exe.export` wrote, loaded into this process and called like executables.

    lib = dlc.load_library("add_one.so")
    y = lib(x)

A library `name` has the functions that its C header declares (`<name>_run` and others), and the data
`<name>_signature`: JSON text, ended by a zero byte, that describes its interface. Code generators that export
libraries write it by `describe`. It is all that is needed to call the library.

Loading a library runs its author's native code: load only libraries that you trust.  `dlc.open` runs no code.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from dlc_core.diag import ArtifactError, RuntimeFailure, UnsupportedError
from dlc_core.foreign.needed import load_globally
from dlc_core.runtime.device import HostMemory
from dlc_core.runtime.executable import Executable
from dlc_core.runtime.guard.failures import status_failure
from dlc_core.runtime.interface.encode import decode_signature, encode_signature
from dlc_core.runtime.interface.signature import Signature
from dlc_core.runtime.machine.cores import usable_cores
from dlc_core.target import Artifact, Target, TargetKind

CHECK_FAILED = 1
"""The result of `<name>_run` if a run-time index was out of range."""
DEVICE_FAILED = 2
"""The result of `<name>_run` if a device failed; `<name>_error` returns the reason."""
FORMAT = "library"
VERSION = 1
_UNDEFINED = re.compile(r"undefined symbol: (\w+)")
"""The loader's message about a library that calls a function which nothing defines."""
_MAX_DESCRIPTION = 1 << 26
"""The maximum number of bytes of a description."""

_KIND = TargetKind("library", "an exported library", codegen="", device="library")


def c_name(text: str) -> str:
    """A file name as a C identifier: `libresnet-50` gives `resnet_50`."""
    word = re.sub(r"\W", "_", text.removeprefix("lib"), flags=re.ASCII) or "model"
    return word if not word[0].isdigit() else f"model_{word}"


def signature_symbol(name: str) -> str:
    """The data symbol of a library's description."""
    return f"{name}_signature"


def describe(name: str, signature: Signature, target: Target, metadata: Mapping[str, Any]) -> bytes:
    """The content of `<name>_signature`. `metadata` is for `Device.check_machine`."""
    record = {
        "version": VERSION,
        "name": name,
        "target": str(target),
        "device": target.kind.device,
        "metadata": dict(metadata),
        "signature": encode_signature(signature),
    }
    return json.dumps(record, separators=(",", ":"), sort_keys=True).encode() + b"\0"


class _Function:
    """`<name>_run` as an entry point, whose buffers are inputs, outputs, weights (unused) and workspace."""

    def __init__(self, call: Any, symbol: str, signature: Signature, reason: Any = None) -> None:
        """`reason` is `<name>_error`, if the library has it."""
        self._call = call
        self._reason = reason
        if reason is not None:
            reason.restype = ctypes.c_char_p
        self._symbol = symbol
        self._inputs, self._outputs = len(signature.inputs), len(signature.outputs)
        self._checked = bool(signature.sites)
        call.restype = ctypes.c_int
        dims = [ctypes.c_int64] * len(signature.symbols)
        call.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_int, *dims]

    def __call__(self, buffers: Sequence[int], scalars: Sequence[int], threads: int) -> None:
        self.prepare(buffers, scalars, threads)()

    def prepare(self, buffers: Sequence[int], scalars: Sequence[int], threads: int) -> Callable[[], None]:
        """A function without arguments that calls the entry point with these arguments."""
        end = self._inputs + self._outputs
        inputs, outputs = buffers[: self._inputs], buffers[self._inputs : end]
        ins = (ctypes.c_void_p * max(1, len(inputs)))(*inputs)
        outs = (ctypes.c_void_p * max(1, len(outputs)))(*outputs)
        # Empty scratch memory needs a valid address too.
        call, args = self._call, (ins, outs, buffers[end + 1], threads, *scalars)
        failed_check = CHECK_FAILED if self._checked else 0  # the caller then reads the record

        def run() -> None:
            status = call(*args)
            if status == DEVICE_FAILED and self._reason is not None:
                raise RuntimeFailure("a device failed", why=self._reason().decode(errors="replace"))
            if status and status != failed_check:
                raise status_failure(self._symbol, status)

        return run


class _LibraryDevice(HostMemory):
    """This process, into which a library is loaded."""

    name = "library"
    formats = (FORMAT,)

    def __init__(self, handle: ctypes.CDLL, signature: Signature) -> None:
        super().__init__()
        self._handle = handle
        self._signature = signature

    def load(self, artifact: Artifact) -> _LibraryDevice:
        return self

    def entry(self, symbol: str) -> _Function:
        reason = getattr(self._handle, f"{symbol.removesuffix('_run')}_error", None)
        return _Function(self._handle[symbol], symbol, self._signature, reason)

    def close(self) -> None:
        """A library stays loaded until the process ends, because its own threads may be running in it."""

    def launch(self, entry: _Function, buffers: Sequence[int], scalars: Sequence[int], threads: int) -> None:
        entry(buffers, scalars, threads)


class Library(Executable):
    """An exported library in this process. It is called, bound and timed like other executables."""

    def __init__(self, path: Path, handle: ctypes.CDLL, record: Mapping[str, Any], threads: int) -> None:
        # The weights are part of the library, so none are passed.
        signature = replace(decode_signature(record.get("signature")), weights_size=0)
        symbol = f"{record.get('name')}_run"
        super().__init__(
            signature,
            Artifact(FORMAT, b"", str(record.get("target")), (symbol,)),
            np.empty(0, np.uint8),
            Target(_KIND),
            _LibraryDevice(handle, signature),
            entry=symbol,
            num_threads=threads,
        )
        self.path = path

    def save(
        self, path: str | os.PathLike[str], *, sources: Sequence[str] | None = None, library: bool = False
    ) -> None:
        """Raises UnsupportedError: a library is already a file."""
        raise UnsupportedError(f"{self.path} is a library", hint="copy it, or save what it was exported from")

    def __repr__(self) -> str:
        return f"<Library {self.path}: {self.signature}>"


def load_library(
    path: str | os.PathLike[str],
    *,
    name: str | None = None,
    num_threads: int | None = None,
    check: Callable[[str, Mapping[str, Any]], None] = lambda device, metadata: None,
) -> Library:
    """See `dlc.load_library`. `check(device, metadata)` raises an error if the machine cannot run
    the code.
    """
    file = Path(path).absolute()
    if not file.is_file():
        raise ArtifactError(f"there is no library {file}", hint='exe.export("add_one.so") writes one')
    handle = _open(file)
    exported_name = c_name(file.stem) if name is None else name
    symbol = signature_symbol(exported_name)
    try:
        text = ctypes.c_char.in_dll(handle, symbol)
    except ValueError:
        raise ArtifactError(
            f"{file} has no description of its interface",
            why=f"it has no symbol {symbol}",
            hint="pass the name under which it was exported by name=..., or export it again",
        ) from None
    record = _record(file, ctypes.string_at(ctypes.addressof(text)))
    metadata = record.get("metadata")
    check(str(record.get("device")), metadata if isinstance(metadata, dict) else {})
    if record.get("name") != exported_name or not hasattr(handle, f"{exported_name}_run"):
        raise ArtifactError(f"{file} has no function {exported_name}_run")
    return Library(file, handle, record, num_threads or usable_cores())


def _open(file: Path) -> ctypes.CDLL:
    """Load a library. Before it, load those of foreign functions that it calls, if they are known."""
    loaded: set[str] = set()
    while True:
        try:
            return ctypes.CDLL(str(file))
        except OSError as error:
            missing = _UNDEFINED.search(str(error))
            symbol = "" if missing is None else missing[1]
            hint = "load the library that defines it before this one, for all (RTLD_GLOBAL)" if symbol else ""
            if not symbol or symbol in loaded or not load_globally(symbol):
                raise ArtifactError(f"{file} cannot be loaded", why=str(error), hint=hint) from None
            loaded.add(symbol)


def _record(file: Path, data: bytes) -> dict[str, Any]:
    try:
        record = json.loads(data[:_MAX_DESCRIPTION])
    except (ValueError, RecursionError) as error:
        raise ArtifactError(f"the description in {file} is not JSON", why=str(error)) from None
    if not isinstance(record, dict) or record.get("version") != VERSION:
        found = record.get("version") if isinstance(record, dict) else None
        raise ArtifactError(
            f"{file} has version {found}, this dlc loads version {VERSION}", hint="export the model again"
        )
    return record


__all__ = ["Library", "c_name", "describe", "load_library", "signature_symbol"]
