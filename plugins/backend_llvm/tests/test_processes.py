"""Compiles in several processes: the same bytes, the same errors, no remaining processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dlc_core as dlc
from dlc_core.config import config
from dlc_core.diag import DlcError
from dlc_core.driver import processes
from dlc_core.passes.tir import prim_func_pass
from dlc_core.testing.networks import cifar, feed, keywords
from dlc_core.tir.stmt import PrimFunc

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="compiles fork on Linux alone")
HERE = os.getpid()


@pytest.fixture(autouse=True)
def _alone(request: pytest.FixtureRequest) -> None:
    if threading.active_count() > 1 and request.function is not test_in_a_process_with_one_thread:
        pytest.skip("another thread runs: the last test runs this one in a process of its own")


def compiled(processes: int | None = 2, model: Any = keywords, **options: Any) -> Any:
    with config.override(compile_processes=processes):
        return dlc.compile(model(), "llvm", num_threads=1, **options)


def children() -> bool:
    """Whether this process has child processes, running or zombies."""
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return False
    return True


def descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def same(a: Any, b: Any) -> bool:
    equal: bool = (
        a.source("llvm") == b.source("llvm")
        and a.artifact.code == b.artifact.code
        and np.array_equal(a.weights, b.weights)
        and str(a.explain()) == str(b.explain())
    )
    return equal


@pytest.fixture(scope="module")
def alone() -> Any:
    return compiled(1)


@pytest.mark.parametrize("processes", [2, 3])
def test_code_is_the_same_for_any_number_of_processes(alone: Any, processes: int) -> None:
    exe = compiled(processes)
    assert (alone.report["processes"], exe.report["processes"]) == (1, processes)
    assert same(exe, alone)
    x = feed(keywords())
    np.testing.assert_array_equal(exe(x), alone(x))
    assert not children()


def test_workers_generate_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """The parent waits for a forked worker, which must do all other work."""
    own: list[str] = []
    kernels: list[int] = []
    compile_one = processes._Team._compiled

    def slow(team: Any, name: str) -> Any:
        if os.getpid() == HERE:
            own.append(name)
            kernels.append(len(team.order))
            time.sleep(1.0)
        return compile_one(team, name)

    monkeypatch.setattr(processes._Team, "_compiled", slow)
    compiled(2)
    assert len(own) <= kernels[0] // 2


def misbehaving(monkeypatch: pytest.MonkeyPatch, act: Callable[[], None]) -> None:
    """Make forked workers call a function at their first kernel."""
    compile_one = processes._Team._compiled

    def compiled_so(team: Any, name: str) -> Any:
        if os.getpid() != HERE:
            act()
        return compile_one(team, name)

    monkeypatch.setattr(processes._Team, "_compiled", compiled_so)


def fail() -> None:
    raise ValueError("a copy fails")


@pytest.mark.parametrize(
    "act",
    [
        fail,
        lambda: os.kill(os.getpid(), signal.SIGKILL),
        lambda: os._exit(3),
        lambda: time.sleep(60),
    ],
    ids=["fails", "killed", "ends", "stuck"],
)
def test_missing_results_of_workers_are_generated_here(
    alone: Any, monkeypatch: pytest.MonkeyPatch, act: Callable[[], None]
) -> None:
    misbehaving(monkeypatch, act)
    monkeypatch.setattr(processes, "PATIENCE", (0.0, 1.0))
    start = time.monotonic()
    exe = compiled(3)
    assert same(exe, alone)
    assert time.monotonic() - start < 30
    assert not children()


def test_unpicklable_work_is_done_here(alone: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(result: object, func: object) -> bytes:
        raise TypeError("no bytes")

    monkeypatch.setattr(processes, "encode_result", refuse)
    assert same(compiled(2), alone)


def test_without_workers_code_is_generated_here(alone: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused() -> int:
        raise BlockingIOError("no more processes")

    before = descriptors()
    monkeypatch.setattr(os, "fork", refused)
    exe = compiled(3)
    assert exe.report["processes"] == 1
    assert same(exe, alone)
    assert descriptors() == before


def message(processes: int, **options: Any) -> str:
    with pytest.raises(DlcError) as caught:
        compiled(processes, **options)
    return "\n".join(line for line in str(caught.value).splitlines() if "reproducer" not in line)


@prim_func_pass(position="end tir")
def picky(func: PrimFunc) -> PrimFunc:
    """A code generator that refuses GEMM."""
    if "matmul" in func.name:
        raise ValueError(f"no {func.name}")
    return func


def test_errors_are_those_of_one_process() -> None:
    with dlc.PassContext(passes=[picky()]):
        assert "no fused_matmul" in message(1)
        assert message(2) == message(1)
    assert not children()


def test_errors_of_the_code_generator(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    from dlc_backend_llvm.emit import module as emission

    monkeypatch.setattr(emission.Unit, "text", lambda unit: "no code")
    with config.override(reproducer_dir=tmp_path):
        assert message(2) == message(1)


def test_an_interrupt_ends_the_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    compile_one = processes._Team._compiled

    def interrupted(team: Any, name: str) -> Any:
        if os.getpid() == HERE:
            raise KeyboardInterrupt
        time.sleep(60)
        return compile_one(team, name)

    monkeypatch.setattr(processes._Team, "_compiled", interrupted)
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        compiled(3)
    assert not children()
    assert time.monotonic() - start < 30


def test_compiling_with_ignored_sigchld(alone: Any) -> None:
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        assert same(compiled(2), alone)
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_progress_reports_each_step_once() -> None:
    def steps(processes: int) -> list[tuple[str, int, int]]:
        reported: list[tuple[str, int, int]] = []
        compiled(processes, progress=lambda p: reported.append((p.name, p.done, p.total)))
        return reported

    assert steps(2) == steps(1)


class Watch:
    name = "watch"

    def before(self, one: object, module: object, context: object) -> None:
        """Nothing."""

    after = before


@prim_func_pass(position="end main")
def looks(func: PrimFunc) -> PrimFunc:
    return func


def test_small_modules_and_hooked_pipelines_use_one_process() -> None:
    assert compiled(0).report["processes"] == 1
    assert compiled(2, watchers=[Watch()]).report["processes"] == 1
    with dlc.PassContext(passes=[looks()]):
        assert compiled(2).report["processes"] == 1
    with config.override(compile_processes=2):
        assert processes.processes_for(1) == 1
        assert processes.processes_for(processes.MOST_KERNELS + 1) == 1
    assert processes.processes_for(2 * processes.EACH - 1) == 1


class Monitor(threading.Thread):
    """A thread that waits for an event in its outermost function, or deeper."""

    def __init__(self, deeper: bool) -> None:
        super().__init__()
        self.stop = threading.Event()
        self.deeper = deeper

    def run(self) -> None:
        (self.wait if self.deeper else self.stop.wait)()

    def wait(self) -> None:
        self.stop.wait()


@pytest.mark.parametrize(("deeper", "used"), [(False, 2), (True, 1)])
def test_with_other_threads_one_process_is_used_unless_they_hold_no_locks(deeper: bool, used: int) -> None:
    other = Monitor(deeper)
    other.start()
    try:
        assert compiled(2, cifar).report["processes"] == used
    finally:
        other.stop.set()
        other.join()


def test_in_a_process_with_one_thread() -> None:
    """Workers of pytest-xdist have threads, so compiles do not fork in them."""
    if threading.active_count() == 1:
        pytest.skip("no other thread runs: the tests above have run here")
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-m", "not slow", __file__]
    done = subprocess.run(words, capture_output=True, text=True, cwd=Path(__file__).parents[3], timeout=300)
    assert done.returncode == 0, done.stdout
    assert " 1 skipped" in done.stdout.splitlines()[-1], done.stdout
