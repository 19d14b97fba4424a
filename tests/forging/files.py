"""Forged files: files with changed contents and right checksums.

forged(data, change)                    the contract in the code section is of the old header
forged(data, change, contract=True)     the contract is right, too: as if the code were trusted
forged_code(data, change)               the artefact with changed code
forged_portable(data, graph=change)     a portable model with a changed graph
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from dlc_core.runtime.artefact.container import MAGIC, PAGE, PORTABLE, PREFIX, SCHEMA
from dlc_core.runtime.artefact.contract import BYTES, NO_DIGEST, contract_of

Change = Callable[[dict[str, Any]], Any]


def header_of(data: bytes) -> dict[str, Any]:
    """The header of an artefact."""
    length = PREFIX.unpack_from(data)[2]
    found: dict[str, Any] = json.loads(data[PREFIX.size : PREFIX.size + length])
    return found


def forged(data: bytes, change: Change, *, contract: bool = False) -> bytes:
    """The artefact with a changed header."""
    header = header_of(data)
    contents = bytearray(data[_pages(PREFIX.size + PREFIX.unpack_from(data)[2]) :])
    change(header)
    if contract:
        with suppress(Exception):  # the change has removed the code section
            _renew(header, contents)
    text = encoded(header)
    prefix = PREFIX.pack(MAGIC, SCHEMA, len(text), hashlib.sha256(text).digest())
    start = prefix + text
    return start + bytes(-len(start) % PAGE) + contents


def forged_portable(
    data: bytes, *, graph: Change = lambda graph: None, header: Change = lambda header: None
) -> bytes:
    """The portable model with a changed graph, a changed header, or both. The offsets of sections are right,
    unless the header changes them.
    """
    found = header_of(data)
    base = _pages(PREFIX.size + PREFIX.unpack_from(data)[2])
    contents = bytearray()
    for section in found["sections"]:
        begin = base + section["offset"]
        own = data[begin : begin + section["size"]]
        if section["name"] == "graph":
            changed = json.loads(own)
            graph(changed)
            own = encoded(changed)
        contents += bytes(-len(contents) % PAGE)
        section |= {"offset": len(contents), "size": len(own), "sha256": hashlib.sha256(own).hexdigest()}
        contents += own
    header(found)
    text = encoded(found)
    start = PREFIX.pack(PORTABLE, SCHEMA, len(text), hashlib.sha256(text).digest()) + text
    return start + bytes(-len(start) % PAGE) + contents


def forged_code(data: bytes, change: Callable[[bytearray], Any]) -> bytes:
    """The artefact with changed code of the same size, and the right contract."""
    section = next(one for one in header_of(data)["sections"] if one["name"] == "code")
    begin = _pages(PREFIX.size + PREFIX.unpack_from(data)[2]) + section["offset"]
    end = begin + section["size"] - BYTES
    code = bytearray(data[begin:end])
    change(code)
    return forged(data[:begin] + bytes(code) + data[end:], lambda header: None, contract=True)


def encoded(header: dict[str, Any]) -> bytes:
    """The text of a header."""
    return json.dumps(header, separators=(",", ":")).encode()


def with_schema(data: bytes, schema: int) -> bytes:
    """The artefact with another version of the format."""
    return data[:8] + struct.pack("<I", schema) + data[12:]


def _renew(header: dict[str, Any], contents: bytearray) -> None:
    code = next(section for section in header["sections"] if section["name"] == "code")
    begin, end = code["offset"], code["offset"] + code["size"]
    before, code["sha256"] = code["sha256"], NO_DIGEST
    contents[end - BYTES : end] = contract_of(encoded(header), NO_DIGEST)
    right = hashlib.sha256(contents[begin:end]).hexdigest()
    code["sha256"] = right if before != "0" * 64 else before


def _pages(size: int) -> int:
    return -(-size // PAGE) * PAGE


__all__ = ["Change", "encoded", "forged", "forged_code", "forged_portable", "header_of", "with_schema"]
