"""Changes of bytes, lines and JSON data, and smaller versions of bytes."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from typing import Any

NUMBERS: tuple[Any, ...] = (
    0,
    1,
    -1,
    2,
    7,
    255,
    1 << 31,
    (1 << 31) - 1,
    1 << 62,
    1 << 63,
    -(1 << 63),
    1 << 200,
)
WORDS: tuple[Any, ...] = ("", "\0", "x" * 5000, "é\u202e\x1b[31m", "__class__", "../../x", "float32", "nan")
VALUES: tuple[Any, ...] = (*NUMBERS, *WORDS, None, True, False, 0.5, 1e400, [], {}, [[[[[]]]]], {"": 0})


def change_bytes(rng: random.Random, data: bytes, others: Sequence[bytes] = ()) -> bytes:
    """Flip, insert, remove, repeat or splice bytes."""
    at = rng.randrange(len(data) + 1)
    size = rng.choice((1, 1, 2, 4, 8, 16, 64))
    how = rng.randrange(7 if others else 6)
    if how == 0 and at < len(data):
        return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]
    if how == 1:
        return data[:at] + rng.randbytes(size) + data[at:]
    if how == 2:
        return data[:at] + data[at + size :]
    if how == 3:
        return data[:at] + data[at : at + size] * rng.choice((2, 3, 50)) + data[at + size :]
    if how == 4:
        return data[:at] + rng.choice((b"\0" * size, b"\xff" * size)) + data[at + size :]
    if how == 6:
        other = rng.choice(others)
        return data[:at] + other[rng.randrange(len(other) + 1) :]
    return data[:at]


def change_lines(rng: random.Random, data: bytes) -> bytes:
    """Remove, repeat or swap lines."""
    lines = data.splitlines(keepends=True) or [b""]
    a, b = rng.randrange(len(lines)), rng.randrange(len(lines))
    how = rng.randrange(3)
    if how == 0:
        del lines[a]
    elif how == 1:
        lines.insert(a, lines[b])
    else:
        lines[a], lines[b] = lines[b], lines[a]
    return b"".join(lines)


def change_json(rng: random.Random, value: Any) -> Any:
    """Change one value somewhere in JSON data: replace, remove, repeat, rename, or nest it."""
    place: Any = [value]
    key: Any = 0
    inner = value
    while isinstance(inner, (list, dict)) and inner and rng.random() < 0.85:
        place, key = inner, rng.choice(list(inner) if isinstance(inner, dict) else range(len(inner)))
        inner = place[key]
    how = rng.randrange(6)
    if how == 0 and place is not value and isinstance(place, (list, dict)):
        del place[key]
    elif how == 1 and isinstance(place, dict):
        place[rng.choice(WORDS)] = place.pop(key)
    elif how == 1 and isinstance(place, list):
        place.insert(key, inner)
    elif how == 2 and isinstance(inner, str) and inner.startswith(("{", "[")):
        place[key] = _nested(rng, inner)
    elif how == 3 and isinstance(inner, (int, float)):
        place[key] = rng.choice(NUMBERS)
    elif how == 4:
        place[key] = [inner]
    else:
        place[key] = rng.choice(VALUES)
    return (
        place[0] if place is not value and key == 0 and isinstance(place, list) and len(place) == 1 else value
    )


def _nested(rng: random.Random, text: str) -> str:
    """JSON text in JSON data, changed."""
    try:
        return json.dumps(change_json(rng, json.loads(text)))
    except (ValueError, RecursionError):
        return text[: rng.randrange(len(text) + 1)]


def parts_of_bytes(data: bytes) -> Iterator[bytes]:
    """The data without one of its halves, quarters, and so on down to single bytes."""
    size = len(data)
    while size > 1:
        size = -(-size // 2)
        for at in range(0, len(data), size):
            yield data[:at] + data[at + size :]
        if len(data) // size > 256:
            return


__all__ = ["NUMBERS", "VALUES", "WORDS", "change_bytes", "change_json", "change_lines", "parts_of_bytes"]
