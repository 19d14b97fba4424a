"""Programs of a device: built from text, or taken from the cache.

Binaries are kept in dlc's cache folder by text, device and driver. If a driver caches its binaries itself, as
PoCL does, dlc keeps none.
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
"""Compiler flags: warnings about generated text are off."""
_SHOWN = 40
"""Lines of a compiler's log that an error shows."""


def build(cl: Any, context: Any, device: Any, text: str) -> Any:
    """The program of a text; CodegenError with the compiler's log where it refuses it."""
    place = None if _keeps_itself(device) else _place(device, text)
    if place is not None and place.exists():
        try:
            return _built(cl, cl.Program(context, [device], [place.read_bytes()]))
        except (cl.Error, OSError):  # it is of another driver after all, or damaged
            place.unlink(missing_ok=True)
    program = cl.Program(context, text)
    try:
        _built(cl, program)
    except cl.Error as error:
        raise _refused(cl, device, program, error) from None
    if place is not None:
        _keep(place, program.get_info(cl.program_info.BINARIES)[0])
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
        # What a compiler says besides is no one's concern, nor that asking this makes pyopencl keep nothing.
        warnings.simplefilter("ignore")
        program.get_info(cl.program_info.NUM_DEVICES)
        return program.build(FLAGS)


def _keeps_itself(device: Any) -> bool:
    from pyopencl.characterize import has_src_build_cache

    return bool(has_src_build_cache(device))


def _place(device: Any, text: str) -> Path:
    parts = (
        device.platform.name,
        device.platform.version,
        device.name,
        device.version,
        device.driver_version,
    )
    key = hashlib.sha256("\0".join((*parts, FLAGS, text)).encode()).hexdigest()[:32]
    return Path(config.cache_dir) / "opencl" / f"{key}.bin"


def _keep(place: Path, binary: bytes) -> None:
    """Keep a binary; a folder that cannot be written keeps none."""
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        number, name = tempfile.mkstemp(dir=place.parent)
        with os.fdopen(number, "wb") as file:
            file.write(binary)
        Path(name).replace(place)
    except OSError:
        return


__all__ = ["FLAGS", "build"]
