"""Large results are stored in the background: the states of the report, waiting, and failures."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import numpy as np
import pytest

from dlc_core.config import config
from dlc_core.driver import storing
from dlc_core.driver.cache import Store
from tests.test_cache import X, compiled


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(storing, "LARGE", 0)
    with config.override(cache=True, cache_dir=tmp_path / "cache"):
        yield tmp_path / "cache"
        storing.wait()


@pytest.fixture
def gate(monkeypatch):
    """Storing goes on when this event is set."""
    event, put = threading.Event(), Store.put

    def slow(self, *arguments):
        assert event.wait(60)
        put(self, *arguments)

    monkeypatch.setattr(Store, "put", slow)
    yield event
    event.set()


def test_a_model_runs_while_it_is_stored(gate):
    exe = compiled()
    assert exe.report["cache"] == "storing"
    np.testing.assert_array_equal(exe(X), 2 * X)
    assert not Store().entries()
    gate.set()
    exe.settle()
    assert exe.report["cache"] == "stored"
    assert len(Store().entries()) == 1
    np.testing.assert_array_equal(exe(X), 2 * X)


def test_the_next_compile_and_measurements_wait(gate):
    exe = compiled()
    threading.Timer(0.1, gate.set).start()
    assert compiled().report["cache"] == "hit"
    assert exe.report["cache"] == "stored"
    gate.clear()
    other = compiled(3.0)
    assert other.report["cache"] == "storing"
    threading.Timer(0.1, gate.set).start()
    other.time_evaluator(number=1, repeat=1)(X)
    assert other.report["cache"] == "stored"


def test_weights_that_no_call_holds_yet_are_mapped(gate):
    exe = compiled()
    before = exe.weights
    assert not before.flags.writeable, "a change would make the stored file wrong"
    gate.set()
    exe.settle()
    assert exe.weights is not before
    np.testing.assert_array_equal(exe.weights, before)
    np.testing.assert_array_equal(exe(X), 2 * X)


def test_failures_are_in_the_report(own_folder, monkeypatch):
    own_folder.write_text("a file")
    exe = compiled()
    exe.settle()
    assert exe.report["cache"].startswith("not stored: the cache folder")
    np.testing.assert_array_equal(exe(X), 2 * X)
    own_folder.unlink()

    start = threading.Thread.start

    def refuse(self):
        if self.name == "dlc-store":
            raise RuntimeError("can't start new thread")
        start(self)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert compiled().report["cache"] == "stored"


SCRIPT = """
import sys
sys.path.insert(0, sys.argv[1])
from dlc_core.driver import storing
from tests.test_cache import compiled
storing.LARGE = 0
print(compiled().report["cache"])
"""


def test_the_end_of_a_process_waits(own_folder, request):
    variables = {**os.environ, "DLC_CACHE": "1", "DLC_CACHE_DIR": str(own_folder)}
    command = [sys.executable, "-c", SCRIPT, str(request.config.rootpath)]
    done = subprocess.run(command, env=variables, check=True, capture_output=True, text=True)
    assert done.stdout.strip() in ("storing", "stored")
    assert not done.stderr
    assert len(Store().entries()) == 1
    assert compiled().report["cache"] == "hit"
