"""External tensor data, read only from the model's folder.

These rules are enforced; each of them was violated by some ONNX loader:

- A location is a relative path of plain components: not absolute, no `..`, no backslash, no NUL.
- Folders are opened one component at a time, relative to a handle of the parent, and without following
  symbolic links. Links created during the read have no effect either.
- The file is a regular one with exactly one name, because a hard link may refer to a file outside.
- The requested range is inside the file, and this is checked before any allocation.
- The keys of an entry are looked up, never assigned to attributes. A repeated key is an error.

Files are memory-mapped, and each is opened once per model. Systems without folder handles (Windows) check
every component by its path, and compare the opened file with the checked one.
"""

from __future__ import annotations

import mmap
import ntpath
import os
import re
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from dlc_frontend_onnx.location import Location, quoted

HAS_DIR_FDS = os.open in os.supports_dir_fd and os.stat in os.supports_dir_fd and hasattr(os, "O_NOFOLLOW")
"""Whether this system opens files relative to a folder handle without following links."""

MAP_FROM = 1 << 16
"""Smaller files are read instead of mapped, because the number of maps of a process is limited."""

MAX_LOCATION = 4096
"""Limit of characters of a location."""

_DIGITS = re.compile(r"[0-9]{1,19}", re.ASCII)
_KEYS = frozenset({"location", "offset", "length", "checksum"})
_OPEN_FILE = (
    os.O_RDONLY
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_BINARY", 0)
    | getattr(os, "O_NOINHERIT", 0)
)
_OPEN_FOLDER = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_DIRECTORY", 0)


@dataclass(frozen=True, slots=True)
class ExternalRef:
    """The bytes of a tensor: `length` bytes from byte `offset` of a file of the model's folder.

    `length` is `None` if the model does not declare it. `checksum` is the declared one; it is never verified.
    """

    location: str
    offset: int = 0
    length: int | None = None
    checksum: str = ""


def parse_ref(entries: Iterable[tuple[object, object]], what: str, loc: Location) -> ExternalRef:
    """The reference in a tensor's `external_data` entries; unknown keys are ignored."""
    found: dict[str, str] = {}
    for key, value in entries:
        if not isinstance(key, str) or not isinstance(value, str):
            raise loc.error(f"{what} has external data whose entry is not valid UTF-8")
        if key not in _KEYS:
            continue
        if key in found:
            raise loc.error(f"{what} has external data with two entries {key!r}")
        found[key] = value
    if not found.get("location"):
        raise loc.error(f"{what} has external data without a location")
    numbers: dict[str, int] = {}
    for key in ("offset", "length"):
        if key in found:
            if _DIGITS.fullmatch(found[key]) is None:
                raise loc.error(
                    f"{what} has external data with {key} {quoted(found[key])}, not a number of bytes"
                )
            numbers[key] = int(found[key])
    return ExternalRef(
        found["location"], numbers.get("offset", 0), numbers.get("length"), found.get("checksum", "")
    )


def split_location(location: str, what: str, loc: Location) -> tuple[str, ...]:
    """The components of a location; an error if it is not a plain relative path."""
    parts = tuple(part for part in location.split("/") if part not in ("", "."))
    if len(location) > MAX_LOCATION:
        why = "it is too long"
    elif "\0" in location:
        why = "it holds a NUL character"
    elif location.startswith("/") or (ntpath.splitdrive(location)[0] and os.name == "nt"):
        why = "it is absolute"
    elif "\\" in location:
        why = "it holds a backslash; components are separated by '/'"
    elif ".." in parts:
        why = "it leads out of the model's folder"
    elif not parts or location.endswith("/"):
        why = "it names no file"
    elif os.name == "nt" and any(is_special_on_windows(part) for part in parts):
        why = "it is a reserved name or a stream"
    else:
        return parts
    raise loc.error(
        f"{what} has external data at {quoted(location)}, which is not a file of the model's folder",
        why=why,
        hint="save the model again with its data in the same folder, under a plain relative name",
    )


def is_special_on_windows(part: str) -> bool:
    stem = part.split(".")[0].rstrip().upper()
    return (
        ":" in part
        or part[-1] in ". "
        or stem in ("CON", "PRN", "AUX", "NUL", "CONIN$", "CONOUT$")
        or re.fullmatch(r"(COM|LPT)[0-9¹²³]", stem) is not None
    )


class Folder:
    """The folder of one model while the model is read; a context manager.

    `path` is `None` for a model given as bytes without `base_dir`; then any external data is an error.
    `dir_fds=False` checks paths instead of using folder handles, as on systems that have none.
    """

    def __init__(self, path: str | None, *, dir_fds: bool = HAS_DIR_FDS) -> None:
        self._path = path
        self._dir_fds = dir_fds
        self._root = -1
        self._files: dict[tuple[str, ...], memoryview] = {}

    def __enter__(self) -> Folder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._root >= 0:
            os.close(self._root)
            self._root = -1

    def read(self, ref: ExternalRef, nbytes: int, what: str, loc: Location) -> memoryview:
        """The `nbytes` bytes of the tensor `what`, read-only and not copied."""
        parts = split_location(ref.location, what, loc)
        if ref.length is not None and ref.length != nbytes:
            raise loc.error(
                f"{what} needs {nbytes} bytes of data, but its external data has length {ref.length}",
                hint="the shape, the element type and the length must agree",
            )
        data = self._files.get(parts)
        if data is None:
            data = self._files[parts] = self._open(parts, ref.location, what, loc)
        if ref.offset > len(data) or nbytes > len(data) - ref.offset:
            raise loc.error(
                f"{what} needs bytes {ref.offset} to {ref.offset + nbytes} of {quoted(ref.location)}, "
                f"which has {len(data)} bytes",
                why="the data file is truncated, or the offset is wrong",
            )
        return data[ref.offset : ref.offset + nbytes]

    def _open(self, parts: tuple[str, ...], location: str, what: str, loc: Location) -> memoryview:
        if self._path is None:
            raise loc.error(
                f"{what} has external data at {quoted(location)}, but the model's folder is not known",
                why="the model was given as bytes or as an object",
                hint="pass base_dir, the folder that holds the data, or the path of the model",
            )
        try:
            file = self._open_in_handle(parts) if self._dir_fds else _open_by_path(self._path, parts)
            try:
                return _contents(file)
            finally:
                os.close(file)
        except _Refused as refused:
            why, hint = (
                str(refused),
                "external data must be plain files of the model's folder; copy them there",
            )
        except (OSError, ValueError) as error:
            why, hint = (
                _reason(error),
                "the data files must be in the model's folder, under the names in the model",
            )
        raise loc.error(
            f"{what} has external data at {quoted(location)}, which cannot be read", why=why, hint=hint
        )

    def _open_in_handle(self, parts: tuple[str, ...]) -> int:
        if self._root < 0:
            self._root = os.open(self._path or ".", _OPEN_FOLDER)
        folder = self._root
        try:
            for part in parts[:-1]:
                _require(os.stat(part, dir_fd=folder, follow_symlinks=False), part, folder=True)
                inner = os.open(part, _OPEN_FOLDER | os.O_NOFOLLOW, dir_fd=folder)
                if folder != self._root:
                    os.close(folder)
                folder = inner
            name = parts[-1]
            _require(os.stat(name, dir_fd=folder, follow_symlinks=False), name, folder=False)
            return _checked(os.open(name, _OPEN_FILE, dir_fd=folder), name)
        finally:
            if folder != self._root:
                os.close(folder)


class _Refused(Exception):
    """A file that exists and is refused; the text is the reason."""


def _require(status: os.stat_result, name: str, *, folder: bool) -> None:
    reparse = getattr(stat, "FILE_ATTRIBUTE_REPARSE_POINT", 0x400)
    if stat.S_ISLNK(status.st_mode) or getattr(status, "st_file_attributes", 0) & reparse:
        raise _Refused(f"{quoted(name)} is a symbolic link")
    if folder:
        if not stat.S_ISDIR(status.st_mode):
            raise _Refused(f"{quoted(name)} is not a folder")
    elif not stat.S_ISREG(status.st_mode):
        raise _Refused(f"{quoted(name)} is not a regular file")
    elif status.st_nlink != 1:
        raise _Refused(f"{quoted(name)} is a hard link: the file has {status.st_nlink} names")


def _checked(file: int, name: str) -> int:
    try:
        _require(os.fstat(file), name, folder=False)
    except BaseException:
        os.close(file)
        raise
    return file


def _open_by_path(root: str, parts: tuple[str, ...]) -> int:
    path = Path(root)
    for part in parts[:-1]:
        path /= part
        _require(path.lstat(), part, folder=True)
    name = parts[-1]
    path /= name
    before = path.lstat()
    _require(before, name, folder=False)
    file = _checked(os.open(path, _OPEN_FILE), name)
    after = os.fstat(file)
    inside = path.resolve().is_relative_to(Path(root).resolve())
    if (before.st_dev, before.st_ino) != (after.st_dev, after.st_ino) or not inside:
        os.close(file)
        raise _Refused(f"{quoted(name)} changed while it was opened, or is a link")
    return file


def _contents(file: int) -> memoryview:
    size = os.fstat(file).st_size
    if size >= MAP_FROM:
        return memoryview(mmap.mmap(file, size, access=mmap.ACCESS_READ))
    with os.fdopen(os.dup(file), "rb") as stream:
        return memoryview(stream.read(size))


def _reason(error: OSError | ValueError) -> str:
    text = error.strerror if isinstance(error, OSError) else None
    return (text or "the name is not valid here").lower()


__all__ = ["HAS_DIR_FDS", "ExternalRef", "Folder", "parse_ref", "split_location"]
