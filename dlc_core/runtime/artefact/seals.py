"""Seals at the end of an artefact: who vouches for it.

    prefix, header, sections     see `container`
    records                      u32 kind, u32 bytes, the bytes
    footer                       u64 bytes of the records, 8 bytes magic

A record vouches for the prefix of the file. The prefix has the checksum of the header, and the header has
those of all sections, so it covers all of the contents. Seals are read before the header is parsed.

- A mark (`marks`) says that this user's dlc wrote the file. Only this user has its key.
- A signature (`dlc_core.driver.signing`) is by the holder of an Ed25519 key. It has the public key, too.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from dlc_core.diag import ArtifactError
from dlc_core.support.record import record

MARK, SIGNATURE = 1, 2
"""The kinds of records."""
MAGIC = b"DLCSEALS"
_RECORD = struct.Struct("<II")
_FOOTER = struct.Struct("<Q8s")
FOOTER_BYTES = _FOOTER.size
_MAX_BYTES = 1 << 16


@record(frozen=True)
class Seal:
    """A record: its kind, and the bytes that prove it."""

    kind: int
    proof: bytes


def encode_seals(seals: Iterable[Seal]) -> bytes:
    """The bytes after the last section."""
    records = b"".join(_RECORD.pack(seal.kind, len(seal.proof)) + seal.proof for seal in seals)
    return records + _FOOTER.pack(len(records), MAGIC)


def decode_seals(data: memoryview) -> tuple[tuple[Seal, ...], int]:
    """The seals of a file, and the bytes at its end that are not contents. Raises ArtifactError for malformed
    records.
    """
    if data.nbytes < _FOOTER.size:
        return (), 0
    size, magic = _FOOTER.unpack(data[-_FOOTER.size :])
    if magic != MAGIC:
        return (), 0
    if size > min(_MAX_BYTES, data.nbytes - _FOOTER.size):
        raise _malformed()
    records = bytes(data[data.nbytes - _FOOTER.size - size : data.nbytes - _FOOTER.size])
    found, at = [], 0
    while at < size:
        if size - at < _RECORD.size:
            raise _malformed()
        kind, length = _RECORD.unpack_from(records, at)
        at += _RECORD.size
        if length > size - at:
            raise _malformed()
        found.append(Seal(kind, records[at : at + length]))
        at += length
    return tuple(found), size + _FOOTER.size


def _malformed() -> ArtifactError:
    return ArtifactError(
        "the seals of the artefact are malformed", hint="copy the file again, or compile the model again"
    )


__all__ = ["FOOTER_BYTES", "MARK", "SIGNATURE", "Seal", "decode_seals", "encode_seals"]
