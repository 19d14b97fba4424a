"""The cache of compiled models: one artefact file for each key, in `config.cache_dir`.

    key = cache_key(parts)                  of the parts that `dlc_core.driver.request` computes
    Store().get(key) -> Saved | None
    Store().put(key, exe, parts)

A key is computed before the model is imported.  It covers the model's bytes (or its IR), the target and its
processor, every setting, and the code of the compiler and of all plugins.  Files are written atomically, so
processes may share the folder.  A damaged file is removed and counts as missing.  The least recently used
files are removed when the cache exceeds `config.cache_size` or half of the free disk.

Each artefact has a mark file.  It holds the size and time of the artefact when its weights were last compared
with their checksum, so that this does not happen at every start.  Its own time is that of the last use.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dlc_core.config import config
from dlc_core.diag import ArtifactError
from dlc_core.disk_cache import disk_cached, remove_unused
from dlc_core.runtime.artefact.saving import Saved, read, save
from dlc_core.runtime.executable import Executable
from dlc_core.support.disk import quota
from dlc_core.support.lazy import lazy
from dlc_core.support.record import record

if TYPE_CHECKING:
    from concurrent import futures
else:
    futures = lazy("concurrent.futures")

SUFFIX, MARK = ".dlc", ".mark"
_CHUNK = 1 << 24
"""Bytes that are read and hashed together.  Before each a thread may wait for the interpreter lock, which
takes as long as hashing some megabytes."""
_LARGE = 1 << 23
"""The size in bytes from which a file is hashed by a thread of its own."""
_SETTLED = 2.0
"""Seconds after which a further change of a file is certain to change its time stamp."""
_STALE = 3600.0
"""Seconds after which an unfinished file counts as abandoned."""
_meanwhile: ContextVar[Callable[[], object] | None] = ContextVar("dlc_meanwhile", default=None)


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
        """Return the parts of a cached executable, or None."""
        path = self.path(key)
        if not path.is_file():
            return None
        mark = path.with_suffix(MARK)
        try:
            state = _state(path)
            known = _text(mark) == state
            saved = read(path, verify=not known)
        except OSError:
            return None
        except ArtifactError:
            self.discard(key)
            return None
        with suppress(OSError):  # a read-only folder still works
            if known:
                os.utime(mark)
            else:
                mark.write_text(state)
        return saved

    def put(self, key: str, exe: Executable, parts: Mapping[str, Any] | None = None) -> None:
        """Store an executable and the parts of its key.

        Raises ArtifactError if the folder cannot be written.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            why = (error.strerror or str(error)).lower()
            raise ArtifactError(f"the cache folder {self.folder} cannot be created", why=why) from None
        path = self.path(key)
        save(exe, path, durable=False, made_from=parts)
        with suppress(OSError):  # another process may have removed it
            path.with_suffix(MARK).write_text(_state(path))
        self.trim(keep=key)

    def discard(self, key: str) -> None:
        """Remove one artefact."""
        _remove(self.path(key))

    def entries(self) -> list[Entry]:
        """The artefacts, the least recently used first."""
        found = []
        for path in self._files("*" + SUFFIX):
            with suppress(OSError):
                status = path.stat()
                mark = path.with_suffix(MARK)
                used = mark.stat().st_mtime if mark.exists() else status.st_mtime
                found.append(Entry(path, status.st_size, used))
        return sorted(found, key=lambda entry: (entry.used, entry.path.name))

    def trim(self, keep: str = "") -> None:
        """Remove the least recently used artefacts until the limit holds, and abandoned files."""
        for part in self._files(".*.part"):
            with suppress(OSError):
                if time.time() - part.stat().st_mtime > _STALE:
                    part.unlink()
        remove_unused()
        entries = self.entries()
        total = sum(entry.size for entry in entries)
        limit = quota(self.folder, total, self.limit)
        for entry in entries:
            if total <= limit:
                break
            if entry.path.name != keep + SUFFIX:
                _remove(entry.path)
                total -= entry.size

    def clear(self) -> int:
        """Remove everything and return the number of artefacts."""
        remove_unused(everything=True)
        entries = self.entries()
        for entry in entries:
            _remove(entry.path)
        return len(entries)

    def _files(self, pattern: str) -> list[Path]:
        try:
            return list(self.folder.glob(pattern))
        except OSError:
            return []


def _remove(path: Path) -> None:
    for each in (path, path.with_suffix(MARK)):
        with suppress(OSError):
            each.unlink(missing_ok=True)


def _state(path: Path) -> str:
    """Size and time of a file: a change alters them, a copy keeps them."""
    status = path.stat()
    return f"{status.st_size} {status.st_mtime_ns}"


def _text(path: Path) -> str | None:
    try:
        return path.read_text()
    except (OSError, ValueError):
        return None


def file_digest(paths: Iterable[str | os.PathLike[str]]) -> str:
    """Return the SHA-256 of the names and contents of files, for a frontend's `digest`.

    The digest of each file is cached until its size, times or path change.
    """
    digest = hashlib.sha256()
    for path in map(Path, paths):
        stamp = file_stamp(path)
        make = partial(_content_digest, path)
        digest.update(f"{path.name}\0".encode())
        digest.update(make() if stamp is None else disk_cached("file", stamp, make))
    return digest.hexdigest()


def file_stamp(path: Path) -> str | None:
    """Return a stamp that changes with the file, or None within two seconds of its last change."""
    status = path.stat()
    if time.time() - max(status.st_mtime, status.st_ctime) < _SETTLED:
        return None
    numbers = (status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_dev)
    return f"{path.resolve()}\0{' '.join(map(str, numbers))}"


@contextmanager
def meanwhile(work: Callable[[], object]) -> Iterator[None]:
    """Within the block, the first large file is hashed by another thread, while this one does `work`."""
    before = _meanwhile.set(work)
    try:
        yield
    finally:
        _meanwhile.reset(before)


def _content_digest(path: Path) -> bytes:
    work = _meanwhile.get()
    if work is None or path.stat().st_size < _LARGE:
        return _hash_file(path)
    _meanwhile.set(None)
    with futures.ThreadPoolExecutor(1, "dlc-digest") as executor:
        found = executor.submit(_hash_file, path)
        work()
    return bytes(found.result())


def _hash_file(path: Path) -> bytes:
    digest = hashlib.sha256()
    chunk = memoryview(bytearray(_CHUNK))  # reused, because new pages cost more than hashing them
    with path.open("rb") as file:
        while size := file.readinto(chunk):
            digest.update(chunk[:size])
    return digest.digest()


def cache_key(parts: Mapping[str, Any]) -> str:
    """Return the key of a compile's result for the JSON data of its parts."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:40]


@lru_cache(maxsize=64)
def code_stamp(path: str) -> str:
    """Return a digest of the names, sizes and times of a package's source files."""
    found = _sources(path, "") if os.path.isdir(path) else [("", os.stat(path))]  # noqa: PTH112, PTH116
    text = "".join([f"{name}\0{status.st_size}\0{status.st_mtime_ns}\0" for name, status in found])
    return hashlib.sha256(text.encode()).hexdigest()


def _sources(folder: str, below: str) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the Python files below a folder in order; every start does this, so it must be fast."""
    with os.scandir(folder) as listed:
        entries = sorted(listed, key=lambda entry: entry.name)
    for entry in entries:
        if entry.name.endswith(".py"):
            yield below + entry.name, entry.stat()
        elif entry.name != "__pycache__" and entry.is_dir(follow_symlinks=False):
            yield from _sources(entry.path, f"{below}{entry.name}/")


__all__ = ["Entry", "Store", "cache_key", "code_stamp", "file_digest", "file_stamp", "meanwhile"]
