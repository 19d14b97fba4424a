"""The cache of compiled models: one artefact file for each key, in `config.cache_dir`.

    key = cache_key(parts)                  of the parts that `dlc_core.driver.request` computes
    Store().get(key) -> Saved | None
    Store().put(key, exe, parts)

A key is computed before the model is imported.  It covers the model's bytes (or its IR), the target and its
processor, every setting, and the code of the compiler and of all plugins.  Files are written atomically, so
processes may share the folder.  A damaged file is removed and counts as missing; so does one that was stored
under another key.  The least recently used files are removed when the cache exceeds `config.cache_size` or
half of the free disk.

The folder and its files belong to this user alone.  At each read their owner and mode are checked
(`dlc_core/support/private.py`): what another user may have written is never used.

Each artefact has a mark file.  It holds the size, times and inode of the artefact when its weights were last
compared with their checksum, so that this does not happen at every start.  Its own time is that of the last
use.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from dlc_core.config import config
from dlc_core.diag import ArtifactError
from dlc_core.disk_cache import remove_unused
from dlc_core.runtime.artefact.saving import Saved, read, save
from dlc_core.runtime.executable import Executable
from dlc_core.support.disk import quota, warn_refused
from dlc_core.support.private import (
    NotPrivateError,
    open_private,
    private_folder,
    remove_from,
    touch_in,
    write_private,
)
from dlc_core.support.record import record

SUFFIX, MARK = ".dlc", ".mark"
_MARK_BYTES = 256
_STALE = 3600.0
"""Seconds after which an unfinished file counts as abandoned."""


@record(frozen=True)
class Entry:
    """A cached artefact: its size in bytes and the time of its last use."""

    path: Path
    size: int
    used: float


class Store:
    """The cached artefacts of one folder."""

    def __init__(self, folder: Path | None = None, limit: int | None = None) -> None:
        """Use a folder and a limit in bytes; the defaults are those of the settings."""
        self.folder = Path(config.cache_dir if folder is None else folder) / "artefacts"
        self.limit = config.cache_size << 20 if limit is None else limit

    def path(self, key: str) -> Path:
        return self.folder / f"{key}{SUFFIX}"

    def get(self, key: str) -> Saved | None:
        """Return the parts of a cached executable, or None.

        Warns if the file or its folder is refused because another user may have written it.
        """
        path = self.path(key)
        mark = path.with_suffix(MARK)
        try:
            with private_folder(self.folder) as folder:
                with open(open_private(path, folder), "rb") as file:  # noqa: PTH123 (a descriptor)
                    state = _state(file.fileno())
                    known = _text(mark, folder) == state
                    saved = read(path, verify=not known, file=file, mapped=True)
                if saved.key != key:
                    raise ArtifactError(f"{path} is the result of another request")
                with suppress(OSError):  # a read-only folder still works
                    if known:
                        touch_in(folder, mark)
                    else:
                        write_private(mark, [state.encode()], folder)
        except NotPrivateError as error:
            warn_refused(error)
            return None
        except OSError:
            return None
        except ArtifactError:
            self.discard(key)
            return None
        return saved

    def put(self, key: str, exe: Executable, parts: Mapping[str, Any] | None = None) -> None:
        """Store an executable and the parts of its key.

        Raises ArtifactError if the folder cannot be written, or is not private.
        """
        path = self.path(key)
        try:
            with private_folder(self.folder, create=True) as folder:
                save(
                    exe,
                    path,
                    durable=False,
                    made_from=parts,
                    key=key,
                    folder=folder,
                    private=True,
                    seal=None,
                )
                with suppress(OSError):  # another process may have removed it
                    descriptor = open_private(path, folder)
                    try:
                        state = _state(descriptor)
                    finally:
                        os.close(descriptor)
                    write_private(path.with_suffix(MARK), [state.encode()], folder)
        except NotPrivateError as error:
            warn_refused(error)
            what = f"the cache folder {self.folder} is not private"
            why = f"{error.path}: {error.why}"
            raise ArtifactError(what, why=why, hint=f"{error.hint}, or set DLC_CACHE_DIR") from None
        except OSError as error:
            why = (error.strerror or str(error)).lower()
            raise ArtifactError(f"the cache folder {self.folder} cannot be created", why=why) from None
        self.trim(keep=key)

    def discard(self, key: str) -> None:
        """Remove one artefact."""
        with suppress(OSError), private_folder(self.folder) as folder:
            _remove(folder, self.path(key))

    def entries(self) -> list[Entry]:
        """The artefacts, the least recently used first."""
        try:
            with private_folder(self.folder) as folder:
                return self._scan(folder)[0]
        except OSError:
            return []

    def trim(self, keep: str = "") -> None:
        """Remove the least recently used artefacts until the limit holds, and abandoned files."""
        with suppress(OSError), private_folder(self.folder) as folder:
            entries, unfinished = self._scan(folder)
            for part, changed in unfinished:
                if time.time() - changed > _STALE:
                    _remove(folder, part)
            total = sum(entry.size for entry in entries)
            limit = quota(self.folder, total, self.limit)
            for entry in entries:
                if total <= limit:
                    break
                if entry.path.name != keep + SUFFIX:
                    _remove(folder, entry.path)
                    total -= entry.size
        remove_unused()

    def clear(self) -> int:
        """Remove everything and return the number of artefacts."""
        remove_unused(everything=True)
        try:
            with private_folder(self.folder) as folder:
                entries = self._scan(folder)[0]
                for entry in entries:
                    _remove(folder, entry.path)
                return len(entries)
        except OSError:
            return 0

    def _scan(self, folder: int | None) -> tuple[list[Entry], list[tuple[Path, float]]]:
        """The artefacts, the least recently used first; unfinished files with their modification times."""
        found: dict[str, os.stat_result] = {}
        with os.scandir(self.folder if folder is None else folder) as listed:
            for each in listed:
                with suppress(OSError):
                    found[each.name] = each.stat(follow_symlinks=False)
        entries, unfinished = [], []
        for name, status in found.items():
            path = self.folder / name
            if name.startswith(".") and path.suffix == ".part":
                unfinished.append((path, status.st_mtime))
            elif path.suffix == SUFFIX:
                used = found.get(path.with_suffix(MARK).name, status).st_mtime
                entries.append(Entry(path, status.st_size, used))
        return sorted(entries, key=lambda entry: (entry.used, entry.path.name)), unfinished


def _remove(folder: int | None, path: Path) -> None:
    for each in (path, path.with_suffix(MARK)):
        with suppress(OSError):
            remove_from(folder, each)


def _state(descriptor: int) -> str:
    """Size, times and inode of a file: any change alters the time of the last change."""
    status = os.fstat(descriptor)
    return f"{status.st_size} {status.st_mtime_ns} {status.st_ctime_ns} {status.st_ino}"


def _text(path: Path, folder: int | None) -> str | None:
    try:
        with open(open_private(path, folder), "rb") as file:  # noqa: PTH123 (a descriptor)
            return file.read(_MARK_BYTES).decode()
    except (OSError, ValueError):
        return None


def cache_key(parts: Mapping[str, Any]) -> str:
    """Return the key of a compile's result for the JSON data of its parts."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:40]


__all__ = ["MARK", "SUFFIX", "Entry", "Store", "cache_key"]
