"""Programs of a device: built from text, or taken from the cache.

Binaries are stored in dlc's cache folder, with text, device and driver as keys. If a driver has its own
cache, as PoCL has, dlc stores none.
"""

from __future__ import annotations

import hashlib
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

from dlc_core.config import config
from dlc_core.diag import CodegenError
from dlc_core.support.disk import read_checked, write_checked

FLAGS = "-w"
"""Compiler flags, which disable warnings."""
_MAX_BYTES = 1 << 28
"""Bytes that are read of a file; a larger one counts as damaged."""
_SHOWN = 40
"""The number of lines of a compiler's log that an error shows."""


def build(cl: Any, context: Any, device: Any, text: str) -> Any:
    """Build the program of a text. Raises CodegenError with the compiler's log if the compiler refuses it."""
    path = None if _keeps_itself(device) else _path(device, text)
    binary = None if path is None else read_checked(path, _MAX_BYTES)
    if binary is not None:
        # It is replaced if it is of another driver.
        with suppress(cl.Error):
            return _built(cl, cl.Program(context, [device], [binary]))
    program = cl.Program(context, text)
    try:
        _built(cl, program)
    except cl.Error as error:
        raise _refused(cl, device, program, error) from None
    if path is not None:  # if the folder cannot be written, nothing is stored
        write_checked(path, program.get_info(cl.program_info.BINARIES)[0])
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


__all__ = ["FLAGS", "build"]
