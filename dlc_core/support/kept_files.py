"""Folders of cached files with a limit of their size.

The modification time of a file is the time of its last use.  When a folder exceeds its limit or half of the
free disk space, the least recently used files are removed.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from dlc_core.support.disk import quota
from dlc_core.support.lazy import lazy
from dlc_core.support.record import record

if TYPE_CHECKING:
    import shutil
else:
    shutil = lazy("shutil")

_STALE = 3600.0
"""Seconds after which an unfinished file, or the temporary folder of a build, is considered abandoned."""

_PARTS = 32
"""The limit is checked each time this process has added more than 1/32 of it."""

_added: dict[Path, int] = {}
"""The bytes that this process has added to a folder since the last check."""


@record(frozen=True)
class KeptFile:
    """A cached file: its size in bytes, and the time of its last use."""

    path: Path
    size: int
    used: float


class KeptFiles:
    """The files of a folder, which take at most `limit` bytes."""

    def __init__(self, folder: Path, limit: int) -> None:
        self.folder = folder
        self.limit = limit

    def entries(self) -> list[KeptFile]:
        """The cached files, the least recently used first."""
        return self._scan()[0]

    def trim(self, keep: Path | None = None) -> int:
        """Remove unfinished files and the least recently used files until the limit holds. Returns the number
        of removed files.
        """
        entries, unfinished = self._scan()
        for path, changed in unfinished:
            if time.time() - changed > _STALE and not _remove(path):
                shutil.rmtree(path, ignore_errors=True)
        removed = 0
        total = sum(file.size for file in entries)
        limit = quota(self.folder, total, self.limit)
        for file in entries:
            if total <= limit:
                break
            if file.path != keep:
                removed += _remove(file.path)
                total -= file.size
        return removed

    def clear(self) -> int:
        """Remove all files, and return their number."""
        return sum(_remove(file.path) for file in self.entries())

    def added(self, path: Path) -> None:
        """Account for a new file, and enforce the limit if more than 1/32 of it was added since the last
        check.
        """
        with suppress(OSError):
            _added[self.folder] = _added.get(self.folder, self.limit) + path.stat().st_size
        if _added.get(self.folder, 0) * _PARTS >= self.limit:
            _added[self.folder] = 0
            self.trim(keep=path)

    def _scan(self) -> tuple[list[KeptFile], list[tuple[Path, float]]]:
        """The files; unfinished files and the temporary folders of builds, with their modification times."""
        files, unfinished = [], []
        with suppress(OSError), os.scandir(self.folder) as found:
            for each in found:
                with suppress(OSError):
                    status = each.stat()
                    if each.is_dir() or each.name.startswith("."):
                        unfinished.append((Path(each.path), status.st_mtime))
                    else:
                        files.append(KeptFile(Path(each.path), status.st_size, status.st_mtime))
        return sorted(files, key=lambda file: (file.used, file.path.name)), unfinished


def _remove(path: Path) -> bool:
    with suppress(OSError):
        path.unlink()
        return True
    return False


__all__ = ["KeptFile", "KeptFiles"]
