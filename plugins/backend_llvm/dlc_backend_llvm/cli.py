"""`dlc runtime`"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dlc_backend_llvm.runtime_source import write_runtime


def runtime(
    folder: Annotated[Path, typer.Argument(help="Where to write dlc_runtime.h and dlc_runtime.c.")] = Path(),
) -> None:
    """Write the C runtime, which runs compiled models without Python.

    Compile dlc_runtime.c with a program in C, C++ or another language that calls C. It opens libraries, and
    files that were compiled with `--library`.

    Examples:

    - `dlc runtime vendor/dlc`
    - `dlc compile model.onnx --library`
    """
    for path in write_runtime(folder):
        typer.echo(str(path))
