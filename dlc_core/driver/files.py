"""Files of models, in both forms: compiled code for one target, and portable models."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dlc_core.cancel import CancelToken
from dlc_core.diag import UsageError
from dlc_core.driver import api
from dlc_core.driver.loading import load
from dlc_core.driver.opening import open_compiled
from dlc_core.driver.target_list import TargetLike
from dlc_core.runtime.artefact.container import is_portable
from dlc_core.runtime.executable import Executable
from dlc_core.support.lazy import lazy

if TYPE_CHECKING:
    from dlc_core.driver.portable import form
else:
    form = lazy("dlc_core.driver.portable.form")

VOUCHED = "portable"
"""The entry `vouched` in the report of an executable from a portable model: nobody has to vouch for it."""


def open(  # noqa: A001  (the public name)
    path: str | os.PathLike[str],
    target: TargetLike | None = None,
    *,
    num_threads: int | None = None,
    verify: bool = False,
    trust: bool = False,
    compile_source: bool = False,
    mapped: bool = False,
    cancel: CancelToken | None = None,
) -> Executable:
    """Open a file that `exe.save` or `dlc.save_portable` wrote.

    A portable model has no code. It is checked and compiled for `target` (None is this machine), or taken
    from the cache of compiled models. Nobody needs to vouch for it. `cancel` stops the compile. `dlc.compile`
    takes such files, too, with all of its arguments.

    Other files have native code for one target, with all rights of this process. So a file is accepted only
    if this user's dlc wrote it, if it has a signature of a trusted key, or with `trust=True`. No code of
    the file runs before the executable is called. `verify` also compares the weights with their checksum,
    which reads all of them; it matters with `trust=True` only, because it is always done for files of this
    user and signed ones. `compile_source` allows a compiler of this machine to read a file that has source
    text instead of machine code; files of this user need no permission. The file is copied to memory, so it
    may be changed or removed afterwards. `mapped` maps it instead, so that processes share the memory of
    the weights: then the file may be replaced by another, and must not be changed in place; if it becomes
    shorter, the process ends.

    Raises UntrustedError if nobody vouches for a file with code, UsageError if such a file is opened with a
    target, ArtifactError for a file that is damaged, of another format version, or for a machine or plugin
    that is missing, and other errors for a portable model that cannot be compiled.
    """
    file = Path(path)
    if is_portable(file):
        if mapped:
            raise UsageError(
                f"{file} cannot be mapped",
                why="it is a portable model: its weights are rearranged by the compile",
                hint="leave mapped=True out; the compiled model is mapped from the cache",
            )
        exe = api.compile(form.read_portable(file), target, num_threads=num_threads, cancel=cancel)
        exe.report["vouched"] = VOUCHED
        return exe
    if target is not None:
        raise UsageError(f"{file} is compiled already", hint="a target is for portable models")
    return open_compiled(
        file,
        num_threads=num_threads,
        verify=verify,
        trust=trust,
        compile_source=compile_source,
        mapped=mapped,
    )


def save_portable(
    model: Any,
    path: str | os.PathLike[str],
    *,
    shapes: Mapping[str, Any] | None = None,
    frontend: str | None = None,
    trust: bool = False,
    **reading: Any,
) -> Path:
    """Write a model in portable form: its graphs and weights, without native code. Returns the path.

    `model`, `shapes`, `frontend`, `trust` and further arguments are those of `dlc.load`. `dlc.open` compiles
    the file on the machine where it is used, and accepts it from anybody. Importers and plugins that declare
    the model's ops must be installed there.

    Raises UnsupportedError for a model with tensor programs, calls of foreign functions, donated inputs or
    recursive functions, and ArtifactError if the file cannot be written.
    """
    file = Path(path)
    form.write_portable(load(model, shapes=shapes, frontend=frontend, trust=trust, **reading), file)
    return file


__all__ = ["VOUCHED", "open", "save_portable"]
