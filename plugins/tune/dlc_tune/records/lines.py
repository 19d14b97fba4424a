"""Records as lines of JSON, the form of files and packages of records.

    {"schema": "dlc-record", "version": 1, "kernel": "3f…", "target": "llvm", …}

Input is not trusted: a line that is too long, nested too deep, or has unknown, missing or illegal fields
raises RecordError with the reason. The schedule itself is checked when it is replayed (`checks.py`).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO

from dlc_core.support.record import record
from dlc_tune.measuring.job import OK, STATES
from dlc_tune.records.decision import SPACE as DECIDED
from dlc_tune.records.errors import RecordError
from dlc_tune.records.record import CHOSEN, TRIED, Record

SCHEMA, VERSION = "dlc-record", 1
MAX_LINE = 4 << 20
"""The bytes of a line; traces of real kernels have less than a hundred thousand."""
MAX_TEXT = 8192
MAX_ITEMS = 1024
MAX_SIZE = 1 << 62


@record(frozen=True)
class Refused:
    """A line of a file that is no record, and why."""

    number: int
    why: str


def to_line(found: Record) -> str:
    """A record as one line of JSON, without the line's end."""
    data = {f.name: getattr(found, f.name) for f in fields(Record)}
    data["point"], data["notes"] = dict(found.point), dict(found.notes)
    try:
        return json.dumps({"schema": SCHEMA, "version": VERSION, **data}, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise RecordError(f"a record of {found.name or found.kernel[:12]} is no JSON: {error}") from error


def of_line(line: str | bytes) -> Record:
    """The record that `to_line` wrote. Raises RecordError for anything else."""
    if len(line) > MAX_LINE:
        raise RecordError(f"a line of more than {MAX_LINE} bytes", why="records are shorter")
    try:
        data = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise RecordError("a line that is no JSON", why=str(error)) from error
    if not isinstance(data, dict) or data.pop("schema", None) != SCHEMA:
        raise RecordError("a line that is no record", why=f"it has no schema {SCHEMA!r}")
    version = data.pop("version", None)
    if version != VERSION:
        raise RecordError(f"a record of version {version!r}"[:100], why=f"this version reads {VERSION}")
    return of_fields(data)


def of_fields(data: Mapping[str, Any]) -> Record:
    """A record of its fields. Raises RecordError if one is unknown, missing or illegal."""
    unknown = sorted(set(data) - set(_CHECKS))
    if unknown:
        raise RecordError(f"a record with the unknown field {unknown[0][:40]!r}")
    missing = [name for name in _REQUIRED if name not in data]
    if missing:
        raise RecordError(f"a record without the field {missing[0]!r}")
    made = {}
    for name, value in data.items():
        try:
            made[name] = _CHECKS[name](value)
        except ValueError as error:
            raise RecordError(f"a record whose {name} is illegal", why=str(error)) from error
    found = Record(**made)
    if found.state == CHOSEN and (found.outcome != OK or not (found.trace or found.space == DECIDED)):
        raise RecordError(f"a chosen schedule of outcome {found.outcome!r}", why="it has a trace, and ran")
    if found.state == CHOSEN and (found.seconds or 0.0) > (found.default_seconds or float("inf")):
        raise RecordError("a chosen schedule that is slower than the default", why="it would not be used")
    return found


def read_lines(file: BinaryIO) -> Iterator[Record | Refused]:
    """The records of a file of lines; for each that is none, the reason. Empty lines are skipped."""
    return (found for _, found in numbered_lines(file))


def numbered_lines(file: BinaryIO) -> Iterator[tuple[int, Record | Refused]]:
    """The lines of a file that are not empty, each with its number from 1: its record, or why it is none.

    At most `MAX_LINE` bytes are in memory at a time.
    """
    number = 0
    while line := file.readline(MAX_LINE + 1):
        number += 1
        whole = line.endswith(b"\n")
        while not whole and (rest := file.readline(MAX_LINE)):
            line, whole = line[: MAX_LINE + 1], rest.endswith(b"\n")
        if line.strip():
            try:
                yield number, of_line(line.strip() if len(line) <= MAX_LINE else line)
            except RecordError as error:
                yield number, Refused(number, f"{error.what}{f': {error.why}' if error.why else ''}")


def write_lines(path: Path, records: Iterable[Record]) -> int:
    """Write records to a file of JSON lines. Returns their number."""
    count = 0
    with path.open("w", encoding="utf-8") as file:
        for found in records:
            file.write(to_line(found) + "\n")
            count += 1
    return count


def _text(most: int = MAX_TEXT, empty: bool = True) -> Callable[[Any], str]:
    def check(value: Any) -> str:
        if not isinstance(value, str):
            raise ValueError(f"it is a {type(value).__name__}, not a text")
        if len(value) > most or not (value or empty):
            raise ValueError(f"it has {len(value)} characters; between {int(not empty)} and {most} are legal")
        if any(c < " " or c == "\x7f" for c in value) or not _is_text(value):
            raise ValueError("it has a control character, or one that is no text")
        return value

    return check


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:  # half of a pair of UTF-16
        return False
    return True


def _hash(value: Any) -> str:
    if not isinstance(value, str) or not re.fullmatch("[0-9a-f]{16,64}", value):
        raise ValueError("it is no hexadecimal hash of 16 to 64 digits")
    return value


def _one_of(*legal: str) -> Callable[[Any], str]:
    def check(value: Any) -> str:
        if value not in legal or not isinstance(value, str):
            raise ValueError(f"it is none of {', '.join(legal)}")
        return value

    return check


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"it is a {type(value).__name__}, not a number")
    if not 0 <= value < 1e300 or not math.isfinite(value):
        raise ValueError("it is no finite number of at least 0")
    return float(value)


def _number_or_none(value: Any) -> float | None:
    return None if value is None else _number(value)


def _whole(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= MAX_SIZE:
        raise ValueError(f"it has something else than integers from 0 to {MAX_SIZE}")
    return value


def _sizes(value: Any) -> tuple[int, ...]:
    if not isinstance(value, (list, tuple)) or len(value) > MAX_ITEMS:
        raise ValueError(f"it is no list of at most {MAX_ITEMS} numbers")
    return tuple(map(_whole, value))


def _point(value: Any) -> Mapping[str, str]:
    if not isinstance(value, Mapping) or len(value) > MAX_ITEMS:
        raise ValueError(f"it is no mapping of at most {MAX_ITEMS} entries")
    check = _text()
    return MappingProxyType({check(key): check(item) for key, item in value.items()})


def _notes(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError(f"it is a {type(value).__name__}, not a mapping")
    try:
        text = json.dumps(dict(value), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"it is no JSON: {error}") from error
    if len(text) > MAX_TEXT * 8:
        raise ValueError(f"it has {len(text)} characters; at most {MAX_TEXT * 8} are legal")
    return MappingProxyType(dict(value))


_CHECKS: Mapping[str, Callable[[Any], Any]] = {
    "kernel": _hash,
    "target": _text(empty=False),
    "processor": _text(),
    "family": lambda value: value if value == "" else _hash(value),
    "extents": _sizes,
    "space": _text(),
    "point": _point,
    "trace": _text(MAX_LINE),
    "state": _one_of(CHOSEN, TRIED),
    "outcome": _one_of(*STATES),
    "seconds": _number_or_none,
    "default_seconds": _number_or_none,
    "noise": _number_or_none,
    "unit": _text(64, empty=False),
    "threads": _whole,
    "machine": _text(),
    "name": _text(),
    "compiler": _text(256),
    "time": _number,
    "notes": _notes,
}
_REQUIRED = ("kernel", "target", "processor", "family", "extents", "space", "point", "trace", "state")

__all__ = [
    "MAX_LINE",
    "Refused",
    "numbered_lines",
    "of_fields",
    "of_line",
    "read_lines",
    "to_line",
    "write_lines",
]
