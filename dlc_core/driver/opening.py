"""From a file to an executable: artefacts of `exe.save`, and libraries of `exe.export`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dlc_core.config import config as settings
from dlc_core.diag import ArtifactError, DlcError
from dlc_core.foreign.needed import check_opened
from dlc_core.plugin.registry import registry
from dlc_core.runtime.artefact.saving import Saved, read
from dlc_core.runtime.device import check_format, device_at
from dlc_core.runtime.executable import Executable
from dlc_core.support.lazy import lazy
from dlc_core.target import Target

if TYPE_CHECKING:
    from dlc_core.runtime import library
else:
    library = lazy("dlc_core.runtime.library")


def open(  # noqa: A001  (the public name)
    path: str | os.PathLike[str], *, num_threads: int | None = None, verify: bool = False
) -> Executable:
    """Open a file that `exe.save` wrote; weights are mapped from the file when they are used.

    No code of the file runs before the executable is called.  `verify` also compares the weights with their
    checksum, which reads all of them.  Raises ArtifactError for a file that is damaged, of another format
    version, or for a machine or plugin that is missing; the error says what to do.
    """
    saved = read(Path(path), verify=verify)
    target = _runnable(saved, path)
    for part in (*saved.parts.values(), *saved.regions.values()):
        _runnable(part, path)
        for region in part.regions.values():
            _runnable(region, path)
    return opened(saved, target, num_threads)


def _runnable(saved: Saved, path: str | os.PathLike[str]) -> Target:
    """Return the target of a file or region; raise ArtifactError if it cannot run here."""
    known = registry()
    try:
        target = Target.parse(saved.target, known.targets)
        device = known.devices[saved.device]
    except DlcError as error:
        raise ArtifactError(
            f"{path} is for the target {saved.target!r}, which is not known here",
            why=error.what,
            hint="install the plugin that provides it",
        ) from error
    check_format(device, saved.artifact)
    check_opened(path, saved.artifact.metadata)
    check_opened(path, saved.about)  # functions that nodes on the host call
    check = getattr(device, "check", None)
    if check is not None:
        check(saved.artifact)
    return target


def opened(saved: Saved, target: Target, num_threads: int | None) -> Executable:
    """Make an executable of a file's parts; its device may be absent."""
    known = registry()

    def inner(parts: Mapping[str, Saved]) -> dict[str, Executable]:
        return {n: opened(p, Target.parse(p.target, known.targets), num_threads) for n, p in parts.items()}

    return Executable(
        saved.signature,
        saved.artifact,
        saved.weights,
        target,
        device_at(known.devices.get(saved.device), target),
        codegen=known.codegens.get(saved.codegen),
        entry=saved.entry,
        num_threads=num_threads or settings.num_threads or target.describe().cores,
        about=saved.about,
        program=saved.program,
        regions=inner(saved.regions),
        parts=inner(saved.parts),
    )


def load_library(
    path: str | os.PathLike[str], *, name: str | None = None, num_threads: int | None = None
) -> library.Library:
    """Load a shared library that `exe.export` wrote; it is called, bound and timed like an executable.

    Loading runs native code of the file, at least its initialisers: load only files that you trust.  `name`
    is the name at export if the file has been renamed.  Raises ArtifactError if the library is missing, has
    no description of its interface, or is for another machine.
    """

    def check(device: str, metadata: Mapping[str, Any]) -> None:
        own = getattr(registry().devices.get(device), "check_machine", None)
        if own is not None:
            own(metadata)

    return library.load_library(path, name=name, num_threads=num_threads or settings.num_threads, check=check)


__all__ = ["load_library", "open", "opened"]
