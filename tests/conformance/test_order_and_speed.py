"""Level 0 finds devices that run commands out of order. Level 5 measures the fraction of the declared
roofline.
"""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dlc_core.backend.compiler import compiler_problem
from dlc_core.driver import compile as compile_model
from dlc_core.driver import find_target
from dlc_core.graph.node import param
from dlc_core.ir.expr import Var
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.plugin.registry import fresh_registry
from dlc_core.runtime.executable import Executable
from dlc_core.target.cost import Work
from dlc_core.testing.cases import module_of
from dlc_core.testing.levels.device import DeviceLevel
from dlc_core.testing.levels.device_models import DENSE, layers
from dlc_core.testing.levels.events import check_events, long_launch
from dlc_core.testing.levels.layers import Subject
from dlc_core.testing.levels.speed import limit_of, seconds_of
from dlc_core.testing.parts import executable_on
from dlc_core.testing.where import Where
from tests.backend.test_simulated import Device, Plugin

pytestmark = pytest.mark.skipif(compiler_problem() is not None, reason=str(compiler_problem()))


@pytest.fixture
def toy() -> Any:
    with fresh_registry({"toy": Plugin()}):
        yield find_target("toy")


class Slow(Device):
    """Each launch takes at least `seconds`, so that copies and events that do not wait are detected."""

    seconds = 0.05

    def run(self, *args: Any) -> None:
        time.sleep(self.seconds)
        super().run(*args)


class Hasty(Slow):
    def read(self, handle: int, out: memoryview, offset: int = 0) -> None:
        """Copy without waiting."""
        wanted = np.frombuffer(out, np.uint8)
        wanted[:] = self.memory(handle)[offset : offset + wanted.nbytes]


class Never(Slow):
    class Event:
        done = False

        def wait(self, timeout: float | None = None) -> bool:
            return False

    def record(self) -> Any:
        return self.Event()


def subject_on(device: Any, exe: Executable) -> Subject:
    """The subject of tests of an executable on another device."""
    moved = executable_on(exe, device)
    return Subject(DENSE, moved, moved, Where(1, 1))


def test_order_is_tested(toy: Any) -> None:
    subject = subject_on(Slow(), compile_model(layers(), toy))
    level = DeviceLevel()
    level.test_copies_follow_launches(subject)
    level.test_launches_are_independent(subject)
    level.test_events_are_reached_in_order(subject)


def test_copies_that_do_not_wait_are_found(toy: Any) -> None:
    subject = subject_on(Hasty(), compile_model(layers(), toy))
    with pytest.raises(AssertionError):
        DeviceLevel().test_copies_follow_launches(subject)


def test_direct_copies_that_do_not_wait_are_found(toy: Any) -> None:
    class Eager(Slow):
        def copy(self, handle: int, source: Any, from_handle: int, size: int) -> bool:
            self.memory(handle)[:size] = source.memory(from_handle)[:size]
            return True

    compiled = compile_model(layers(), toy)
    for device, found in ((Slow(), nullcontext()), (Eager(), pytest.raises(AssertionError))):
        with found:
            DeviceLevel().test_direct_copies_follow_launches(subject_on(device, compiled), device.alloc)


def test_events_that_never_complete_are_found(toy: Any) -> None:
    subject = subject_on(Never(), compile_model(layers(), toy))
    with pytest.raises(AssertionError):
        DeviceLevel().test_events_are_reached_in_order(subject)


class Event:
    """An event that is always done."""

    done = True

    def wait(self, timeout: float | None = None) -> bool:
        return True


class Slower(Slow):
    """Launches take far longer than a busy machine keeps a thread from running."""

    seconds = 0.25


class Early(Slower):
    def record(self) -> Any:
        return Event()


class Before(Slower):
    """Its events complete when the last launch begins."""

    def launch(self, *args: Any) -> None:
        self.last = super().record()
        super().launch(*args)

    def record(self) -> Any:
        return self.last


class Polled(Slower):
    """A device whose waits are right, but whose events report completion too early."""

    def record(self) -> Any:
        made = super().record()
        return SimpleNamespace(done=True, wait=made.wait)


@pytest.fixture
def open_rows(toy: Any) -> Any:
    return compile_model(layers(Var("rows")), toy)


def test_events_in_time_pass(open_rows: Any) -> None:
    run, left = long_launch(executable_on(open_rows, Slow()))
    assert left > 0.02
    check_events(run, left)


@pytest.mark.parametrize(
    ("device", "message"),
    [
        (Early, r"event.wait\(\) returns before"),
        (Before, r"event.wait\(\) returns before"),
        (Polled, "event.done is"),
    ],
)
def test_events_that_complete_early_are_found(open_rows: Any, device: Any, message: str) -> None:
    exe = executable_on(open_rows, device())
    with pytest.raises(AssertionError, match=message):
        check_events(*long_launch(exe))


def test_cycles_are_the_time_if_a_device_counts_them(toy: Any) -> None:
    x = param("x", tensor_type((64, 64)))
    exe = compile_model(module_of(std.relu(x), [x]), toy, cache=False)
    seconds, by_cycles = seconds_of(exe, toy)
    assert by_cycles
    assert seconds_of(exe, toy)[0] == seconds
    work = Work(64 * 64, 64 * 64, 0, 8 * 64 * 64, 0)
    assert 0.01 < limit_of(toy, work, 1) / seconds <= 1
    timed, by_cycles = seconds_of(compile_model(module_of(std.relu(x), [x]), "reference"), toy)
    assert timed > 0
    assert not by_cycles


SUITE = """
from dlc_core.plugin.registry import fresh_registry
from dlc_core.runtime.executable import Executable
from dlc_core.testing import conformance_suite
from tests.backend.test_simulated import Device, Plugin

Device.memory_bytes = 1 << 30
INSTALLED = fresh_registry({"toy": Plugin()})
INSTALLED.__enter__()
TestToy = conformance_suite("toy", levels=("device", "speed"), fraction=0.5)
"""


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("-k", "copy or aligned"), "1 skipped, 26 deselected"),
        (
            ("--dlc-level=5", "-k", "copy", "--dlc-fraction=2"),
            "0.900 of the declared roofline, 2.0 is",
        ),
    ],
)
def test_speed_is_measured_on_demand(options: tuple[str, ...], message: str, tmp_path: Path) -> None:
    (tmp_path / "test_toy.py").write_text(SUITE)
    root = str(Path(__file__).resolve().parents[2])
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_toy.py", *options]
    script = f"import sys; sys.path.insert(0, {root!r}); import pytest; sys.exit(pytest.main(sys.argv[1:]))"
    command = [sys.executable, "-c", script, *command[3:]]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert message in done.stdout, done.stdout + done.stderr
