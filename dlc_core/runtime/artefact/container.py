"""The file of an artefact: a checked header and aligned sections, read by mapping it into memory.

    offset  0   8 bytes   magic
            8   u32       schema version
           12   u32       bytes of the header
           16   32 bytes  SHA-256 of the header
           48             header: JSON, UTF-8
         base             sections, from the next multiple of PAGE

The header's list `sections` has for each its name, offset from `base`, size and SHA-256.  Integers are little
endian.  Nothing follows the last section.  The same contents give the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from dlc_core.diag import ArtifactError
from dlc_core.support.lazy import lazy
from dlc_core.support.private import new_file, remove_from, replace_in, temporary_of
from dlc_core.support.record import record

if TYPE_CHECKING:
    from concurrent import futures
else:
    futures = lazy("concurrent.futures")

MAGIC = b"\x89DLC\r\n\x1a\n"
"""The first byte is not ASCII, and the line ends show if a transfer converted line ends."""

SCHEMA = 1
PAGE = 4096
_PREFIX = struct.Struct("<8sII32s")
_MAX_HEADER = 1 << 28
_NO_DIGEST = "0" * (2 * hashlib.sha256().digest_size)
"""What stands for a checksum while it is computed."""


@record(frozen=True)
class Opened:
    """A checked file: its header, and the mapped bytes of each section, which are not read yet."""

    header: Mapping[str, Any]
    sections: Mapping[str, memoryview]
    digests: Mapping[str, str]

    def verify(self, *names: str) -> None:
        """Compare sections with their checksums. Raises ArtifactError if one differs."""
        for name in names:
            if hashlib.sha256(self.sections[name]).hexdigest() != self.digests[name]:
                raise ArtifactError(
                    f"the artefact's section {name!r} is damaged",
                    why="its checksum differs",
                    hint="copy the file again, or compile the model again",
                )


def write_container(
    path: Path,
    header: Mapping[str, Any],
    sections: Sequence[tuple[str, memoryview | bytes]],
    *,
    durable: bool = True,
    folder: int | None = None,
    private: bool = False,
) -> None:
    """Write a temporary file and rename it to the final name, so that a reader sees the old file or the
    complete new one.

    `durable` waits until it is on the disk. `folder` is the descriptor of the path's folder, if it is open.
    No other user can read a `private` file. If the file cannot be written, raises ArtifactError and keeps the
    old file.
    """
    views = [memoryview(data) for _, data in sections]
    listed: list[dict[str, Any]] = []
    offset = 0
    for (name, _), view in zip(sections, views, strict=True):
        listed.append({"name": name, "offset": offset, "size": view.nbytes, "sha256": _NO_DIGEST})
        offset = _page_multiple(offset + view.nbytes)

    def head() -> bytes:
        text = json.dumps({**header, "sections": listed}, separators=(",", ":")).encode()
        return _PREFIX.pack(MAGIC, SCHEMA, len(text), hashlib.sha256(text).digest()) + text

    temporary = temporary_of(path)
    try:
        opened = new_file(temporary, folder, private=private)
        # The sections are hashed while they are written. The checksums do not change the header's length.
        with open(opened, "wb") as file, futures.ThreadPoolExecutor(1, "dlc-checksums") as executor:  # noqa: PTH123
            digests = _digests(executor, views)
            position = file.write(head())
            base = _page_multiple(position)
            for entry, view in zip(listed, views, strict=True):
                file.write(bytes(base + entry["offset"] - position))
                file.write(view)
                position = base + entry["offset"] + entry["size"]
            for entry, digest in zip(listed, digests, strict=True):
                entry["sha256"] = digest
            file.seek(0)
            file.write(head())
            if durable:
                file.flush()
                os.fsync(file.fileno())
        replace_in(folder, temporary, path)
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        hint = "free some space or give another path; the old file is unchanged"
        raise ArtifactError(f"{path} cannot be written", why=why, hint=hint) from None
    finally:
        with suppress(OSError):
            remove_from(folder, temporary)


def _digests(executor: futures.Executor, views: Sequence[memoryview]) -> Iterator[str]:
    """The checksums of sections, by an executor; by this thread if the interpreter is about to end."""
    try:
        return executor.map(_hex_digest, views)
    except RuntimeError:
        return map(_hex_digest, views)


def _hex_digest(view: memoryview) -> str:
    return hashlib.sha256(view).hexdigest()


def _page_multiple(value: int) -> int:
    return -(-value // PAGE) * PAGE


def read_container(path: Path, file: BinaryIO | None = None) -> Opened:
    """Map a file, and check its header and its size. Raises ArtifactError if it is not an artefact or
    damaged. `file` is the file of the path, if it is open.
    """
    try:
        if file is not None:
            return _read(path, file)
        with path.open("rb") as file:
            return _read(path, file)
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise ArtifactError(f"{path} cannot be read", why=why) from None


def _read(path: Path, file: BinaryIO) -> Opened:
    size = os.fstat(file.fileno()).st_size
    start = file.read(_PREFIX.size)
    if not start.startswith(MAGIC):
        hint = "artefacts are made by exe.save; models are read by dlc.compile"
        raise ArtifactError(f"{path} is not an artefact", why=f"it begins with {start[:8]!r}", hint=hint)
    if len(start) < _PREFIX.size:
        raise _damaged(path, "it is shorter than the prefix of an artefact")
    _, schema, length, digest = _PREFIX.unpack(start)
    if schema != SCHEMA:
        raise ArtifactError(
            f"{path} has the artefact format {schema}, this version of dlc reads {SCHEMA}",
            hint="compile the model again, or use the version of dlc that wrote the file",
        )
    if length > min(size - _PREFIX.size, _MAX_HEADER):
        raise _damaged(path, "its header is longer than the file")
    text = file.read(length)
    if hashlib.sha256(text).digest() != digest:
        raise _damaged(path, "the checksum of its header differs")
    try:
        header = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _damaged(path, f"its header is not JSON: {error}") from None
    if not isinstance(header, dict):
        raise _damaged(path, "its header is not a JSON object")
    mapped = memoryview(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ))
    sections, digests = _sections(path, header, mapped, _page_multiple(_PREFIX.size + length), size)
    return Opened(header, sections, digests)


def _sections(
    path: Path, header: Mapping[str, Any], mapped: memoryview, base: int, size: int
) -> tuple[dict[str, memoryview], dict[str, str]]:
    sections: dict[str, memoryview] = {}
    digests: dict[str, str] = {}
    end = 0
    listed = header.get("sections")
    if not isinstance(listed, list) or not listed:
        raise _damaged(path, "it lists no sections")
    for entry in listed:
        name, offset, length, digest = _fields(path, entry)
        if name in sections or offset != _page_multiple(end) or length < 0:
            raise _damaged(path, "its list of sections is malformed")
        end = offset + length
        if base + end > size:
            raise _damaged(path, f"section {name!r} ends at byte {base + end} and the file has {size}")
        sections[name] = mapped[base + offset : base + end]
        digests[name] = digest
    if base + end != size:
        raise _damaged(path, f"{size - base - end} bytes follow its last section")
    return sections, digests


def _fields(path: Path, entry: Any) -> tuple[str, int, int, str]:
    """Name, offset, size and checksum of a section."""
    keys = ("name", "offset", "size", "sha256")
    name, offset, size, digest = (entry.get(key) if isinstance(entry, dict) else None for key in keys)
    if isinstance(name, str) and isinstance(digest, str) and type(offset) is int and type(size) is int:
        return name, offset, size, digest
    raise _damaged(path, "its list of sections is malformed")


def _damaged(path: Path, why: str) -> ArtifactError:
    return ArtifactError(
        f"{path} is damaged", why=why, hint="copy the file again, or compile the model again"
    )


__all__ = ["MAGIC", "PAGE", "SCHEMA", "Opened", "read_container", "write_container"]
