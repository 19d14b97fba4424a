"""The current test of a worker process, stored so that it can be read after the process has died.

A worker process writes a file. In other processes this module does nothing.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from dlc_core.diag import first_names

SHOWN = 6
"""The maximum number of kernels that are named."""

_FILES: list[int] = []
"""The descriptor of the file, if this process writes one."""


def keep_in(path: str) -> None:
    """Write the current test of this process to a file from now on."""
    _FILES[:] = [os.open(path, os.O_WRONLY | os.O_CREAT)]


def report(what: str, exe: Any = None) -> None:
    """Record that a case begins to run, and with `exe` its entry point and kernels."""
    if not _FILES:
        return
    entry = {"what": what}
    if exe is not None:
        names = dict.fromkeys(str(site["kernel"]) for site in exe.about.get("sites", ()))
        kernels = first_names(list(names), SHOWN)
        entry |= {"entry": exe.entry, "device": getattr(exe.device, "name", ""), "kernels": kernels}
    data = json.dumps(entry).encode()
    os.ftruncate(_FILES[0], 0)
    os.pwrite(_FILES[0], data, 0)


def read(path: Path) -> str:
    """The last entry as a line; empty if there is none."""
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return ""
    words = [str(found["what"])]
    if "entry" in found:
        words.append(f"entry point {found['entry']!r} on device {found['device']!r}")
        if found["kernels"]:
            words.append(f"kernels {found['kernels']}")
    return ", ".join(words)


__all__ = ["keep_in", "read", "report"]
