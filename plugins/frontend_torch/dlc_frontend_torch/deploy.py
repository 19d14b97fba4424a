"""Deployment of a PyTorch module: `export` writes files that run without torch."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dlc_core import driver
from dlc_core.diag import UsageError
from dlc_core.runtime.executable import Executable

FORMS = {".dlc": "llvm", ".so": "llvm", ".o": "llvm", ".a": "llvm", ".c": "c"}
"""The suffixes of files, and the target that writes each if none is given."""


def export(
    module: Any,
    example_inputs: Sequence[Any] | Mapping[str, Any] | None,
    path: str | os.PathLike[str],
    *,
    target: Any = None,
    dynamic_shapes: Any = None,
    **options: Any,
) -> list[Path]:
    """Compile a module or an ExportedProgram, and write it to `path`.

    The suffix selects the form: `.dlc` for `dlc.open` in Python, `.so` for a library with a C header, `.c`
    for C sources. `target` is by default this machine, and the target "c" for sources; a target for another
    machine cross-compiles. `example_inputs` and `dynamic_shapes` are those of torch.export, None for a
    program that is already exported. `options` are those of `dlc.compile`.

    Returns the written files. Raises UsageError for an unknown suffix, and the errors of `dlc.compile`.
    """
    where = Path(path)
    form = where.suffix.lower()
    if form not in FORMS:
        raise UsageError(
            f"{where.name} has no suffix that says what to write", hint=f"one of {', '.join(FORMS)}"
        )
    reading: dict[str, Any] = {}
    if example_inputs is not None:
        reading["example_inputs"] = example_inputs
    if dynamic_shapes is not None:
        reading["dynamic_shapes"] = dynamic_shapes
    exe: Executable = driver.compile(module, target or FORMS[form], **reading, **options)
    if form == ".dlc":
        exe.save(where)
        return [where]
    return exe.export(where)


__all__ = ["export"]
