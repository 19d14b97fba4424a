"""Connections to databases: how SQLite files are made and opened, and errors in the user's words."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, create_engine, event
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.pool import StaticPool

from dlc_core.diag import UsageError
from dlc_tune.records.errors import DatabaseError
from dlc_tune.records.locations import file_of

WRITES = "dlc_writes"
"""The execution option of connections that write. SQLite takes the lock for writers at the begin of their
transaction: a reader that becomes a writer may fail at once instead of waiting."""
_BUSY = ("is locked", "is busy", "deadlock", "could not serialize", "lock timeout", "schema has changed")
_WHY = (
    (_BUSY, "another process keeps it locked", "end that process, or try again later"),
    (
        ("readonly", "read-only", "permission denied"),
        "it is read-only",
        "make it writable, or name another one",
    ),
    (("is full", "disk i/o error", "no space", "too large"), "the disk is full", "make room, or move it"),
    (
        (
            "no such table",
            "no such column",
            "has no column",
            "no row was found",
            "of relation",
            'relation "dlc_',
        ),
        "its tables are not those of records",
        "name another database",
    ),
    (("not a database", "malformed"), "the file is damaged or no database", "move the file away"),
    (
        ("refused", "timeout", "timed out", "could not translate"),
        "its server does not answer",
        "start the server",
    ),
    (("unable to open",), "the file or its folder cannot be opened", "check its path and its permissions"),
)


def engine_of(url: str, seconds: float) -> Engine:
    """The SQLAlchemy engine of a database; makes the file of a SQLite database, and its folder.

    A server has so many seconds to accept a connection.

    Raises UsageError for an illegal URL or a missing driver, and DatabaseError if the file cannot be made.
    """
    path = file_of(url)
    if path is not None:
        _make_file(path, url)
    options: dict[str, Any] = {"pool_pre_ping": True}
    try:
        made = make_url(url)
        if made.drivername in ("postgresql", "postgres"):  # SQLAlchemy would look for an older driver
            made = made.set(drivername="postgresql+psycopg")
        backend = made.get_backend_name()
        if backend == "sqlite":
            options["connect_args"] = {"timeout": 0.1, "check_same_thread": False}
        elif backend == "postgresql":
            options["connect_args"] = {"connect_timeout": max(2, round(seconds))}
        if backend == "sqlite" and path is None:  # in memory: one connection is the database
            options["poolclass"] = StaticPool
        engine = create_engine(made, **options)
    except (ArgumentError, NoSuchModuleError, ImportError, ValueError) as error:
        raise UsageError(
            f"no database of records can be opened by {shown(url)!r}",
            why=f"{type(error).__name__}: {error}",
            hint="give a path, or a URL of SQLAlchemy whose driver is installed, such as "
            "postgresql+psycopg://user@host/name (pip install dlc-tune[postgresql])",
        ) from error
    if backend == "sqlite":
        event.listen(engine, "connect", _set_up)
        event.listen(engine, "begin", _begin)
    return engine


def _make_file(path: Path, url: str) -> None:
    try:
        if not path.parent.exists():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except FileExistsError:
        return
    except OSError as error:
        raise error_of(error, url) from error


def _set_up(connection: Any, _: Any) -> None:
    connection.isolation_level = None  # `_begin` begins transactions, not the driver
    # A commit survives the end of the process. The end of power may lose the last ones, and damages nothing.
    connection.execute("PRAGMA synchronous = NORMAL")
    with suppress(connection.OperationalError):  # not while others use it, and not on every file system
        connection.execute("PRAGMA journal_mode = WAL")  # readers and a writer do not wait for each other


def _begin(connection: Any) -> None:
    writes = connection.get_execution_options().get(WRITES)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def shown(url: str) -> str:
    """A URL without its password, and a file's URL as its path."""
    path = file_of(url)
    if path is not None:
        return str(path)
    try:
        return make_url(url).render_as_string(hide_password=True)
    except (ArgumentError, ValueError):
        return url.partition("://")[0] + "://…"


def is_busy(error: SQLAlchemyError) -> bool:
    """Whether another attempt may succeed: the database is locked, or the connection to it was lost."""
    lost = isinstance(error, DBAPIError) and error.connection_invalidated
    return lost or any(word in str(error).lower() for word in _BUSY)


def error_of(error: Exception, url: str) -> DatabaseError:
    """An error of a database in the user's words."""
    original = getattr(error, "orig", None) or error
    text = " ".join(str(original).split())
    for words, why, hint in _WHY:
        if any(word in text.lower() for word in words):
            return DatabaseError(f"the records in {shown(url)} cannot be used: {text}", why=why, hint=hint)
    return DatabaseError(
        f"the records in {shown(url)} cannot be used",
        why=f"{type(original).__name__}: {text}",
        hint="the setting records_url (DLC_RECORDS_URL) names another database",
    )


__all__ = ["WRITES", "engine_of", "error_of", "is_busy", "shown"]
