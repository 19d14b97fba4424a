"""The C runtime: `dlc_runtime.h` and `dlc_runtime.c`, which run saved models and libraries without Python.

`dlc_device.h` is the interface of the C runtimes of devices, which programs register.

write_runtime("vendor/dlc")         the files, to be compiled with a program
exe.save("model.dlc", library=True) a file for it
"""

from __future__ import annotations

import os
from pathlib import Path

from dlc_core.backend.deploy import HEADERS
from dlc_core.diag import ArtifactError

_HERE = Path(__file__).parent
FILES = (_HERE / "dlc_runtime.h", _HERE / "dlc_runtime.c", HEADERS[0])


def write_runtime(folder: str | os.PathLike[str]) -> list[Path]:
    """Write the headers and the source of the C runtime into a folder. Returns their paths.

    Raises ArtifactError if they cannot be written.
    """
    target = Path(folder)
    try:
        target.mkdir(parents=True, exist_ok=True)
        for file in FILES:
            (target / file.name).write_bytes(file.read_bytes())
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise ArtifactError(f"the runtime cannot be written to {target}", why=why) from None
    return [target / file.name for file in FILES]


__all__ = ["FILES", "write_runtime"]
