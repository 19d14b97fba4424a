"""From a file to an executable: artefacts of `exe.save`, and libraries of `exe.export`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dlc_core.config import config as settings
from dlc_core.diag import ArtifactError, DlcError
from dlc_core.driver.trust import Gate
from dlc_core.foreign.needed import check_opened
from dlc_core.plugin.registry import registry
from dlc_core.runtime.artefact.saving import Saved, read
from dlc_core.runtime.device import check_format, device_at
from dlc_core.runtime.executable import Executable
from dlc_core.support.lazy import lazy
from dlc_core.target import Target
from dlc_core.target.artifact import CONFINED, REFUSED
from dlc_core.target.confined import check_sources

if TYPE_CHECKING:
    from dlc_core.runtime import library
else:
    library = lazy("dlc_core.runtime.library")


def open_compiled(
    path: Path, *, num_threads: int | None, verify: bool, trust: bool, compile_source: bool, mapped: bool
) -> Executable:
    """Open a file with code, as `driver.files.open` says."""
    gate = Gate(trust, mapped)
    saved = read(path, verify=verify, mapped=mapped, accept=gate)
    reading = CONFINED if gate.is_own or compile_source else REFUSED
    runnable = _runnable(saved, path, reading)
    return opened(runnable, Target.parse(saved.target, registry().targets), num_threads, gate.by)


def _runnable(saved: Saved, path: str | os.PathLike[str], reading: str) -> Saved:
    """The contents of a file whose sources are for a compiler as `reading` says. Raises ArtifactError if a
    part of it cannot run here.
    """

    def inner(parts: Mapping[str, Saved]) -> dict[str, Saved]:
        return {name: _runnable(part, path, reading) for name, part in parts.items()}

    known = registry()
    try:
        Target.parse(saved.target, known.targets)
        device = known.devices[saved.device]
    except DlcError as error:
        raise ArtifactError(
            f"{path} is for the target {saved.target!r}, which is not known here",
            why=error.what,
            hint="install the plugin that provides it",
        ) from error
    artifact, codegen = replace(saved.artifact, reading=reading), known.codegens.get(saved.codegen)
    check_format(device, artifact)
    if codegen is not None and artifact.format not in getattr(codegen, "formats", (codegen.format,)):
        raise ArtifactError(
            f"{path} is malformed",
            why=f"the code generator {saved.codegen!r} does not make the format {artifact.format!r}",
        )
    check_sources(artifact, device, codegen)
    check_opened(path, artifact.metadata)
    check_opened(path, saved.about)  # functions that nodes on the host call
    check = getattr(device, "check", None)
    if check is not None:
        check(artifact)
    return replace(saved, artifact=artifact, parts=inner(saved.parts), regions=inner(saved.regions))


def opened(saved: Saved, target: Target, num_threads: int | None, vouched: str = "") -> Executable:
    """Make an executable of a file's parts; its device may be absent. `vouched` says who vouches for it."""
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
        report={"vouched": vouched} if vouched else None,
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


__all__ = ["load_library", "open_compiled", "opened"]
