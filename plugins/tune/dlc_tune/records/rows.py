"""Records as rows of a database, without any library of databases."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from hashlib import sha256
from typing import Any

from dlc_tune.records.errors import RecordError
from dlc_tune.records.lines import of_fields, to_line
from dlc_tune.records.record import Record

JSON_FIELDS = ("extents", "point", "notes")
"""Fields whose column has their JSON."""
NAMES = tuple(f.name for f in fields(Record))


def row_of(found: Record) -> dict[str, Any]:
    """The row of a record. Raises RecordError if it is not legal."""
    line = to_line(found)
    data = json.loads(line)
    del data["schema"], data["version"]
    of_fields(data)
    plain = {name: json.dumps(data[name]) if name in JSON_FIELDS else data[name] for name in NAMES}
    return {"digest": digest_of(line), **plain}


def digest_of(line: str) -> str:
    """The identity of a record in a database, from its line of JSON: a hash of all that it has."""
    return sha256(line.encode()).hexdigest()


def record_of(row: Mapping[str, Any]) -> Record:
    """The record of a row. Raises RecordError if something else wrote it."""
    try:
        data = {name: json.loads(row[name]) if name in JSON_FIELDS else row[name] for name in NAMES}
    except (TypeError, ValueError, RecursionError) as error:
        raise RecordError("a row of a database that is no record", why=str(error)) from error
    return of_fields(data)


__all__ = ["JSON_FIELDS", "NAMES", "digest_of", "record_of", "row_of"]
