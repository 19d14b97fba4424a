"""A cache of compiled binaries between processes, in `cache_dir/libraries`.

The name of a file is a digest of its inputs, so a file is never out of date. Its modification time is the
time of its last use. When the cache exceeds `config.cache_size` or half of the free disk space, the least
recently used files are removed.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from dlc_core.backend.compiler import NATIVE, compiler_version
from dlc_core.config import config
from dlc_core.runtime.machine.resources import processor_words
from dlc_core.support.disk import quota

_STALE = 3600.0
"""Seconds after which the temporary folder of a build is considered abandoned."""

_PARTS = 32
"""The limit is checked each time this process has added more than 1/32 of it."""

_added: dict[Path, int] = {}
"""The bytes that this process has added to a folder since the last check."""


@dataclass(frozen=True)
class KeptFile:
    """A cached file: its size in bytes, and the time of its last use."""

    path: Path
    size: int
    used: float


class KeptFiles:
    """The cached files of a folder, by default that of the settings."""

    def __init__(self, folder: Path | None = None, limit: int | None = None) -> None:
        self.folder = Path(config.cache_dir if folder is None else folder) / "libraries"
        self.limit = config.cache_size << 20 if limit is None else limit

    def entries(self) -> list[KeptFile]:
        """The cached files, the least recently used first."""
        return self._scan()[0]

    def trim(self, keep: Path | None = None) -> int:
        """Remove unfinished files and the least recently used files until the limit holds. Returns the number
        of removed files.
        """
        entries, folders = self._scan()
        for path, changed in folders:
            if time.time() - changed > _STALE:
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
        """The files, and the temporary folders of builds with their modification times."""
        files, folders = [], []
        with suppress(OSError), os.scandir(self.folder) as found:
            for each in found:
                with suppress(OSError):
                    status = each.stat()
                    if each.is_dir():
                        folders.append((Path(each.path), status.st_mtime))
                    else:
                        files.append(KeptFile(Path(each.path), status.st_size, status.st_mtime))
        return sorted(files, key=lambda file: (file.used, file.path.name)), folders


def _remove(path: Path) -> bool:
    with suppress(OSError):
        path.unlink()
        return True
    return False


def kept(
    code: bytes, suffix: str, words: Sequence[str], build: Callable[[Path, Path], None], tool: str = ""
) -> Path:
    """Return the result of `build(source, out)` from the cache, or build it.

    The key is the text, `words`, the compiler (`tool` if it is not this machine's), and the processor if
    `words` depend on it.
    """
    parts = [code, " ".join(words).encode(), (tool or compiler_version()).encode()]
    if NATIVE in words:
        parts.append(processor_words().encode())
    files = KeptFiles()
    files.folder.mkdir(parents=True, exist_ok=True)
    path = files.folder / (hashlib.sha256(b"\0".join(parts)).hexdigest()[:32] + suffix)
    if path.exists():
        with suppress(OSError):  # the folder may be read-only
            os.utime(path)
        return path
    with tempfile.TemporaryDirectory(dir=files.folder) as name:
        source, made = Path(name, "model.c"), Path(name, "model" + suffix)
        source.write_bytes(code)
        build(source, made)
        made.replace(path)
    files.added(path)
    return path


__all__ = ["KeptFile", "KeptFiles", "kept"]
