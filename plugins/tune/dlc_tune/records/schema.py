"""The tables of a database of records, and how those of older versions are changed.

dlc_meta      name, value: `version` of the tables, `id` of the database, `changes`, which counts what
              compiles may see
dlc_records   one row for each record; `digest` makes each of them unique
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Float,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    delete,
    func,
    insert,
    inspect,
    select,
    update,
)

from dlc_tune.records.errors import DatabaseError

VERSION = 1
"""The version of the tables."""
MIGRATIONS: Mapping[int, Callable[[Connection], None]] = {}
"""Changes the tables of a version to those of the next one."""
PROBE, PROBE_BYTES = "probe-", 16384
"""The begin of the names of values that are written to see whether a database takes them, and their size."""
LOCK = 0x646C63
"""The number of the lock under which the tables are made on a server."""

METADATA = MetaData()
META = Table(
    "dlc_meta", METADATA, Column("name", String(32), primary_key=True), Column("value", Text, nullable=False)
)
RECORDS = Table(
    "dlc_records",
    METADATA,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
    Column("digest", String(64), nullable=False, unique=True),
    *(Column(name, Text, nullable=False) for name in ("kernel", "target", "processor", "machine")),
    *(Column(name, Text, nullable=False) for name in ("family", "extents", "space", "point", "trace")),
    *(
        Column(name, Text, nullable=False)
        for name in ("state", "outcome", "unit", "name", "compiler", "notes")
    ),
    *(Column(name, Float) for name in ("seconds", "default_seconds", "noise")),
    Column("threads", Integer, nullable=False),
    Column("time", Float(53), nullable=False),
    Index("dlc_records_kernel", "kernel", "target"),
    Index("dlc_records_state", "state", "target"),
)


def is_current(connection: Connection) -> bool:
    """Whether the tables exist in this version, so that nothing has to be prepared."""
    return inspect(connection).has_table(META.name) and value_of(connection, "version") == str(VERSION)


def prepare(connection: Connection) -> None:
    """Make the tables, or change those of an older version. Raises DatabaseError for those of a newer one."""
    if not inspect(connection).has_table(META.name) and not _made_by_another(connection):
        _refuse_other_tables(connection)
        METADATA.create_all(connection)
        first = {"version": str(VERSION), "id": uuid.uuid4().hex, "changes": "0"}
        connection.execute(insert(META), [{"name": name, "value": value} for name, value in first.items()])
        return
    text = value_of(connection, "version")
    version = int(text) if text.isdecimal() else VERSION + 1
    if version > VERSION:
        raise DatabaseError(
            f"a database of records of version {text[:20]}",
            why=f"this version of dlc-tune reads {VERSION} and older ones",
            hint="update dlc-tune, or use another database",
        )
    for old in range(version, VERSION):
        MIGRATIONS[old](connection)
        set_value(connection, "version", str(old + 1))


def _refuse_other_tables(connection: Connection) -> None:
    """Raise DatabaseError for a SQLite file of something else. The tables of a server may be of many."""
    names = inspect(connection).get_table_names() if connection.dialect.name == "sqlite" else []
    if names:
        raise DatabaseError(
            f"the file {connection.engine.url.database} is a database of something else",
            why=f"it has other tables: {', '.join(names[:4])}",
            hint="name another file; a new one is made",
        )


def _made_by_another(connection: Connection) -> bool:
    """Whether another process makes the tables at the same time; if so, they exist now."""
    if connection.dialect.name != "postgresql":  # SQLite has locked the file for this transaction
        return False
    connection.execute(select(func.pg_advisory_xact_lock(LOCK)))
    return inspect(connection).has_table(META.name)


def write_probe(connection: Connection) -> None:
    """Write a value, and try whether the table of records takes a row, which is not kept."""
    row = {each.name: "" if isinstance(each.type, (String, Text)) else 0 for each in RECORDS.c}
    del row["id"]
    name = f"{PROBE}{uuid.uuid4().hex[:24]}"
    with connection.begin_nested() as step:
        connection.execute(insert(RECORDS), [{**row, "digest": name}])
        step.rollback()
    connection.execute(insert(META), [{"name": name, "value": " " * PROBE_BYTES}])


def remove_probes(connection: Connection) -> None:
    """Remove the values of `write_probe`."""
    connection.execute(delete(META).where(META.c.name.startswith(PROBE)))


def value_of(connection: Connection, name: str) -> str:
    """A value of the table `dlc_meta`."""
    return str(connection.execute(select(META.c.value).where(META.c.name == name)).scalar_one())


def set_value(connection: Connection, name: str, value: str) -> None:
    """Change a value of the table `dlc_meta`."""
    connection.execute(update(META).where(META.c.name == name).values(value=value))


__all__ = [
    "META",
    "RECORDS",
    "VERSION",
    "is_current",
    "prepare",
    "remove_probes",
    "set_value",
    "value_of",
    "write_probe",
]
