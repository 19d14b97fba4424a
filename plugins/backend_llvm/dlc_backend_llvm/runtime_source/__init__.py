"""The C runtime: `dlc_runtime.h` and `dlc_runtime.c`, which run saved models and libraries without Python.

write_runtime("vendor/dlc")         both files, to be compiled with a program
exe.save("model.dlc", library=True) a file for it
"""

from __future__ import annotations

import os
from pathlib import Path

from dlc_core.diag import ArtifactError

FILES = ("dlc_runtime.h", "dlc_runtime.c")


def write_runtime(folder: str | os.PathLike[str]) -> list[Path]:
    """Write the header and the source of the C runtime into a folder. Returns their paths.

    Raises ArtifactError if they cannot be written.
    """
    here, target = Path(__file__).parent, Path(folder)
    try:
        target.mkdir(parents=True, exist_ok=True)
        for name in FILES:
            (target / name).write_bytes((here / name).read_bytes())
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise ArtifactError(f"the runtime cannot be written to {target}", why=why) from None
    return [target / name for name in FILES]


__all__ = ["FILES", "write_runtime"]
