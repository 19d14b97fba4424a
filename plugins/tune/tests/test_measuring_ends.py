"""However a tuning process ends, its builders and runners end too, and leave no files."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

SCRIPT = """
# No guard of __main__: workers must not run this file again.
import os
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

from dlc_core import te
from dlc_tune.measuring.job import Job
from dlc_tune.measuring.local import LocalMeasurer
from dlc_tune.testing import faults

signal.signal(signal.SIGINT, signal.default_int_handler)  # the tests may run where it is ignored
x = te.placeholder((64,), name="x")
func = te.create_prim_func([x], [te.compute((64,), lambda i: x[i] + 1.0, "y")], "add")
measurer = LocalMeasurer(timeout=60.0, setup=faults)
job = Job(func, "llvm -num-threads=1")
((_, outcome),) = measurer.measure([job])
assert outcome.state == "ok", outcome
pids = [process.pid for process in (*measurer._builders, *measurer._runners)]
servers = {int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1]) for pid in pids}
print(*pids, *servers, measurer._folder, flush=True)
if sys.argv[1] == "server":
    for server in servers:
        os.kill(server, signal.SIGKILL)
    time.sleep(1.0)
    ((_, outcome),) = measurer.measure([job])
    assert outcome.state == "ok", outcome
if sys.argv[1] == "hang":
    list(measurer.measure([replace(job, func=replace(func, name="run_hang"))]))
"""
PATIENCE = 60.0

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks processes up in /proc")


@contextmanager
def script(tmp_path: Path, mode: str) -> Iterator[tuple[subprocess.Popen[str], list[int], Path]]:
    """A tuning script: its process, those that it started, and its folder of files."""
    file = tmp_path / "script.py"
    file.write_text(SCRIPT)
    # Sockets need a short path.
    with (
        tempfile.TemporaryDirectory(prefix="dlc-", dir="/tmp") as folder,
        subprocess.Popen(
            [sys.executable, file, mode],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "TMPDIR": folder},
            start_new_session=True,
        ) as process,
    ):
        try:
            assert process.stdout is not None
            words = process.stdout.readline().split()
            if not words:
                assert process.stderr is not None
                pytest.fail(process.stderr.read())
            yield process, [int(word) for word in words[:-1]], Path(words[-1])
        finally:
            process.kill()


def all_end(pids: list[int], folder: Path) -> bool:
    """Whether all processes end, and no folder is left, also none of `multiprocessing`."""
    limit = time.monotonic() + PATIENCE
    while time.monotonic() < limit:
        if not any(Path(f"/proc/{pid}").exists() for pid in pids) and not list(folder.parent.iterdir()):
            return True
        time.sleep(0.05)
    return False


def test_a_script_without_a_guard_runs_once(tmp_path: Path) -> None:
    with script(tmp_path, "end") as (process, pids, folder):
        assert process.wait(PATIENCE) == 0
        assert all_end(pids, folder)


def test_an_interrupt_ends_all_at_once(tmp_path: Path) -> None:
    with script(tmp_path, "hang") as (process, pids, folder):
        time.sleep(1.0)  # the builder and the runner take the job
        start = time.monotonic()
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == -signal.SIGINT
        assert time.monotonic() - start < PATIENCE
        assert all_end(pids, folder)
        assert process.stderr is not None
        assert "KeyboardInterrupt" in process.stderr.read()


def test_a_killed_script_leaves_nothing(tmp_path: Path) -> None:
    with script(tmp_path, "hang") as (process, pids, folder):
        time.sleep(1.0)
        process.kill()
        process.wait(PATIENCE)
        assert all_end(pids, folder)


def test_a_killed_fork_server_is_replaced(tmp_path: Path) -> None:
    with script(tmp_path, "server") as (process, pids, folder):
        assert process.wait(PATIENCE) == 0, process.stderr and process.stderr.read()
        assert all_end(pids, folder)
