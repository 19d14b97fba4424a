"""Export to and import from files of JSON lines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import field
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from dlc_core.diag import DlcError, UsageError
from dlc_core.schedule import Trace
from dlc_core.support.record import record
from dlc_tune.records.database import Database
from dlc_tune.records.lines import Refused, numbered_lines, write_lines
from dlc_tune.records.record import Record

CHUNK = 256
"""Records that are written together."""
MAX_REFUSED = 100
"""The refused lines of a file that are kept with their reasons."""


@record(frozen=True)
class Imported:
    """The outcome of an import: the numbers of records that are new and that the database had, and of lines
    that are no records. `refused` has the first of these with the reasons.
    """

    added: int
    known: int
    refused: tuple[Refused, ...] = field(default=())
    refused_count: int = 0

    @property
    def is_foreign(self) -> bool:
        """Whether no line is a record, though there are lines."""
        return bool(self.refused_count) and not (self.added or self.known)


def export_lines(path: Path, records: Iterable[Record]) -> int:
    """Write records to a file. Returns their number. Raises UsageError if the file cannot be written."""
    try:
        return write_lines(path, records)
    except OSError as error:
        raise UsageError(f"the records cannot be written to {path}", why=str(error)) from error


def import_lines(path: Path, database: Database) -> Imported:
    """Add the records of a file to a database. Lines that are no records are left out, with the reasons.

    Raises UsageError if the file cannot be read.
    """
    added, total, count, refused = 0, 0, 0, list[Refused]()

    def legal(file: BinaryIO) -> Iterator[Record]:
        nonlocal count
        for number, found in numbered_lines(file):
            why = found.why if isinstance(found, Refused) else problem(found)
            if why or isinstance(found, Refused):
                count += 1
                if count <= MAX_REFUSED:
                    refused.append(Refused(number, why))
            else:
                yield found

    try:
        with path.open("rb") as file:
            rest = legal(file)
            while chunk := list(islice(rest, CHUNK)):
                total += len(chunk)
                added += database.add_all(chunk)
    except OSError as error:
        raise UsageError(f"the records of {path} cannot be read", why=str(error)) from error
    return Imported(added, total - added - len(database.unwritten), tuple(refused), count)


def problem(found: Record) -> str:
    """The reason why the trace of a record cannot be read; empty if it can."""
    if not found.trace:
        return ""
    try:
        Trace.from_json(found.trace)
    except DlcError as error:
        return f"{error.what}{f': {error.why}' if error.why else ''}"
    return ""


__all__ = ["Imported", "export_lines", "import_lines", "problem"]
