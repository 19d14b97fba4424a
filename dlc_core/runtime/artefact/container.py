"""The file of an artefact: a checked header and aligned sections.

    offset  0   8 bytes   magic
            8   u32       schema version
           12   u32       bytes of the header
           16   32 bytes  SHA-256 of the header
           48             header: JSON, UTF-8
         base             sections, from the next multiple of PAGE
         end of file      seals (see `seals`)

The magic says which of two forms a file has: compiled code, or a portable model, which has no code (see
`dlc_core.driver.portable`).

The header's list `sections` has for each its name, offset from `base`, size and SHA-256.  Integers are little
endian.  Only seals follow the last section.  The section `code` ends with the contract (see `contract`).  The
same contents give the same bytes, except for the seals.

A file is read into memory of this process.  So a change of the file does not change what was checked, and a
file that becomes shorter while it is in use does no harm; accesses of a mapped file would end the process by
a signal (SIGBUS).  Files of a private folder whose files are only ever replaced, such as the cache, are
mapped.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import stat
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from dlc_core.diag import ArtifactError
from dlc_core.runtime.artefact import contract
from dlc_core.runtime.artefact.contract import CODE
from dlc_core.runtime.artefact.seals import Seal, decode_seals
from dlc_core.support.record import record

MAGIC = b"\x89DLC\r\n\x1a\n"
"""The first byte is not ASCII, and the line ends show if a transfer converted line ends."""
PORTABLE = b"\x89DLP\r\n\x1a\n"
"""The magic of portable models."""

SCHEMA = 1
PAGE = 4096
PREFIX = struct.Struct("<8sII32s")
"""Magic, schema, bytes of the header, and its checksum."""
_MAX_HEADER = 1 << 28
_CHUNK = 1 << 26
"""Bytes that are read at once."""


@record(frozen=True)
class Envelope:
    """The facts of a file that are known before its header is parsed.

    `prefix` has the checksum of the header, and through it those of all contents. `status` is that of the
    opened file.
    """

    path: Path
    prefix: bytes
    seals: tuple[Seal, ...]
    status: os.stat_result

    @property
    def portable(self) -> bool:
        """Whether the file is a portable model."""
        return self.prefix.startswith(PORTABLE)


Accept = Callable[[Envelope], bool]
"""Decides whether to read a file, and whether to compare all its sections with their checksums. Raises
ArtifactError to refuse it."""


@record(frozen=True)
class Opened:
    """A checked file: its header, and the bytes of each section."""

    envelope: Envelope
    strict: bool
    """Whether all sections must be compared with their checksums."""
    contents: memoryview
    """The file without seals."""
    header: Mapping[str, Any]
    header_text: bytes
    sections: Mapping[str, memoryview]
    digests: Mapping[str, str]

    def code(self) -> bytes:
        """The code, without the contract."""
        return bytes(self.sections[CODE][: -contract.BYTES])

    def check_contract(self) -> None:
        """Raise ArtifactError if the code is not for this header."""
        if not contract.ends_with_contract(self.sections[CODE], self.header_text, self.digests[CODE]):
            raise ArtifactError(
                f"the code of {self.envelope.path} is not for its header",
                why="the code section does not end with the checksum of the header",
                hint="the file was changed, or was written before 0.1.0: compile the model again",
            )

    def verify(self, *names: str) -> None:
        """Compare sections with their checksums. Raises ArtifactError if one differs."""
        for name in names:
            if hashlib.sha256(self.sections[name]).hexdigest() != self.digests[name]:
                raise ArtifactError(
                    f"the artefact's section {name!r} is damaged",
                    why="its checksum differs",
                    hint="copy the file again, or compile the model again",
                )


def read_container(
    path: Path, file: BinaryIO | None = None, *, mapped: bool = False, accept: Accept | None = None
) -> Opened:
    """Read a file, and check its header and its size. Raises ArtifactError if it is not an artefact or
    damaged.

    `file` is the file of the path, if it is open. A `mapped` file must not become shorter while its sections
    are in use. `accept` decides by the seals, before the header is parsed.
    """
    try:
        if file is not None:
            return _read(path, file, mapped, accept)
        with open(path, "rb", opener=_opener) as file:
            return _read(path, file, mapped, accept)
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise ArtifactError(f"{path} cannot be read", why=why) from None


def is_portable(path: Path) -> bool:
    """Whether a file begins as a portable model. False if it cannot be read."""
    try:
        with open(path, "rb", opener=_opener) as file:
            return stat.S_ISREG(os.fstat(file.fileno()).st_mode) and file.read(len(PORTABLE)) == PORTABLE
    except OSError:
        return False


def _opener(path: str, flags: int) -> int:
    """Opening a pipe must not wait."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _read(path: Path, file: BinaryIO, mapped: bool, accept: Accept | None) -> Opened:
    status = os.fstat(file.fileno())
    if not stat.S_ISREG(status.st_mode):
        raise ArtifactError(f"{path} cannot be read", why="it is not a regular file")
    file.seek(0)
    start = file.read(PREFIX.size)
    if not start.startswith((MAGIC, PORTABLE)):
        hint = "artefacts are made by exe.save; models are read by dlc.compile"
        raise ArtifactError(f"{path} is not an artefact", why=f"it begins with {start[:8]!r}", hint=hint)
    if len(start) < PREFIX.size:
        raise _damaged(path, "it is shorter than the prefix of an artefact")
    data = _memory(file, status.st_size, mapped)
    size = data.nbytes
    start = bytes(data[: PREFIX.size])
    if len(start) < PREFIX.size:
        raise _damaged(path, "it becomes shorter while it is read")
    _, schema, length, digest = PREFIX.unpack(start)
    if schema != SCHEMA:
        raise ArtifactError(
            f"{path} has the artefact format {schema}, this version of dlc reads {SCHEMA}",
            hint="compile the model again, or use the version of dlc that wrote the file",
        )
    if length > min(size - PREFIX.size, _MAX_HEADER):
        raise _damaged(path, "its header is longer than the file")
    seals, sealed = decode_seals(data)
    envelope = Envelope(path, start, seals, status)
    text = bytes(data[PREFIX.size : PREFIX.size + length])
    if hashlib.sha256(text).digest() != digest:
        raise _damaged(path, "the checksum of its header differs")
    strict = accept is not None and accept(envelope)
    try:
        header = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _damaged(path, f"its header is not JSON: {error}") from None
    if not isinstance(header, dict):
        raise _damaged(path, "its header is not a JSON object")
    base = page_multiple(PREFIX.size + length)
    sections, digests = _sections(path, header, data, base, size - sealed)
    return Opened(envelope, strict, data[: size - sealed], header, text, sections, digests)


def _memory(file: BinaryIO, size: int, mapped: bool) -> memoryview:
    """The bytes of a file: mapped, or a copy that begins on a page."""
    if not size:
        return memoryview(b"")
    if mapped:
        return memoryview(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ))
    file.seek(0)
    copy = memoryview(mmap.mmap(-1, size))
    at = 0
    while at < size:
        count = file.readinto(copy[at : at + _CHUNK])  # type: ignore[attr-defined]
        if not count:  # it has become shorter
            break
        at += count
    return copy[:at].toreadonly()


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
        if name in sections or offset != page_multiple(end) or length < 0:
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


def page_multiple(value: int) -> int:
    """The next multiple of a page."""
    return -(-value // PAGE) * PAGE


def _damaged(path: Path, why: str) -> ArtifactError:
    return ArtifactError(
        f"{path} is damaged", why=why, hint="copy the file again, or compile the model again"
    )


__all__ = [
    "MAGIC",
    "PAGE",
    "PORTABLE",
    "PREFIX",
    "SCHEMA",
    "Accept",
    "Envelope",
    "Opened",
    "is_portable",
    "page_multiple",
    "read_container",
]
