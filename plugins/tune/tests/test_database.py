"""Databases of records: many writers, killed processes, and locked, full, read-only and damaged files."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

import pytest
from dlc_tune.records import schema
from dlc_tune.records.database import Database
from dlc_tune.records.errors import DatabaseError, RecordError, RecordsWarning
from dlc_tune.records.lines import read_lines, to_line
from dlc_tune.records.locations import RECORDS_URL
from dlc_tune.records.record import CHOSEN, TRIED, Record
from dlc_tune.records.samples import TARGET, double, record_of
from sqlalchemy import text

import dlc_core as dlc
from dlc_core.config import config
from dlc_core.diag import UsageError


def made(number: int, **fields) -> Record:
    known = {
        "kernel": f"{number:064x}",
        "target": "llvm",
        "processor": "p",
        "family": "",
        "extents": (number,),
        "space": "s",
        "point": {"tile": "4x16"},
        "trace": "{}" + " " * 2000,
        "state": TRIED,
        "seconds": 1e-6,
        "time": float(number),
    }
    return Record(**{**known, **fields})


MADE = """
import sys
from dataclasses import replace
from dlc_tune.records.database import Database
from dlc_tune.records.lines import of_line

SAMPLE = of_line(sys.argv[1])


def made(number):
    return replace(SAMPLE, kernel=f"{number:064x}", extents=(number,), time=float(number))
"""
"""The begin of programs that write records: `made` without the imports of this file."""
WRITER = """
url, first, count, busy = sys.argv[2:]
database = Database(url, busy_seconds=float(busy))
for number in range(int(first), int(first) + int(count)):
    database.add(made(number))
    print(number, flush=True)
"""


def writer(url, first: int, count: int, busy: float = 30.0) -> subprocess.Popen[str]:
    """A process that adds the records from `first` on, and prints the number of each when it is added."""
    given = map(str, (url, first, count, busy))
    words = [sys.executable, "-c", MADE + WRITER, to_line(made(0)), *given]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def check(path: Path) -> int:
    """The number of records of an undamaged file."""
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    with Database(path) as database:
        return len(database.find())


def left(folder: Path) -> list[str]:
    """The files of unwritten records."""
    return sorted(path.name for path in folder.glob("*unwritten*"))


def test_processes_write_at_the_same_time(tmp_path):
    path = tmp_path / "records.db"
    writers = [writer(path, 1000 * number, 20) for number in range(4)]
    for each in writers:
        _, errors = each.communicate(timeout=120)
        assert (each.returncode, errors) == (0, "")
    assert check(path) == 80
    assert left(tmp_path) == []


def test_a_killed_writer_loses_nothing_that_was_added(tmp_path):
    path = tmp_path / "records.db"
    known = 0
    for first in range(0, 6000, 2000):
        process = writer(path, first, 2000)
        assert process.stdout is not None
        for _ in range(20 + first // 100):
            last = int(process.stdout.readline())
        process.send_signal(signal.SIGKILL)
        rest = process.communicate()[0].split()
        known += (int(rest[-1]) if rest else last) - first + 1
        assert known <= check(path) <= first + 2000  # the last ones may not have been reported
        known = check(path)


def test_records_of_a_locked_database_are_written_later(tmp_path):
    path = tmp_path / "records.db"
    with Database(path, busy_seconds=0.05) as database, closing(sqlite3.connect(path)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.warns(
            RecordsWarning, match=r"is locked .*another process keeps it locked.*1 records are in"
        ):
            assert not database.add(made(1))
        assert not database.add(made(2))  # one warning is enough
        (name,) = left(tmp_path)
        with (tmp_path / name).open("rb") as file:
            assert list(read_lines(file)) == [made(1), made(2)] == [*database.unwritten]
        with pytest.raises(DatabaseError, match=r"is locked") as caught:
            database.flush()
        assert name in caught.value.hint
        other.rollback()
        assert database.add(made(3))
        assert left(tmp_path) == []
        assert database.find() == [made(1), made(2), made(3)]


def test_records_of_a_killed_process_are_taken_over(tmp_path):
    path = tmp_path / "records.db"
    process = writer(path, 1, 100_000, busy=0.2)
    assert process.stdout is not None
    process.stdout.readline()
    with closing(sqlite3.connect(path, timeout=20, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        end = time.monotonic() + 60
        while not left(tmp_path) and time.monotonic() < end:
            time.sleep(0.05)
        known = [int(process.stdout.readline()) for _ in range(5)]
        process.kill()
        known += map(int, process.communicate()[0].split())
        other.execute("ROLLBACK")
    assert len(left(tmp_path)) == 1
    with Database(path) as database:
        assert len(database.find()) >= known[-1]
    assert left(tmp_path) == []


FULL = """
import resource, warnings
from dlc_tune.records.errors import DatabaseError, RecordsWarning
warnings.simplefilter("error", RecordsWarning)
url, limit, room = sys.argv[2:]
database = Database(url, busy_seconds=0.1)
database.add(made(0))
resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), resource.RLIM_INFINITY))
for number in range(1, 100):
    try:
        database.add(made(number))
    except RecordsWarning as error:
        print(error, flush=True)
try:
    database.flush()
except DatabaseError as error:
    print(type(error).__name__, error.why, error.hint, flush=True)
print(len(database.unwritten), flush=True)
if room == "room":
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
database.close()
"""


@pytest.mark.parametrize(
    ("limit", "room"),
    [
        (300_000, "no room"),
        (1000, "room"),
        pytest.param(300_000, "room", marks=pytest.mark.slow),
        pytest.param(1000, "no room", marks=pytest.mark.slow),
    ],
)
def test_records_of_a_full_disk_are_kept(tmp_path, limit, room):
    path = tmp_path / "records.db"
    words = [sys.executable, "-c", MADE + FULL, to_line(made(0)), str(path), str(limit), room]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    run = subprocess.run(words, capture_output=True, text=True, timeout=120, env=environment)
    warned, *_, refused, unwritten = run.stdout.splitlines()
    assert "the disk is full" in warned
    assert refused.startswith("DatabaseError the disk is full")
    assert 0 < int(unwritten) < 100
    if room == "room":
        assert (run.returncode, left(tmp_path)) == (0, [])
        assert check(path) == 100
        return
    if limit == 1000:  # there was no room for a file of lines either
        assert "are only in memory" in warned
        assert run.returncode == 1
        assert "are only in memory, because no file could be written" in run.stderr
        assert check(path) == 100 - int(unwritten)
    else:
        assert run.returncode == 0, run.stderr
        assert len(left(tmp_path)) == 1
        assert left(tmp_path)[0] in warned
        assert check(path) == 100  # the next process has room


def test_a_read_only_database_is_read_and_its_error_is_clear(tmp_path):
    path = tmp_path / "records.db"
    with Database(path) as database:
        database.add(made(1))
    with Database(f"sqlite:///file:{path}?mode=ro&uri=true") as database:
        assert database.find() == [made(1)]
        with pytest.warns(RecordsWarning, match="it is read-only"):
            database.add(made(2))


FULL_AT_THE_START = """
import resource, sys
from dlc_tune.records.database import Database
from dlc_tune.records.errors import DatabaseError
Database(sys.argv[1]).close()
database = Database(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (8192, resource.RLIM_INFINITY))
try:
    database.check_writable()
except DatabaseError as error:
    print(error.why)
"""


def test_a_search_notices_at_its_start_that_nothing_can_be_written(tmp_path):
    path = tmp_path / "records.db"
    with Database(path) as database:
        database.check_writable()
        assert database.find() == []
    with closing(sqlite3.connect(path)) as other:
        assert other.execute("SELECT count(*) FROM dlc_meta").fetchone() == (3,)  # nothing is left
    read_only = f"sqlite:///file:{path}?mode=ro&uri=true"
    with Database(read_only) as database, pytest.raises(DatabaseError) as caught:
        database.check_writable()
    assert caught.value.why == "it is read-only"
    with pytest.raises(DatabaseError, match="read-only"):
        dlc.tune(double(), TARGET, trials=1, database=read_only)
    with Database(path, busy_seconds=0.05) as database, closing(sqlite3.connect(path)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(DatabaseError) as caught:
            database.check_writable()
    assert caught.value.why == "another process keeps it locked"
    words = [sys.executable, "-c", FULL_AT_THE_START, str(tmp_path / "full.db")]
    run = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert run.stdout == "the disk is full\n", run.stderr


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ("ALTER TABLE dlc_records DROP COLUMN noise", "its tables are not those of records"),
        ("DROP TABLE dlc_records", "its tables are not those of records"),
        ("DELETE FROM dlc_meta", "its tables are not those of records"),
        ("UPDATE dlc_meta SET value = 'new' WHERE name = 'version'", "this version of dlc-tune reads 1"),
        ("DROP TABLE dlc_meta", "it has other tables: dlc_records"),
    ],
    ids=["a column less", "a table less", "no version", "an odd version", "tables of something else"],
)
def test_other_tables_are_noticed_at_the_start(tmp_path, change, why):
    path = tmp_path / "records.db"
    Database(path).close()
    with closing(sqlite3.connect(path)) as other, other:
        other.execute(change)
    with pytest.raises(DatabaseError) as caught:
        dlc.tune(double(), TARGET, trials=1, database=path)
    assert why in caught.value.why
    assert caught.value.hint


@pytest.mark.parametrize(
    ("content", "why"), [(b"no database" * 500, "damaged or no database"), (None, "cannot be opened")]
)
def test_a_file_that_is_no_database_is_refused(tmp_path, content, why):
    path = tmp_path / "records.db"
    path.mkdir() if content is None else path.write_bytes(content)
    with pytest.raises(DatabaseError) as caught:
        Database(path)
    assert why in caught.value.why
    assert caught.value.hint
    assert content is None or path.read_bytes() == content


@pytest.mark.parametrize(
    "url", ["nonsense://host/name", "sqlite+nodriver:///x.db", "postgresql+none://u:secret@h/n", ""]
)
def test_illegal_urls_are_refused_without_showing_passwords(url):
    with pytest.raises(UsageError) as caught:
        Database(url)
    assert "secret" not in str(caught.value)


def test_databases_of_newer_versions_are_refused(tmp_path):
    path = tmp_path / "records.db"
    Database(path).close()
    with closing(sqlite3.connect(path)) as other, other:
        other.execute("UPDATE dlc_meta SET value = '99' WHERE name = 'version'")
    with pytest.raises(DatabaseError, match="of version 99") as caught:
        Database(path)
    assert "update dlc-tune" in caught.value.hint


def test_databases_of_older_versions_are_changed(tmp_path, monkeypatch):
    path = tmp_path / "records.db"
    with Database(path) as database:
        database.add(made(1))

    def add_column(connection) -> None:
        connection.execute(text("ALTER TABLE dlc_records ADD COLUMN more TEXT"))

    monkeypatch.setattr(schema, "VERSION", 2)
    monkeypatch.setattr(schema, "MIGRATIONS", {1: add_column})
    for _ in range(2):
        with Database(path) as database:
            assert database.find() == [made(1)]
    with closing(sqlite3.connect(path)) as other:
        assert other.execute("SELECT value FROM dlc_meta WHERE name = 'version'").fetchall() == [("2",)]
        assert other.execute("SELECT more FROM dlc_records").fetchall() == [(None,)]


def test_a_failed_change_leaves_the_older_version(tmp_path, monkeypatch):
    path = tmp_path / "records.db"
    with Database(path) as database:
        database.add(made(1))

    def fail(connection) -> None:
        connection.execute(text("DELETE FROM dlc_records"))
        connection.execute(text("ALTER TABLE nothing ADD COLUMN more TEXT"))

    monkeypatch.setattr(schema, "VERSION", 2)
    monkeypatch.setattr(schema, "MIGRATIONS", {1: fail})
    with pytest.raises(DatabaseError):
        Database(path)
    monkeypatch.undo()
    with Database(path) as database:
        assert database.find() == [made(1)]


def test_a_row_that_something_else_wrote_is_left_out(tmp_path):
    path = tmp_path / "records.db"
    with Database(path) as database:
        database.add_all([made(1), made(2)])
        with closing(sqlite3.connect(path)) as other, other:
            other.execute("UPDATE dlc_records SET point = '[1' WHERE time = 1")
        with pytest.warns(RecordsWarning, match="row 1 of .* is left out: .* no record"):
            assert database.find() == [made(2)]


@pytest.mark.parametrize(
    "fields",
    [
        {"kernel": "'; DROP TABLE dlc_records; --"},
        {"state": "best"},
        {"seconds": float("nan")},
        {"seconds": -1.0},
        {"extents": (1 << 70,)},
        {"point": {"a": 3}},
        {"trace": "x" * (5 << 20)},
        {"target": "a\0b"},
        {"name": "\ud800"},
        {"notes": {"a": object()}},
        {"state": CHOSEN, "outcome": "crash"},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_illegal_records_are_refused(tmp_path, fields):
    with Database(tmp_path / "records.db") as database:
        with pytest.raises(RecordError):
            database.add(made(1, **fields))
        assert database.find() == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_forked_process_has_connections_of_its_own(tmp_path):
    with Database(tmp_path / "records.db") as database:
        database.add(made(1))
        child = os.fork()
        if child == 0:
            os._exit(0 if database.add(made(2)) else 1)
        assert os.waitpid(child, 0)[1] == 0
        database.add(made(3))
        assert len(database.find()) == 3


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """The URL of a PostgreSQL server that runs for these tests, and `control("start")` and others."""
    pytest.importorskip("psycopg", reason="the package psycopg is missing")
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    initdb = shutil.which("initdb") or (str(found[-1]) if found else None)
    if initdb is None:
        pytest.skip("PostgreSQL is not installed")
    programs, folder = Path(initdb).parent, tmp_path_factory.mktemp("postgresql")
    as_user = {}
    if os.geteuid() == 0:  # the server refuses to run as root
        import pwd

        try:
            user = pwd.getpwnam("postgres")
        except KeyError:
            pytest.skip("the server refuses to run as root, and there is no user postgres")
        folder = Path(tempfile.mkdtemp(dir="/tmp"))  # that of pytest is closed to other users
        os.chown(folder, user.pw_uid, user.pw_gid)
        as_user = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]

    def run(*words: str) -> None:
        done = subprocess.run(words, capture_output=True, text=True, cwd=folder, timeout=120, **as_user)
        assert done.returncode == 0, done.stdout + done.stderr

    data = folder / "data"
    run(initdb, "-D", str(data), "-U", "tuner", "--auth=trust", "-E", "UTF8", "--no-sync")
    options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c fsync=off"

    def control(action: str) -> None:
        run(str(programs / "pg_ctl"), "-D", str(data), "-l", str(folder / "log"), "-o", options, "-w", action)

    control("start")
    try:
        yield f"postgresql://tuner@127.0.0.1:{port}/postgres", control
    finally:
        run(str(programs / "pg_ctl"), "-D", str(data), "-m", "immediate", "stop")
        shutil.rmtree(folder, ignore_errors=True)


def test_a_postgresql_server_keeps_records_of_many_writers(server):
    server, _ = server
    writers = [writer(server, 1000 * number, 20) for number in range(3)]
    for each in writers:
        _, errors = each.communicate(timeout=120)
        assert (each.returncode, errors) == (0, "")
    with Database(server) as database:
        assert len(database.find()) == 60
        before = database.state()
        chosen = made(7, state=CHOSEN, default_seconds=2e-6)
        assert database.add(chosen)
        assert not database.add(chosen)
        assert database.best(chosen.kernel, "llvm") == chosen
        assert database.state() != before
        assert database.forget(kernel=chosen.kernel) == 2


def test_records_are_kept_while_a_server_is_down(server, tmp_path, monkeypatch):
    url, control = server
    url = url.replace("tuner@", "tuner:secret@")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    func = double()
    with Database(url) as database:
        database.forget()
        database.add(record_of(func))
        with config.override({RECORDS_URL: url}):
            origin = dlc.build(func, TARGET).explain().kernels[0].origin
            assert origin.startswith("postgresql://127.0.0.1/postgres: 1.5 µs")
            control("stop")
            with pytest.warns(RecordsWarning, match="1 records are in"):
                database.add(made(1))
            database.add(made(2))
            assert len(left(tmp_path / "dlc")) == 1
            monkeypatch.setattr("dlc_tune.records.sources._made", {})
            with pytest.warns(RecordsWarning, match="are not used"):
                assert dlc.build(func, TARGET).explain().kernels[0].rule == "cpu.map"
        control("start")
        assert database.add(made(3))
        assert left(tmp_path / "dlc") == []
        assert database.find()[1:] == [made(1), made(2), made(3)]


def test_an_unfinished_line_of_a_killed_process_is_set_apart(tmp_path):
    file = tmp_path / "records.db.unwritten-1-x.jsonl"
    file.write_text(f"{to_line(made(1))}\n{to_line(made(2))[:500]}")
    with Database(tmp_path / "records.db") as database:
        assert database.find() == [made(1)]
    assert left(tmp_path) == ["records.db.unwritten-1-x.refused"]
