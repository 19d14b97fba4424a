"""The current test of a worker process, stored so that it can be read after the process has died.

A worker process writes a file. In other processes this module does nothing.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from dlc_core.diag import first_names
from dlc_core.runtime.guard.faults import forget_started

SHOWN = 6
"""The maximum number of kernels that are named."""

_FILES: list[int] = []
"""The descriptor of the file, if this process writes one."""


def keep_in(path: str) -> None:
    """Write the current test of this process to a file from now on."""
    _FILES[:] = [os.open(path, os.O_WRONLY | os.O_CREAT)]


def report(what: str, exe: Any = None) -> None:
    """Record that a case begins to run, and with `exe` its entry point, kernels and regions."""
    if not _FILES:
        return
    forget_started()
    entry: dict[str, Any] = {"what": what}
    if exe is not None:
        placed = exe.about.get("placed", {"regions": ()})["regions"]
        kernels = {name: _kernels_of(region) for name, region in exe.regions.items()}
        regions = {one["name"]: [" ".join(one["ops"]), kernels.get(one["name"], "")] for one in placed}
        entry |= {"entry": exe.entry, "device": getattr(exe.device, "name", "")}
        entry |= {"kernels": _kernels_of(exe), "regions": regions}
    data = json.dumps(entry).encode()
    os.ftruncate(_FILES[0], 0)
    os.pwrite(_FILES[0], data, 0)


def _kernels_of(exe: Any) -> str:
    """The names of an executable's kernels."""
    names = dict.fromkeys(str(site["kernel"]) for site in exe.about.get("sites", ()))
    return first_names(list(names), SHOWN)


def _entry(path: Path) -> dict[str, Any]:
    """The last entry; empty if there is none."""
    try:
        found: dict[str, Any] = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return found


def region_text(path: Path, name: str) -> str:
    """The operations and kernels of a region of the running model; empty for other names."""
    ops, kernels = _entry(path).get("regions", {}).get(name, ("", ""))
    return ", ".join(filter(None, (ops, f"kernels {kernels}" if kernels else "")))


def read(path: Path) -> str:
    """The last entry as a line; empty if there is none."""
    found = _entry(path)
    if not found:
        return ""
    words = [str(found["what"])]
    if "entry" in found:
        words.append(f"entry point {found['entry']!r} on device {found['device']!r}")
        if found["kernels"]:
            words.append(f"kernels {found['kernels']}")
        if found["regions"]:
            words.append(f"{len(found['regions'])} regions")
    return ", ".join(words)


__all__ = ["keep_in", "read", "region_text", "report"]
