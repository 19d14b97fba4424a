"""A tuner that is killed or interrupted: what was measured is kept, and no process is left."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest
from dlc_tune.records.database import Database

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are watched through /proc")
WAIT = 120.0
"""Seconds for a busy machine; nothing waits so long otherwise."""


def children(pid: int) -> set[int]:
    """All processes below a process."""
    found: set[int] = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, IndexError, ValueError):
                continue
            if parent == pid:
                found |= {int(entry.name)} | children(int(entry.name))
    return found


def counted(database: Path) -> int:
    try:
        with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
            return int(connection.execute("select count(*) from dlc_records").fetchone()[0])
    except sqlite3.Error:
        return 0


def until(holds, what: str) -> None:
    end = time.monotonic() + WAIT
    while not holds():
        assert time.monotonic() < end, what
        time.sleep(0.05)


def begun(database: Path, least: int) -> subprocess.Popen[str]:
    """A tuner in a process of its own that has recorded some trials."""
    program = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "import dlc_core as dlc\n"
        "from dlc_core.testing.networks import cifar, feed\n"
        "if __name__ == '__main__':\n"
        "    found = dlc.tune(cifar(), 'llvm', seconds=600, space='decisions', strategy='random',\n"
        "                     graph=False, batch=2, inputs=[feed(cifar())])\n"
        "    print('interrupted' if found.interrupted else 'ended', found.trials)\n"
    )
    script = database.with_name("run.py")
    script.write_text(program)
    environment = {**os.environ, "DLC_RECORDS_URL": str(database)}
    process = subprocess.Popen(
        [sys.executable, str(script)], env=environment, stdout=subprocess.PIPE, text=True
    )
    until(lambda: counted(database) >= least or process.poll() is not None, "nothing was recorded")
    assert process.poll() is None
    return process


def test_a_killed_tuner_loses_the_trial_under_way_only(tmp_path):
    database = tmp_path / "records.db"
    process = begun(database, 3)
    below = children(process.pid)
    assert below
    recorded = counted(database)
    process.kill()
    process.communicate(timeout=WAIT)
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in below), "processes of the tuner are left")
    with Database(database) as records:
        assert len(records.find()) >= recorded
    process = begun(database, recorded + 1)  # the next run goes on
    process.kill()
    process.communicate(timeout=WAIT)
    with Database(database) as records:
        tried = [each.trace for each in records.find(kernel=records.find()[0].kernel)]
    assert len(set(tried)) == len(tried)


def test_an_interrupted_tuner_ends_in_order(tmp_path):
    database = tmp_path / "records.db"
    process = begun(database, 2)
    below = children(process.pid)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=WAIT)
    assert process.returncode == 0
    assert out.startswith("interrupted")
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in below), "processes of the tuner are left")
    assert counted(database) >= 2
