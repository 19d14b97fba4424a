"""The declared dtypes of an artefact: which ones it uses, and the meaning that their codes had."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from dlc_core.diag import ArtifactError
from dlc_core.ir.declared import declared_dtypes


def used_dtypes(texts: Iterable[bytes]) -> dict[str, list[str]]:
    """The declared dtypes whose names are in the texts: for each the fingerprint of its codes, and the plugin
    that declares it.
    """
    declared = declared_dtypes()
    if not declared:
        return {}
    found = [name for name in declared if any(f'"{name}"'.encode() in text for text in texts)]
    return {name: [declared[name].fingerprint, declared.provider(name)] for name in found}


def check_dtypes(path: Path, listed: Any) -> None:
    """Raise ArtifactError if a dtype of a file is not declared here, or has other codes."""
    if not isinstance(listed, Mapping):
        raise ArtifactError(f"the dtypes of {path} are malformed", hint="compile the model again")
    for name, entry in listed.items():
        fingerprint, plugin = entry if isinstance(entry, list) and len(entry) == 2 else ("", "")
        decl = declared_dtypes().get(str(name))
        if decl is None:
            raise ArtifactError(
                f"{path} has values of the dtype {name!r}, which no installed plugin declares",
                why=f"the plugin {plugin!r} declared it when the file was written",
                hint="install that plugin; `dlc plugins -v` lists the installed ones",
            )
        if decl.fingerprint != fingerprint:
            raise ArtifactError(
                f"the dtype {name!r} of {path} has other codes than the installed one",
                why=f"{plugin!r} has changed since the file was written",
                hint="install the version that wrote it, or compile the model again",
            )


__all__ = ["check_dtypes", "used_dtypes"]
