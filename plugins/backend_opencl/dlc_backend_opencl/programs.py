"""Programs of a device: built from text, or taken from the cache.

Binaries are stored in dlc's cache folder, with text, device and driver as keys. If a driver has its own
cache, as PoCL has, dlc stores none.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import warnings
from pathlib import Path
from typing import Any

from dlc_core.config import config
from dlc_core.diag import CodegenError

FLAGS = "-w"
"""Compiler flags, which disable warnings."""
_SHOWN = 40
"""The number of lines of a compiler's log that an error shows."""


def build(cl: Any, context: Any, device: Any, text: str) -> Any:
    """Build the program of a text. Raises CodegenError with the compiler's log if the compiler refuses it."""
    path = None if _keeps_itself(device) else _path(device, text)
    if path is not None and path.exists():
        try:
            return _built(cl, cl.Program(context, [device], [path.read_bytes()]))
        except (cl.Error, OSError):  # the binary is damaged, or of another driver
            path.unlink(missing_ok=True)
    program = cl.Program(context, text)
    try:
        _built(cl, program)
    except cl.Error as error:
        raise _refused(cl, device, program, error) from None
    if path is not None:
        _keep(path, program.get_info(cl.program_info.BINARIES)[0])
    return program


def _refused(cl: Any, device: Any, program: Any, error: Exception) -> CodegenError:
    try:
        log = program.get_build_info(device, cl.program_build_info.LOG).strip().splitlines()
    except cl.Error:
        log = []
    log = log or str(error).strip().splitlines()
    more = [f"… {len(log) - _SHOWN} lines more"] if len(log) > _SHOWN else []
    return CodegenError(
        f"the compiler of {device.name} refuses the kernels", details=["it says:", *log[:_SHOWN], *more]
    )


def _built(cl: Any, program: Any) -> Any:
    with warnings.catch_warnings():
        # Ignore compiler warnings, and the warning of pyopencl that its cache is bypassed.
        warnings.simplefilter("ignore")
        program.get_info(cl.program_info.NUM_DEVICES)
        return program.build(FLAGS)


def _keeps_itself(device: Any) -> bool:
    from pyopencl.characterize import has_src_build_cache

    return bool(has_src_build_cache(device))


def _path(device: Any, text: str) -> Path:
    parts = (
        device.platform.name,
        device.platform.version,
        device.name,
        device.version,
        device.driver_version,
    )
    key = hashlib.sha256("\0".join((*parts, FLAGS, text)).encode()).hexdigest()[:32]
    return Path(config.cache_dir) / "opencl" / f"{key}.bin"


def _keep(path: Path, binary: bytes) -> None:
    """Store a binary. If the folder is not writeable, nothing is stored."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        number, name = tempfile.mkstemp(dir=path.parent)
        with os.fdopen(number, "wb") as file:
            file.write(binary)
        Path(name).replace(path)
    except OSError:
        return


__all__ = ["FLAGS", "build"]
