"""Which jobs are built and run at the same time, on which cores; cold caches."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from dlc_tune.measuring import execute
from dlc_tune.measuring.build import build_file
from dlc_tune.measuring.cores import Cores
from dlc_tune.measuring.execute import Run
from dlc_tune.measuring.job import OK, Job
from dlc_tune.measuring.local import LocalMeasurer
from dlc_tune.measuring.noise import Repeats
from dlc_tune.measuring.worker import Answer, Ran, build_task
from dlc_tune.task import Task

TARGET = "llvm -num-threads=1"


class FakeTask:
    def __init__(self, future: Future[Any], answer: Answer) -> None:
        self.future, self.found = future, answer


class FakeProcess:
    """A process whose tasks take some hundredths of a second and note who works meanwhile."""

    def __init__(self, working: list[str], events: list[tuple[str, list[str], Sequence[int]]]) -> None:
        self.working, self.events = working, events
        self.lock = threading.Lock()

    def begin(self, function: Any, args: Sequence[Any], *, cores: Sequence[int], **options: Any) -> FakeTask:
        is_build = function is build_task
        kind = "build" if is_build else "run"
        with self.lock:
            self.events.append((kind, list(self.working), cores))
            self.working.append(kind)
        future: Future[Any] = Future()

        def work() -> None:
            time.sleep(0.02 if is_build else 0.05)
            with self.lock:
                self.working.remove(kind)
            future.set_result(None)

        threading.Thread(target=work).start()
        return FakeTask(future, Answer(OK, None if is_build else Ran((1.0,), "seconds", "", "")))

    def has_vanished(self, task: FakeTask) -> bool:
        return False

    def end(self, task: FakeTask) -> Answer:
        return task.found

    def close(self) -> None: ...


def events_of(
    monkeypatch: pytest.MonkeyPatch, task: Task, cores: int, threads: int, builders: int, runners: int
) -> list[tuple[str, list[str], Sequence[int]]]:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)), raising=False)
    working: list[str] = []
    events: list[tuple[str, list[str], Sequence[int]]] = []
    with LocalMeasurer(builders, runners) as measurer:
        vars(measurer)["_builders"] = [FakeProcess(working, events) for _ in range(builders)]
        vars(measurer)["_runners"] = [FakeProcess(working, events) for _ in range(runners)]
        outcomes = dict(measurer.measure([Job(task.func, TARGET, threads=threads)] * 8))
    assert sorted(outcomes) == list(range(8))
    assert all(each.state == OK for each in outcomes.values())
    assert [kind for kind, _, _ in events].count("build") == 8
    return events


@pytest.mark.parametrize(("cores", "threads", "runners"), [(2, 2, 1), (1, 1, 1), (4, 2, 2)])
def test_nothing_is_built_while_a_kernel_runs_on_all_cores(
    monkeypatch: pytest.MonkeyPatch, llvm_task: Task, cores: int, threads: int, runners: int
) -> None:
    for kind, meanwhile, given in events_of(monkeypatch, llvm_task, cores, threads, 2, runners):
        assert not (meanwhile if kind == "run" else "run" in meanwhile)
        assert len(given) == (threads if kind == "run" else cores)


@pytest.mark.parametrize(("cores", "threads", "runners"), [(2, 1, 1), (8, 3, 2)])
def test_builders_work_while_runners_do_on_cores_of_their_own(
    monkeypatch: pytest.MonkeyPatch, llvm_task: Task, cores: int, threads: int, runners: int
) -> None:
    events = events_of(monkeypatch, llvm_task, cores, threads, 2, runners)
    assert any("run" in meanwhile for kind, meanwhile, _ in events if kind == "build")
    of_builders = {core for kind, _, given in events if kind == "build" for core in given}
    of_runners = {core for kind, _, given in events if kind == "run" for core in given}
    assert of_builders.isdisjoint(of_runners)
    assert len(of_runners) == threads * runners


@pytest.mark.parametrize(("cores", "threads"), [(2, 2), (4, 1)])
def test_jobs_are_asked_for_while_others_are_built(
    monkeypatch: pytest.MonkeyPatch, llvm_task: Task, cores: int, threads: int
) -> None:
    """And never while a kernel runs on all cores."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)), raising=False)
    working: list[str] = []
    meanwhile: list[list[str]] = []

    def proposed() -> Iterator[Job]:
        for number in range(8):
            meanwhile.append(list(working))
            yield Job(llvm_task.func, TARGET, str(number) if number else None, threads=threads)

    with LocalMeasurer(2, 1) as measurer:
        vars(measurer)["_builders"] = [FakeProcess(working, []) for _ in range(2)]
        vars(measurer)["_runners"] = [FakeProcess(working, [])]
        numbers = [number for number, _ in measurer.measure(proposed())]
    assert sorted(numbers) == list(range(8))
    assert numbers[0] == 0  # the default
    assert any("build" in each for each in meanwhile)
    assert threads == 1 or not any("run" in each for each in meanwhile)


def test_runners_have_the_last_cores() -> None:
    cores = Cores(tuple(range(10, 18)), 3, 2)
    assert cores.runner(0) == (15, 16, 17)
    assert cores.runner(1) == (12, 13, 14)
    assert cores.builders == (10, 11)


def test_cold_caches_are_flushed_before_each_call(
    monkeypatch: pytest.MonkeyPatch, llvm_task: Task, tmp_path: Path
) -> None:
    job, path = Job(llvm_task.func, TARGET), tmp_path / "kernel.dlc"
    build_file(job, path)
    flushed: list[int] = []
    monkeypatch.setattr(execute, "flush_caches", lambda: flushed.append(1))
    assert Run(path, job).costs(Repeats(least=3, most=3))
    assert not flushed
    run = Run(path, job, flush=True)
    assert len(run.costs(Repeats(least=3, most=3))) == 3
    assert run.number == 1
    assert len(flushed) >= 3


def test_devices_time_their_kernels(monkeypatch: pytest.MonkeyPatch, llvm_task: Task, tmp_path: Path) -> None:
    pytest.importorskip("dlc_backend_opencl", reason="a device with memory of its own is needed")
    path = tmp_path / "kernel.dlc"
    here, there = Job(llvm_task.func, TARGET), Job(llvm_task.func, "opencl_simulated")
    build_file(there, path)
    run = Run(path, there)
    assert (execute.device_seconds(run.exe, run.inputs, 2) or 0) > 0
    monkeypatch.setattr(execute, "device_seconds", lambda exe, inputs, number: 7e-3 * number)
    assert run.costs(Repeats(least=2)) == (7e-3, 7e-3)
    build_file(here, path)
    assert min(Run(path, here).costs(Repeats(least=2))) < 7e-3


def test_flushing_writes_more_than_the_last_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execute, "cache_sizes", lambda: (1 << 10, 1 << 12, 1 << 16))
    monkeypatch.setattr(execute, "_evictor", None)
    execute.flush_caches()
    first = execute._evictor
    assert first is not None
    assert first.nbytes == 1 << 17
    assert first.max() == 1
    execute.flush_caches()
    assert execute._evictor is first
    assert first.min() == 2
