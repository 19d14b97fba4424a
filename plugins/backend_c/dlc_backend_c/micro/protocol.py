"""The protocol of a session, for boards with a serial port.

Both sides send frames. Integers are little-endian:

    2 bytes   the magic "LD" (0x444c)
    1 byte    sequence number; an answer has that of its request
    1 byte    command of a request, status of an answer
    4 bytes   size of the payload
    payload
    4 bytes   CRC-32 (as in zlib) of all bytes before

Each request has one answer. Answers come in the order of requests, so several requests may be sent before the
first answer. Addresses are offsets in the session's memory on the board.

    command  payload                   answer
    HELLO    -                         version, bytes of memory, largest payload, arguments of a call, address
                                       of the memory (uint32 each)
    ALLOC    size                      address
    FREE     address                   -
    WRITE    address, bytes            -
    READ     address, size             bytes
    CALL     address of each argument  status of the model, cycles (uint64)
    CLEAR    -                         -; frees all memory
    END      -                         -; the board stops
    INVOKE   address of a module, of   as CALL
             each of its arguments

A module is a model with its code and data, linked for the address that it is written to. `session_module.h`
defines its header.

Error answers have no payload, except that NO_MEMORY has 4 bytes and MODEL_FAILED has the payload of CALL's
answer.

A frame with a wrong checksum has no effect. Its answer is BAD_CHECKSUM.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

from dlc_core.diag import RuntimeFailure

MAGIC = 0x444C
VERSION = 2
_HEAD = struct.Struct("<HBBI")


class Command(IntEnum):
    HELLO = 1
    ALLOC = 2
    FREE = 3
    WRITE = 4
    READ = 5
    CALL = 6
    CLEAR = 7
    END = 8
    INVOKE = 9


class Status(IntEnum):
    OK = 0
    BAD_CHECKSUM = 1
    BAD_COMMAND = 2
    BAD_ADDRESS = 3
    NO_MEMORY = 4
    MODEL_FAILED = 5


_REFUSALS = {status: 0 for status in Status if status is not Status.OK}
_REFUSALS |= {Status.NO_MEMORY: 4, Status.MODEL_FAILED: 12}
"""The payload of error answers in bytes."""


class Transport(Protocol):
    """Bytes to and from a board: a socket of an emulator, or a serial port."""

    def send(self, data: bytes) -> None: ...

    def receive(self, size: int) -> bytes:
        """Receive exactly `size` bytes. If no more bytes come, it raises RuntimeFailure or returns fewer."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class Answer:
    """The answer to a request."""

    sequence: int
    status: Status
    payload: bytes


def frame(sequence: int, code: int, payload: bytes = b"") -> bytes:
    """Encode a frame."""
    body = _HEAD.pack(MAGIC, sequence & 0xFF, code, len(payload)) + payload
    return body + struct.pack("<I", zlib.crc32(body))


def read_answer(transport: Transport, expected: int | None = None) -> Answer:
    """Receive the next answer. Raises RuntimeFailure for invalid bytes.

    `expected` is the expected size of the payload, unless the answer is an error. Without it, sizes up to 16
    MiB are accepted. Thus a damaged size is detected at once, and not by a timeout.
    """
    head = _received(transport, _HEAD.size)
    magic, sequence, status, size = _HEAD.unpack(head)
    fits = size <= 1 << 24 if expected is None else size == _REFUSALS.get(status, expected)
    if magic != MAGIC or not fits or status not in list(Status):
        size_text = "" if expected is None else f"; {expected} bytes are expected"
        why = f"it begins with {head.hex()}{size_text}"
        raise RuntimeFailure("the board sent an invalid answer", why=why)
    payload = _received(transport, size)
    (sent,) = struct.unpack("<I", _received(transport, 4))
    if sent != zlib.crc32(head + payload):
        raise RuntimeFailure("an answer of the board is damaged", why="its checksum is wrong")
    return Answer(sequence, Status(status), payload)


def _received(transport: Transport, size: int) -> bytes:
    data = transport.receive(size)
    if len(data) != size:
        raise RuntimeFailure(
            "the board stopped in the middle of an answer", why=f"{len(data)} of {size} bytes"
        )
    return data


__all__ = ["MAGIC", "VERSION", "Answer", "Command", "Status", "Transport", "frame", "read_answer"]
