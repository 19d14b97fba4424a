"""Reading of chosen records in compiles.

A SQLite file is read by Python's own module, because SQLAlchemy takes longer to import than a small compile.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

from dlc_core.diag import DlcError
from dlc_core.support.lazy import lazy
from dlc_tune.records.errors import RecordsWarning
from dlc_tune.records.record import CHOSEN, Record

if TYPE_CHECKING:
    import sqlite3

    from dlc_tune.records import database, lines, packages, rows
else:
    sqlite3 = lazy("sqlite3")
    database, lines = lazy("dlc_tune.records.database"), lazy("dlc_tune.records.lines")
    rows = lazy("dlc_tune.records.rows")

FRESH = 1.0
"""Seconds for which the state of a database on a server is not asked for again."""
RETRY = 60.0
"""Seconds for which a server that did not answer is left alone."""
BUSY = 2.0
"""Seconds that a compile waits for a locked file."""
UNREADABLE = "unreadable"
"""The begin of the state of a source that cannot be read."""
GRANULARITY = 0.1
"""Seconds that the times of files may be behind."""


class Source(Protocol):
    """A collection of chosen records. `name` is shown by `dlc explain`."""

    name: str

    def state(self) -> str:
        """A text that changes whenever its chosen records do; empty if there are none."""
        ...

    def chosen(self, target: str) -> Iterator[Record]:
        """Its chosen records for a target. Those that are not legal are left out."""
        ...


class SqliteSource:
    """A SQLite file of records."""

    def __init__(self, path: Path) -> None:
        self.path, self.name = path, path.name
        self._known: tuple[tuple[object, ...], str] | None = None

    def state(self) -> str:
        files = tuple(map(_stamp, (self.path, self.path.with_name(f"{self.path.name}-wal"))))
        if files[0] is None:
            return ""
        if self._known is None or self._known[0] != files:
            try:
                self._known = files, self._counter()
            except sqlite3.Error as error:
                is_new = "no such table" in str(error)  # another process is about to make the tables
                self._known = files, "" if is_new else f"{UNREADABLE}: {error}"
        return self._known[1]

    def _counter(self) -> str:
        with closing(self._connect()) as connection:
            values = dict(connection.execute("SELECT name, value FROM dlc_meta"))
        return f"{values.get('id')}:{values.get('changes')}"

    def chosen(self, target: str) -> Iterator[Record]:
        query = (
            f"SELECT {', '.join(rows.NAMES)} FROM dlc_records "
            "WHERE state = 'chosen' AND target = ? AND length(trace) <= ? ORDER BY id"
        )
        with closing(self._connect()) as connection:
            connection.row_factory = sqlite3.Row
            found = list(connection.execute(query, (target, lines.MAX_LINE)))
        return _legal(dict(row) for row in found)

    def _connect(self) -> sqlite3.Connection:
        uri = f"{self.path.absolute().as_uri()}?mode=ro"
        connection = sqlite3.connect(uri, timeout=BUSY, uri=True)
        try:
            connection.execute("SELECT name FROM dlc_meta LIMIT 1")
        except sqlite3.OperationalError as error:
            if not any(word in str(error) for word in ("unable to open", "readonly")):
                raise
            connection.close()
            # The log of a file in a folder that cannot be written has no index; then nobody writes the file.
            connection = sqlite3.connect(f"{uri}&immutable=1", timeout=BUSY, uri=True)
        return connection


class ServerSource:
    """A database on a server. It is asked for its state at most once a second; after an error, less often."""

    def __init__(self, url: str) -> None:
        self.url = url
        parts = urlsplit(url)  # the name is shown, so it has no password
        self.name = f"{parts.scheme.partition('+')[0]}://{parts.hostname or ''}{parts.path}"
        self._known = ""
        self._until = -math.inf

    def state(self) -> str:
        if time.monotonic() >= self._until:
            pause = FRESH
            try:
                with database.Database(self.url, busy_seconds=BUSY) as found:
                    self._known = found.state()
            except DlcError as error:
                self._known, pause = f"{UNREADABLE}: {error.what}", RETRY
            self._until = time.monotonic() + pause
        return self._known

    def chosen(self, target: str) -> Iterator[Record]:
        with database.Database(self.url, busy_seconds=BUSY) as found:
            yield from found.find(state=CHOSEN, target=target)


class FileSource:
    """The file of a package."""

    def __init__(self, file: packages.RecordFile) -> None:
        self.file = file
        self.name = f"{file.name} {file.version}".strip()
        self._read: tuple[str, list[Record]] | None = None

    def state(self) -> str:
        return self.file.state

    def chosen(self, target: str) -> Iterator[Record]:
        state = self.state()
        if self._read is None or self._read[0] != state:
            with self.file.path.open("rb") as file:
                found = list(lines.read_lines(file))
            self._read = state, [one for one in found if isinstance(one, Record) and one.state == CHOSEN]
            refused = [one for one in found if isinstance(one, lines.Refused)]
            if refused:
                first = f"line {refused[0].number}: {refused[0].why}"
                what = f"{len(refused)} lines of {self.file.path} are no records; {first}"
                warnings.warn(what, RecordsWarning, stacklevel=2)
        return (one for one in self._read[1] if one.target == target)


def _legal(found: Iterable[Mapping[str, Any]]) -> Iterator[Record]:
    for row in found:
        with suppress(DlcError):
            yield rows.record_of(row)


def _stamp(path: Path) -> object:
    """A value that changes whenever a file does; None if there is no file."""
    try:
        found = path.stat()
    except OSError:
        return None
    # Times have a granularity: a file that has just changed may change again without a sign.
    fresh = object() if abs(time.time() - found.st_mtime) < GRANULARITY else None
    return found.st_ino, found.st_size, found.st_mtime_ns, fresh


__all__ = ["UNREADABLE", "FileSource", "ServerSource", "Source", "SqliteSource"]
