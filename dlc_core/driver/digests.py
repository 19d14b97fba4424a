"""Digests of files: of models and their weights, and of the code of packages.

    file_digest(paths) -> str          names and contents, for a frontend's `digest`
    file_stamp(path) -> str | None     what changes with a file, without reading it
    code_stamp(path) -> str            names, sizes and times of a package's sources
    code_digest(path) -> str           names and contents of these

A digest of a file is a tree of SHA-256: the digest of its size and of the digests of its chunks, which
several threads compute. `python -m benchmarks.hashing` measures it beside other hashes.

The digest of a large file is remembered until its stamp changes: path, size, inode and times, with the time
of the last change, which no program can set. So a change that keeps size and modification time is noticed.
Where a file system has no such time, files have no stamp, and their digest is computed in each process.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache, partial
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING

from dlc_core.disk_cache import disk_cached
from dlc_core.runtime.machine.cores import usable_cores
from dlc_core.support.lazy import lazy

if TYPE_CHECKING:
    from concurrent import futures
else:
    futures = lazy("concurrent.futures")

_CHUNK = 1 << 24
"""Bytes that are read and hashed together.  Before each a thread may wait for the interpreter lock, which
takes as long as hashing some megabytes."""
_LARGE = 1 << 23
"""The size in bytes from which a file is hashed by a thread of its own."""
_THREADS = 8
"""Threads that hash one file; with more, hashing is memory-bound."""
_SETTLED = 2.0
"""Seconds after which a further change of a file is certain to change its time stamp."""
_MOUNTS = Path("/proc/self/mountinfo")
_WITHOUT_CHANGE_TIME = frozenset(
    ("vfat", "msdos", "exfat", "ntfs", "ntfs3", "hfs", "9p", "cifs", "smb3", "vboxsf", "drvfs", "prl_fs")
)
"""File systems whose time of the last change is a copy of the modification time, or is made up."""
_FUSE = "fuse"
"""The begin of the names of file systems in user space, whose programs choose all times."""
_meanwhile: ContextVar[Callable[[], object] | None] = ContextVar("dlc_meanwhile", default=None)


def file_digest(paths: Iterable[str | os.PathLike[str]]) -> str:
    """Return the digest of the names and contents of files, for a frontend's `digest`.

    The digest of each file is cached until its stamp changes.
    """
    digest = hashlib.sha256()
    for path in map(Path, paths):
        stamp = file_stamp(path)
        make = partial(_content_digest, path)
        digest.update(f"{path.name}\0".encode())
        digest.update(make() if stamp is None else disk_cached("file", stamp, make))
    return digest.hexdigest()


def file_stamp(path: Path) -> str | None:
    """Return a stamp that changes with the file.

    None within two seconds of its last change, and where the system does not record changes.
    """
    status = path.stat()
    if time.time() - max(status.st_mtime, status.st_ctime) < _SETTLED:
        return None
    real = path.resolve()
    if not _records_changes(real):
        return None
    numbers = (status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_dev)
    return f"{real}\0{' '.join(map(str, numbers))}"


def _records_changes(path: Path) -> bool:
    """Whether the file system keeps the time of the last change of a file's content or status."""
    if os.name != "posix":  # the field has the time of the creation there
        return False
    kind = _file_system(path)
    return kind not in _WITHOUT_CHANGE_TIME and not kind.startswith(_FUSE)


def _file_system(path: Path) -> str:
    """The type of the file system that a path is on; "" where the system does not tell."""
    try:
        lines = _MOUNTS.read_text(errors="surrogateescape").splitlines()
    except OSError:
        return ""
    best, found = -1, ""
    for line in lines:
        left, _, right = line.partition(" - ")
        point = Path(left.split(" ")[4].replace("\\040", " "))
        if path.is_relative_to(point) and len(point.parts) >= best:
            best, found = len(point.parts), right.partition(" ")[0]
    return found


@contextmanager
def meanwhile(work: Callable[[], object]) -> Iterator[None]:
    """Within the block, the first large file is hashed by other threads, while this one does `work`."""
    before = _meanwhile.set(work)
    try:
        yield
    finally:
        _meanwhile.reset(before)


def _content_digest(path: Path) -> bytes:
    work = _meanwhile.get()
    if path.stat().st_size < _LARGE:
        work = None
    if work is not None:
        _meanwhile.set(None)
    return _hash_file(path, work)


def _hash_file(path: Path, work: Callable[[], object] | None = None) -> bytes:
    """The digest of a file's content; this thread does `work` while others hash."""
    with path.open("rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        starts = range(0, size, _CHUNK)
        digest = hashlib.sha256(size.to_bytes(8, "little"))
        hash_chunk = partial(_hash_chunk, file, min(size, _CHUNK), [])
        # Without reading at a position, threads would share the position of the file.
        threads = min(len(starts), usable_cores(), _THREADS) if hasattr(os, "preadv") else 1
        if work is None and threads <= 1:
            for start in starts:
                digest.update(hash_chunk(start))
            return digest.digest()
        with futures.ThreadPoolExecutor(max(threads, 1), "dlc-digest") as executor:
            found = executor.map(hash_chunk, starts)
            if work is not None:
                work()
            for each in found:
                digest.update(each)
        return digest.digest()


def _hash_chunk(file: FileIO, length: int, spare: list[memoryview], start: int) -> bytes:
    """The digest of at most `length` bytes of a file from an offset; buffers come from `spare`."""
    try:
        chunk = spare.pop()
    except IndexError:
        chunk = memoryview(bytearray(length))
    size = 0
    while size < length and (more := _read_into(file, chunk[size:], start + size)):
        size += more
    found = hashlib.sha256(chunk[:size]).digest()
    spare.append(chunk)  # reused, because new pages cost more than hashing them
    return found


def _read_into(file: FileIO, chunk: memoryview, start: int) -> int:
    if hasattr(os, "preadv"):
        return os.preadv(file.fileno(), [chunk], start)
    file.seek(start)
    return file.readinto(chunk) or 0


@lru_cache(maxsize=64)
def code_stamp(path: str) -> str:
    """Return a digest of the names, sizes and times of a package's source files."""
    found = _sources(path, "") if os.path.isdir(path) else [("", os.stat(path))]  # noqa: PTH112, PTH116
    text = "".join([f"{name}\0{status.st_size}\0{status.st_mtime_ns}\0" for name, status in found])
    return hashlib.sha256(text.encode()).hexdigest()


@lru_cache(maxsize=64)
def code_digest(path: str) -> str:
    """Return a digest of the names and contents of a package's source files: the same on every machine.

    It is cached until `code_stamp` changes.
    """
    return disk_cached("code", f"{path}\0{code_stamp(path)}", partial(_code_content, path)).decode()


def _code_content(path: str) -> bytes:
    file = Path(path)
    names = [name for name, _ in _sources(path, "")] if file.is_dir() else [""]
    digest = hashlib.sha256()
    for name in names:
        data = (file / name if name else file).read_bytes()
        digest.update(f"{name}\0{len(data)}\0".encode() + data)
    return digest.hexdigest().encode()


def _sources(folder: str, below: str) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the Python files below a folder in order; every start does this, so it must be fast."""
    with os.scandir(folder) as listed:
        entries = sorted(listed, key=lambda entry: entry.name)
    for entry in entries:
        if entry.name.endswith(".py"):
            yield below + entry.name, entry.stat()
        elif entry.name != "__pycache__" and entry.is_dir(follow_symlinks=False):
            yield from _sources(entry.path, f"{below}{entry.name}/")


__all__ = ["code_digest", "code_stamp", "file_digest", "file_stamp", "meanwhile"]
