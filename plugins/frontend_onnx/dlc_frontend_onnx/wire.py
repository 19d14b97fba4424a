"""Parsing a model without copying its weights.

A serialized model consists mostly of `raw_data` of tensors, and protobuf copies every byte of it twice.
`parse` therefore first scans the wire format along the few fields that lead to tensors, and replaces every
large `raw_data` by a short marker. protobuf parses the rest, which is small. `Cuts.resolve` maps a marker
back to a view of the original bytes (a memory map if the model is a file).

A marker begins with random bytes drawn for this parse, so no model can forge one. The scan changes nothing
else. Unknown fields, unusual encodings and malformed messages are passed to protobuf unchanged.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

from dlc_core.cancel import checkpoint

if TYPE_CHECKING:
    import onnx

CUT_FROM = 1 << 12
"""A `raw_data` of at least this many bytes is extracted. Smaller messages are not scanned."""

SCAN_FROM = 1 << 18
"""Smaller models are parsed without a scan."""

MAX_PARSE = (1 << 31) - 1
"""Limit of bytes that protobuf parses in one message."""

MAX_FIELDS = 1 << 22
"""The maximum number of fields that are scanned, because protobuf skips a field a hundred times faster."""

_DEEPEST = 128

Buffer: TypeAlias = "bytes | memoryview"

# For each kind of message, the numbers of the fields that lead to tensors, with the kind of their messages.
_PATHS: dict[str, dict[int, str]] = {
    "model": {7: "graph", 25: "function"},
    "function": {7: "node", 11: "attribute"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
    "tensor": {9: "raw"},
}
_LENGTH_DELIMITED = 2


class Cuts:
    """The large `raw_data` fields of one model, each a view of the model's bytes."""

    def __init__(self) -> None:
        self._token = secrets.token_bytes(16)
        self._views: list[memoryview] = []
        self.fields_left = MAX_FIELDS

    def mark(self, view: memoryview) -> bytes:
        """Store the view and return its marker."""
        self._views.append(view)
        return self._token + (len(self._views) - 1).to_bytes(8, "little")

    def resolve(self, data: bytes) -> Buffer:
        """The extracted view if `data` is a marker, else `data` itself."""
        if len(data) == 24 and data.startswith(self._token):
            return self._views[int.from_bytes(data[16:], "little")]
        return data


def parse(data: memoryview) -> tuple[onnx.ModelProto, Cuts]:
    """The message in `data`, and the extracted weights. Raises protobuf's `DecodeError` if it is malformed.

    Raises `OverflowError` if the message without its weights is larger than protobuf can parse.
    """
    import onnx  # the digest of a model scans it without

    body, cuts = without_weights(data)
    if len(body) > MAX_PARSE:
        raise OverflowError(f"{len(body)} bytes")
    return onnx.ModelProto.FromString(body), cuts


def without_weights(data: memoryview) -> tuple[Buffer, Cuts]:
    """The message in `data` with markers in place of large `raw_data`, and the extracted weights."""
    cuts = Cuts()
    rope = _scan(data, 0, len(data), "model", 0, cuts) if len(data) >= SCAN_FROM else None
    return data if rope is None else b"".join(rope), cuts


def _scan(data: memoryview, start: int, end: int, kind: str, depth: int, cuts: Cuts) -> list[Buffer] | None:
    """The message in data[start:end] as pieces with large `raw_data` replaced; `None` if nothing was
    replaced.
    """
    paths = _PATHS[kind]
    pieces: list[Buffer] = []
    kept = start
    at = start
    while at < end:
        checkpoint()
        tag, at = _varint(data, at, end)
        cuts.fields_left -= 1
        if at < 0 or cuts.fields_left < 0:
            break
        wire = tag & 7
        if wire == 0:
            _, at = _varint(data, at, end)
            if at < 0:
                break
            continue
        if wire != _LENGTH_DELIMITED:
            if wire not in (1, 5):
                break
            at += 8 if wire == 1 else 4
            continue
        length_at = at
        length, at = _varint(data, at, end)
        if at < 0 or length > end - at:
            break
        after = at + length
        inner = paths.get(tag >> 3) if length >= CUT_FROM else None
        if inner is not None and depth < _DEEPEST:
            new: Sequence[Buffer] | None
            new = (
                [cuts.mark(data[at:after])]
                if inner == "raw"
                else _scan(data, at, after, inner, depth + 1, cuts)
            )
            if new is not None:
                pieces += (data[kept:length_at], _encode(sum(map(len, new))), *new)
                kept = after
        at = after
    if not pieces:
        return None
    pieces.append(data[kept:end])
    return pieces


def _varint(data: memoryview, at: int, end: int) -> tuple[int, int]:
    """A variable-length integer and the offset after it; the offset is -1 if the integer is malformed."""
    value = shift = 0
    while at < end and shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    return 0, -1


def _encode(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


__all__ = ["CUT_FROM", "MAX_PARSE", "SCAN_FROM", "Buffer", "Cuts", "parse", "without_weights"]
