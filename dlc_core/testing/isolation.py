"""Isolation of the kit's tests in a separate process: a crash of that process is the failure of one test.

A crash in native code (a vendor's kernel, a driver) ends its process. So tests of `isolated` levels, and with
`--dlc-isolate` all tests that use a target, run in a worker: a pytest session over the same files, which runs
the requested tests. When it dies, the test is reported as failed, with the signal, the target, the running
case, and the Python stack. The next test gets a new worker.

With a debugger, tests are not isolated. Nor are they in the workers of pytest-xdist, which isolates tests
itself.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from itertools import takewhile
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import pytest

from dlc_core.runtime.guard.faults import reported
from dlc_core.testing import running
from dlc_core.testing.levels.base import case_of, owner_of
from dlc_core.testing.limits import HANG_FACTOR, case_seconds, scaled
from dlc_core.testing.properties import TEST

STACK_LINES = 14
"""The number of lines of the Python stack that are shown after a crash."""

END_SECONDS = 60.0
"""The time limit for the end of a worker, in seconds."""

POLL_SECONDS = 0.2
"""The seconds between two checks whether a worker is alive."""

FATAL, CURRENT = "Fatal Python error", "Current thread"
"""The beginnings of lines of Python's fault handler."""

RUNNER = f"{os.sep}_pytest{os.sep}"
"""A part of the paths of pytest's frames."""

WORKER = "import json, sys, pytest; sys.exit(pytest.main(json.loads(sys.argv.pop())))"
PLUGIN = ("-p", "dlc_core.testing.isolated")
START = "PYTEST_DLC_ISOLATED"
"""The environment variable with the address of the session that a worker serves."""

HINT = (
    "run the test alone to reproduce it; --check-bounds compiles kernels that check their accesses, "
    'exe.source() shows their code; see "A kernel that crashes" in the vendor guide'
)


def is_possible(config: pytest.Config) -> bool:
    """Whether tests can run in another process in this session."""
    alone = not hasattr(config, "workerinput") and not config.getoption("usepdb", False)
    return alone and os.name == "posix"


class Isolation:
    """The pytest plugin of a session. `isolated` are the tests that run in the worker."""

    def __init__(self, config: pytest.Config, isolated: list[pytest.Item]) -> None:
        self._config = config
        self._following = dict(zip(isolated, [*isolated[1:], None], strict=True))
        self._worker: _Worker | None = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
        if item not in self._following:
            return None
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        for report in self._reports(item):
            item.ihook.pytest_runtest_logreport(report=report)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        item.session._setupstate.teardown_exact(nextitem)  # tear down fixtures of tests in this process
        return True

    def pytest_sessionfinish(self) -> None:
        if self._worker is not None:
            self._worker.close()

    def _reports(self, item: pytest.Item) -> list[pytest.TestReport]:
        following = self._following[item]
        if self._worker is None:
            self._worker = _Worker(self._config)
        name = None if following is None else following.nodeid
        answer = self._worker.ask(item.nodeid, name, _patience(self._config, item))
        if answer is not None:
            return [
                self._config.hook.pytest_report_from_serializable(config=self._config, data=data)
                for data in answer
            ]
        worker, self._worker = self._worker, None
        return [_crash(self._config, item, worker)]


def _patience(config: pytest.Config, item: pytest.Item) -> float:
    """The seconds without progress after which a test is ended."""
    suite: Any = getattr(item, "cls", None)
    owner = owner_of(suite, getattr(item, "originalname", None) or item.name)
    with scaled(suite.settings.with_options(config).limit_factor * HANG_FACTOR):
        return case_seconds("" if owner is None else owner.level)


def _crash(config: pytest.Config, item: pytest.Item, worker: _Worker) -> pytest.TestReport:
    """The report of a test whose worker has died."""
    name = getattr(item, "originalname", None) or item.name
    suite: Any = getattr(item, "cls", None)
    owner = owner_of(suite, name)
    given = suite.settings.with_options(config)
    target = given.target
    ended = worker.ended or exit_text(worker.status())
    lines = [f"the process of the test {ended}", f"  target:     {target}"]
    if running := worker.last_test():
        lines.append(f"  running:    {running}")
    lines += [f"  at fault:   {line}" for line in worker.fault()]
    lines.append(f"  what to do: {HINT}")
    test = None if owner is None else [target, owner.level, case_of(owner, name), given.limit_factor]
    stack = worker.stack()
    worker.close()
    return pytest.TestReport(
        item.nodeid,
        item.location,
        dict.fromkeys(item.keywords, 1),
        "failed",
        "\n".join(lines),
        "call",
        [("stack of the process", stack)] if stack else [],
        user_properties=[] if test is None else [(TEST, test)],
    )


def exit_text(status: int) -> str:
    """A text for the exit status of a process. Negative ones are signals."""
    if status >= 0:
        return f"ended with exit code {status}"
    try:
        return f"died of {signal.Signals(-status).name} ({signal.strsignal(-status)})"
    except ValueError:
        return f"died of signal {-status}"


class _Worker:
    """The session that runs tests for this one."""

    def __init__(self, config: pytest.Config) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="dlc-isolated-")
        self._running = Path(self._folder.name) / "running"
        self._errors = Path(self._folder.name) / "errors"
        self._fault = Path(self._folder.name) / "fault"
        self.ended = ""
        """Why this process ended the worker, as text."""
        self._connection, other = Pipe()
        arguments = json.dumps([*PLUGIN, *map(str, config.invocation_params.args)])
        paths = {"running": str(self._running), "fault": str(self._fault)}
        start = json.dumps({**paths, "connection": other.fileno()})
        python_path = os.pathsep.join(filter(None, sys.path))
        with other, self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-c", WORKER, arguments],
                cwd=config.invocation_params.dir,
                env={**os.environ, "PYTHONPATH": python_path, START: start},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                pass_fds=[other.fileno()],
            )

    def ask(self, test: str, following: str | None, patience: float) -> list[dict[str, Any]] | None:
        """Run a test in the worker. Returns its reports as data, or None if the process has died. It is
        killed if no new case begins for `patience` seconds.
        """
        seen, since = b"", time.monotonic()
        try:
            self._connection.send((test, following))
            while not self._connection.poll(POLL_SECONDS):
                if self._process.poll() is not None and not self._connection.poll(0):
                    return None
                current = self._running.read_bytes() if self._running.exists() else b""
                if current != seen:
                    seen, since = current, time.monotonic()
                if seen and time.monotonic() - since > patience:
                    self.ended = (
                        f"was killed after {patience:g} s in one case; --dlc-limit-factor gives it more"
                    )
                    self._process.kill()
                    self._process.wait()
                    return None
            found: list[dict[str, Any]] = self._connection.recv()
        except (EOFError, OSError):
            return None
        return found

    def status(self) -> int:
        """The exit status of the process."""
        try:
            return self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()

    def last_test(self) -> str:
        """The test that was running, as text."""
        return running.read(self._running)

    def fault(self) -> list[str]:
        """The fault report: segments, the kernel and the address, as far as they are known."""
        found = reported(self._fault)
        texts = {segment: running.region_text(self._running, segment) for _, segment in found.segments}
        return found.lines(texts)

    def stack(self) -> str:
        """The worker's Python stack, or its last output."""
        lines = self._errors.read_text(errors="replace").splitlines()
        fatal = next((i for i, line in enumerate(lines) if line.startswith(FATAL)), None)
        if fatal is None:
            return "\n".join(lines[-STACK_LINES:])
        here = next((i for i in range(fatal, len(lines)) if lines[i].startswith(CURRENT)), fatal)
        frames = list(takewhile(lambda line: RUNNER not in line, lines[here : here + STACK_LINES]))
        return "\n".join([lines[fatal], *frames])

    def close(self) -> None:
        """End the worker, after it has torn down its fixtures."""
        self._connection.close()
        self.status()
        self._folder.cleanup()


__all__ = ["Isolation", "exit_text", "is_possible"]
