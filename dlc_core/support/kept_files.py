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
from dlc_core.support.private import private_folder, remove_from
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
    """The files of a folder, which take at most `limit` bytes.

    A file may have a companion, whose name has the suffix `companion` besides; both are removed together.
    """

    def __init__(self, folder: Path, limit: int, companion: str = "") -> None:
        self.folder = folder
        self.limit = limit
        self.companion = companion

    def entries(self) -> list[KeptFile]:
        """The cached files, the least recently used first."""
        try:
            with private_folder(self.folder) as folder:
                return self._scan(folder)[0]
        except OSError:
            return []

    def trim(self, keep: Path | None = None) -> int:
        """Remove unfinished files and the least recently used files until the limit holds. Returns the number
        of removed files.
        """
        removed = 0
        with suppress(OSError), private_folder(self.folder) as folder:
            entries, unfinished = self._scan(folder)
            for path, changed in unfinished:
                if time.time() - changed > _STALE and not self._remove(folder, path):
                    shutil.rmtree(path, ignore_errors=True)
            total = sum(file.size for file in entries)
            limit = quota(self.folder, total, self.limit)
            for file in entries:
                if total <= limit:
                    break
                if file.path != keep:
                    removed += self._remove(folder, file.path)
                    total -= file.size
        return removed

    def clear(self, before: float = float("inf")) -> int:
        """Remove all files whose last use was before a time in seconds of the epoch. Returns their number."""
        removed = 0
        with suppress(OSError), private_folder(self.folder) as folder:
            for file in self._scan(folder)[0]:
                if file.used < before:
                    removed += self._remove(folder, file.path)
        return removed

    def added(self, path: Path) -> None:
        """Account for a new file, and enforce the limit if more than 1/32 of it was added since the last
        check.
        """
        with suppress(OSError):
            _added[self.folder] = _added.get(self.folder, self.limit) + path.stat().st_size
        if _added.get(self.folder, 0) * _PARTS >= self.limit:
            _added[self.folder] = 0
            self.trim(keep=path)

    def _scan(self, folder: int | None) -> tuple[list[KeptFile], list[tuple[Path, float]]]:
        """The files; unfinished files and the temporary folders of builds, with their modification times."""
        files: list[KeptFile] = []
        unfinished: list[tuple[Path, float]] = []
        with os.scandir(self.folder if folder is None else folder) as found:
            for each in found:
                path = self.folder / each.name
                with suppress(OSError):
                    status = each.stat(follow_symlinks=False)
                    if self.companion and each.name.endswith(self.companion):
                        continue
                    if each.is_dir(follow_symlinks=False) or each.name.startswith("."):
                        unfinished.append((path, status.st_mtime))
                    else:
                        files.append(KeptFile(path, status.st_size, status.st_mtime))
        return sorted(files, key=lambda file: (file.used, file.path.name)), unfinished

    def _remove(self, folder: int | None, path: Path) -> bool:
        if self.companion:
            with suppress(OSError):
                remove_from(folder, path.with_name(path.name + self.companion))
        with suppress(OSError):
            remove_from(folder, path)
            return True
        return False


__all__ = ["KeptFile", "KeptFiles"]
