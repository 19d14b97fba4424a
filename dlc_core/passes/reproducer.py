"""Reproducers of failures: one text file with the input, the remaining passes, the target and versions."""

from __future__ import annotations

import hashlib
import platform
import traceback
from pathlib import Path
from typing import Any

import numpy as np

from dlc_core.diag import DlcError
from dlc_core.ir.module import IRModule
from dlc_core.passes.base import Pass, PassContext
from dlc_core.script import script
from dlc_core.support.private import new_file, replace_in, temporary_of
from dlc_core.version import __version__

REPRODUCERS = "reproducer_dir"
"""The setting with the folder of reproducers."""


def reproducer_text(
    one: Pass, module: IRModule, context: PassContext, pipeline: str, error: BaseException
) -> str:
    """Return comments with all that is needed to run the pass again, and the module before it."""
    report = str(error) if isinstance(error, DlcError) else "".join(traceback.format_exception(error))
    head = [
        f"a failure of pass {one.name!r}",
        f"dlc {__version__}, Python {platform.python_version()}, NumPy {np.__version__}",
        f"target: {context.target if context.target is not None else 'none'}",
        f"opt_level: {context.opt_level}",
        f"disabled: {', '.join(context.disabled) or 'none'}",
        f"pipeline: {pipeline}",
        "",
        *report.rstrip().split("\n"),
    ]
    return "\n".join(f"# {line}".rstrip() for line in head) + "\n\n" + text_of(module)


def text_of(module: IRModule) -> str:
    """Return the module's script, or a comment with the reason if the module cannot be printed."""
    try:
        return script(module)
    except Exception as error:  # noqa: BLE001 (the failure to report is another one)
        return f"# the module cannot be printed: {type(error).__name__}: {error}\n"


def write_reproducer(
    folder: Any, one: Pass, module: IRModule, context: PassContext, pipeline: str, error: BaseException
) -> Path:
    """Write the text into a folder, which is created if it is missing. Returns the path."""
    text = reproducer_text(one, module, context, pipeline, error)
    directory = Path(folder)
    directory.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    path = directory / f"{one.name}-{digest}.py"
    temporary = temporary_of(path)
    # A new file is renamed: if the path is a symbolic link, its target is not overwritten.
    with open(new_file(temporary), "wb") as file:  # noqa: PTH123 (a descriptor)
        file.write(text.encode())
    replace_in(None, temporary, path)
    return path
