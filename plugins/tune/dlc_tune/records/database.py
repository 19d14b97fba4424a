"""The database of records: a SQLite file, or any database that SQLAlchemy knows.

    with Database() as database:                 the user's own: the setting `records_url`
        database.add(record)
        database.best(kernel, target)            the chosen record with the largest gain
        database.of_kernel(kernel, target)       all that was tried

Threads may share a Database, and processes may open the same one. Each record is a transaction of its own. A
record that cannot be written, because the database is locked, read-only or full, is kept in a file of JSON
lines (`unwritten.py`) and written later.
"""

from __future__ import annotations

import os
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import BigInteger, Connection, Select, Text, cast, delete, func, insert, select, update
from sqlalchemy.exc import IntegrityError, SQLAlchemyError

from dlc_tune.records.connecting import WRITES, engine_of, error_of, is_busy, shown
from dlc_tune.records.errors import DatabaseError, RecordError, RecordsWarning
from dlc_tune.records.lines import read_lines
from dlc_tune.records.locations import url_of
from dlc_tune.records.record import CHOSEN, Record
from dlc_tune.records.rows import record_of, row_of
from dlc_tune.records.schema import META, RECORDS, is_current, prepare, remove_probes, value_of, write_probe
from dlc_tune.records.unwritten import Unwritten, abandoned

Result = TypeVar("Result")
FIRST_PAUSE, LONGEST_PAUSE = 0.01, 0.5
"""Seconds between attempts while another process keeps the database locked."""
SHORT_WAIT = 0.2
"""Seconds that writers wait for a database that was locked at the attempt before."""
CHUNK = 256
"""Records of a transaction of `add_all`."""


class Database:
    """A database of records. `busy_seconds` is how long an operation waits for a locked one.

    Raises UsageError for an illegal URL, and DatabaseError if it cannot be opened.
    """

    def __init__(self, url: str | Path | None = None, *, busy_seconds: float = 20.0) -> None:
        self.url = url_of(url)
        self.busy_seconds = busy_seconds
        self._lock = threading.RLock()
        self._warned = False
        self._open()
        if not self._run(is_current):
            self._run(prepare, writes=True)
        self._take_over()

    def _open(self) -> None:
        self._engine = engine_of(self.url, self.busy_seconds)
        self._unwritten = Unwritten(self.url)
        self._process = os.getpid()

    def __reduce__(self) -> tuple[Any, ...]:
        return Database, (self.url,)

    def __str__(self) -> str:
        return shown(self.url)

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Writing.

    def check_writable(self) -> None:
        """Notice now that records cannot be written. Raises DatabaseError if another process keeps the
        database locked, if it is read-only or on a full disk, or if its tables are not those of records.
        """
        for step in (write_probe, remove_probes):
            self._run(step, writes=True)

    def add(self, record: Record) -> bool:
        """Add a record. Returns whether it is new and written.

        If it cannot be written it is kept (`unwritten`), with a RecordsWarning that says where. Raises
        RecordError for an illegal record.
        """
        return self.add_all([record]) == 1

    def add_all(self, records: Iterable[Record]) -> int:
        """Add records, as `add` does, in few transactions. Returns how many are new and written."""
        listed = list(records)
        rows = [row_of(one) for one in listed]
        count = 0
        with self._lock:
            for first in range(0, len(rows), CHUNK):
                try:
                    self._write_unwritten()
                    count += self._insert(rows[first : first + CHUNK])
                except DatabaseError as error:
                    self._keep(listed[first:], error)
                    break
        return count

    @property
    def unwritten(self) -> tuple[Record, ...]:
        """The records that could not be written so far."""
        return tuple(self._unwritten.records)

    def flush(self) -> None:
        """Write the records that could not be written before. Raises DatabaseError if that fails again."""
        with self._lock:
            try:
                self._write_unwritten()
            except DatabaseError as error:
                error.hint = self._where()
                raise

    def close(self) -> None:
        """Write what is unwritten, and close the connections. Raises DatabaseError if records are lost: they
        are neither in the database nor in a file.
        """
        with self._lock:
            try:
                self._write_unwritten()
            except DatabaseError as error:
                if self._unwritten.path is None:
                    error.hint = self._where()
                    raise
            finally:
                self._unwritten.release()
                self._engine.dispose()

    def forget(self, **equal: Any) -> int:
        """Remove the records with these fields, such as `kernel` or `target`. Returns how many there were."""

        def remove(connection: Connection) -> int:
            removed = connection.execute(delete(RECORDS).where(*_conditions(equal))).rowcount
            if removed:
                _count_change(connection)
            return removed

        return self._run(remove, writes=True)

    def _write_unwritten(self) -> None:
        if self._unwritten.records:
            self._insert([row_of(one) for one in self._unwritten.records])
            self._unwritten.clear()
            self._warned = False

    def _insert(self, rows: Sequence[Mapping[str, Any]]) -> int:
        def write(connection: Connection) -> int:
            count, seen = 0, False
            for row in rows:
                try:
                    with connection.begin_nested():
                        connection.execute(insert(RECORDS), [row])
                except IntegrityError:  # the database has it
                    continue
                count, seen = count + 1, seen or row["state"] == CHOSEN
            if seen:
                _count_change(connection)
            return count

        return self._run(write, writes=True, wait=SHORT_WAIT if self._unwritten.records else None)

    def _keep(self, records: Sequence[Record], error: DatabaseError) -> None:
        self._unwritten.keep(records)
        if not self._warned:
            self._warned = True
            warnings.warn(f"{error.what} ({error.why}): {self._where()}", RecordsWarning, stacklevel=4)

    def _where(self) -> str:
        """Where the unwritten records are, in words."""
        count, path = len(self._unwritten.records), self._unwritten.path
        if path is None:
            return f"{count} records are only in memory, because no file could be written either"
        return (
            f"{count} records are in {path} until they are written; `dlc records import` takes the file too"
        )

    def _take_over(self) -> None:
        """Write what processes left unwritten that ended."""
        for path, file in abandoned(self.url):
            with open(file, "rb", closefd=False) as lines:
                found = list(read_lines(lines))
            records = [one for one in found if isinstance(one, Record)]
            try:
                self._insert([row_of(one) for one in records])
            except DatabaseError:
                return
            if len(records) == len(found):
                path.unlink(missing_ok=True)
            else:
                path.rename(path.with_suffix(".refused"))

    # Reading.

    def best(
        self, kernel: str, target: str, *, processor: str | None = None, machine: str | None = None
    ) -> Record | None:
        """The chosen record of a kernel with the largest measured gain, the newest of equal ones."""
        equal = {"kernel": kernel, "target": target, "state": CHOSEN}
        equal |= {} if processor is None else {"processor": processor}
        equal |= {} if machine is None else {"machine": machine}
        return max(self.find(**equal), key=lambda one: (-one.gain, one.time), default=None)

    def of_kernel(self, kernel: str, target: str | None = None) -> list[Record]:
        """All records of a kernel, in the order in which they were added."""
        return self.find(kernel=kernel) if target is None else self.find(kernel=kernel, target=target)

    def find(self, **equal: Any) -> list[Record]:
        """The records with these fields, in the order in which they were added.

        A row that something else wrote and that is no legal record is left out, with a RecordsWarning.
        """

        def read(connection: Connection) -> list[Any]:
            query: Select[Any] = select(RECORDS).where(*_conditions(equal)).order_by(RECORDS.c.id)
            return list(connection.execute(query).mappings())

        found = []
        for row in self._run(read):
            try:
                found.append(record_of(row))
            except RecordError as error:
                what = f"row {row['id']} of {self} is left out: {error.what} ({error.why})"
                warnings.warn(what, RecordsWarning, stacklevel=2)
        return found

    def counts(self, *by: str) -> list[dict[str, Any]]:
        """The number of records (`count`) by the values of fields."""
        columns = [RECORDS.c[name] for name in by]

        def read(connection: Connection) -> list[Any]:
            query = select(*columns, func.count().label("count")).select_from(RECORDS)
            query = query.group_by(*columns).order_by(*columns)
            return [dict(row) for row in connection.execute(query).mappings()]

        return self._run(read)

    def state(self) -> str:
        """A text that changes whenever chosen records are added or records are removed."""
        return self._run(lambda connection: f"{value_of(connection, 'id')}:{value_of(connection, 'changes')}")

    # Connections.

    def _run(
        self, work: Callable[[Connection], Result], *, writes: bool = False, wait: float | None = None
    ) -> Result:
        """Do work in one transaction, again and again while the database is locked."""
        end = time.monotonic() + (self.busy_seconds if wait is None else wait)
        pause = FIRST_PAUSE
        with self._lock:
            if self._process != os.getpid():  # in a child, connections and locks of the parent are not ours
                self._engine.dispose(close=False)
                self._open()
            while True:
                try:
                    engine = self._engine.execution_options(**{WRITES: writes})
                    with engine.begin() as connection:
                        return work(connection)
                except SQLAlchemyError as error:
                    if not is_busy(error) or time.monotonic() >= end:
                        raise error_of(error, self.url) from error
                time.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE)


def _conditions(equal: Mapping[str, Any]) -> list[Any]:
    return [RECORDS.c[name] == value for name, value in equal.items()]


def _count_change(connection: Connection) -> None:
    """Note that compiles may see something else from now on."""
    more = cast(cast(META.c.value, BigInteger) + 1, Text)
    connection.execute(update(META).where(META.c.name == "changes").values(value=more))


__all__ = ["Database"]
