"""Whether a `.pt2` file has the guards of its program: `check_that_guards_are_known`.

torch.export takes the branches and broadcasts of the example sizes, and torch 2.9 or newer saves the
conditions for them. Older versions neither save nor read them. Then nothing tells for which sizes the graph
is right. Programs without symbolic sizes need no guards.
"""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import torch
from torch.export import ExportedProgram

from dlc_core.diag import UnsupportedError

_GRAPHS = ("models/model.json", "serialized_exported_program.json")
"""The ends of names of the archive's member that describes the graph, for torch from 2.8 on and before."""


def check_that_guards_are_known(path: Path, program: ExportedProgram) -> None:
    """Raise UnsupportedError if a program has symbolic sizes, and its file or this torch has no guards."""
    if not _has_symbolic_sizes(program):
        return
    described = _description(path)
    if "guards_code" in described and hasattr(program, "_guards_code"):
        return
    saved = str(described.get("torch_version", "")).removeprefix("<=")
    raise UnsupportedError(
        f"{path} has symbolic sizes and no guards",
        why=f"torch {saved or 'of an unknown version'} saved it, and torch {torch.__version__} read it; "
        "before 2.9, torch does not keep the conditions under which it chose branches, so calls with other "
        "sizes may give wrong results",
        hint="export it with torch 2.9 or newer, or accept that: "
        "dlc.compile(path, trust=True, unguarded=True)",
    )


def _has_symbolic_sizes(program: ExportedProgram) -> bool:
    places = [node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder"]
    sizes = [size for each in places for size in (each.shape if isinstance(each, torch.Tensor) else [each])]
    return any(isinstance(size, torch.SymInt) for size in sizes)


def _description(path: Path) -> dict[str, Any]:
    """The JSON of the program, which torch has read already."""
    with zipfile.ZipFile(path) as archive:
        names = [name for name in archive.namelist() if name.endswith(_GRAPHS)]
        found = json.loads(archive.read(names[0])) if names else {}
    return found if isinstance(found, dict) else {}


__all__ = ["check_that_guards_are_known"]
