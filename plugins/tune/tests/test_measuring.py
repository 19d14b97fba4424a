"""Building, running and comparing in processes of their own."""

from __future__ import annotations

import errno
import os
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from dlc_tune.measuring.job import (
    BUILD,
    CRASH,
    MEMORY,
    OK,
    RUN,
    TIMEOUT,
    WRONG,
    Job,
)
from dlc_tune.measuring.local import LocalMeasurer
from dlc_tune.task import Task
from dlc_tune.testing import faults, full_disk

TARGET = "llvm -num-threads=1"


@pytest.fixture(scope="module")
def measurer() -> Iterator[LocalMeasurer]:
    with LocalMeasurer(timeout=20.0, compare_seconds=0.3, memory_bytes=3 << 30, setup=faults) as made:
        yield made


def job_of(task: Task, name: str = "product", trace: str | None = None) -> Job:
    return Job(replace(task.func, name=name), TARGET, trace, threads=1)


def unrolled(task: Task) -> str:
    """A schedule that the rules do not choose."""
    schedule = task.schedule()
    block = schedule.get_blocks()[-1]
    schedule.unroll(schedule.split(schedule.get_loops(block)[-1], [None, 4])[1])
    return schedule.trace.tidied().to_json()


def test_measures_the_default_and_a_trace(measurer: LocalMeasurer, llvm_task: Task) -> None:
    outcomes = dict(measurer.measure([job_of(llvm_task), job_of(llvm_task, trace=unrolled(llvm_task))]))
    assert sorted(outcomes) == [0, 1]
    for each in outcomes.values():
        assert each.state == OK, each.why
        assert each.seconds
        assert min(each.seconds) > 0
        assert each.best == min(each.seconds)
        assert each.build_seconds > 0
        assert each.run_seconds > 0


def test_a_trace_that_does_not_fit_is_refused(measurer: LocalMeasurer, llvm_task: Task) -> None:
    ((_, outcome),) = measurer.measure([job_of(llvm_task, trace='{"not": "a trace"}')])
    assert outcome.state == BUILD
    assert "no trace" in outcome.why
    assert outcome.best is None


@pytest.mark.parametrize(
    ("name", "state", "why"),
    [
        ("build_segfault", CRASH, "SIGSEGV"),
        ("run_segfault", CRASH, "SIGSEGV"),
        ("run_kill", CRASH, "SIGKILL"),
        ("run_abort", CRASH, "SIGABRT"),
        ("run_exit", CRASH, "exit status 0"),
        ("run_allocate", MEMORY, "MemoryError"),
        ("run_bad_alloc", MEMORY, "std::bad_alloc"),
        ("run_raise", RUN, "IndexError"),
        ("build_raise", BUILD, "IndexError"),
    ],
)
def test_a_failure_is_of_one_job(
    measurer: LocalMeasurer, llvm_task: Task, name: str, state: str, why: str
) -> None:
    jobs = [job_of(llvm_task), job_of(llvm_task, name), job_of(llvm_task)]
    outcomes = dict(measurer.measure(jobs))
    assert [outcomes[number].state for number in range(3)] == [OK, state, OK]
    assert why in outcomes[1].why


def test_a_process_that_hangs_is_ended(llvm_task: Task) -> None:
    with LocalMeasurer(timeout=4.0, setup=faults) as measurer:
        list(measurer.measure([job_of(llvm_task)]))  # starts the processes
        outcomes = dict(measurer.measure([job_of(llvm_task, "run_hang"), job_of(llvm_task)]))
    assert outcomes[0].state == TIMEOUT
    assert "4 s" in outcomes[0].why
    assert outcomes[1].state == OK


@pytest.mark.parametrize("stage", ["build", "run"])
def test_a_killed_process_loses_only_its_job(llvm_task: Task, stage: str) -> None:
    with LocalMeasurer(timeout=20.0, setup=faults) as measurer:
        list(measurer.measure([job_of(llvm_task)]))
        process = (measurer._builders if stage == "build" else measurer._runners)[0]
        victim = process.pid
        threading.Timer(1.0, os.kill, (victim, signal.SIGKILL)).start()
        outcomes = dict(measurer.measure([job_of(llvm_task, f"{stage}_hang"), job_of(llvm_task)]))
        assert process.pid != victim
    assert outcomes[0].state == CRASH
    assert "SIGKILL" in outcomes[0].why
    assert outcomes[1].state == OK


def test_an_idle_process_that_is_killed_loses_nothing(llvm_task: Task) -> None:
    with LocalMeasurer(timeout=20.0) as measurer:
        list(measurer.measure([job_of(llvm_task)]))
        for process in (*measurer._builders, *measurer._runners):
            os.kill(process.pid, signal.SIGKILL)
        ((_, outcome),) = measurer.measure([job_of(llvm_task)])
    assert outcome.state == OK


def test_close_leaves_no_process_and_no_file(llvm_task: Task) -> None:
    measurer = LocalMeasurer(timeout=20.0)
    list(measurer.measure([job_of(llvm_task)]))
    pids = [process.pid for process in (*measurer._builders, *measurer._runners)]
    folder = Path(measurer._folder)
    assert folder.exists()
    measurer.close()
    assert not folder.exists()
    assert not any(alive(pid) for pid in pids)


def test_a_full_disk_loses_only_jobs(llvm_task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    with LocalMeasurer(timeout=20.0, setup=full_disk) as measurer:
        outcomes = dict(measurer.measure([job_of(llvm_task)] * 2))
        assert [outcomes[number].state for number in range(2)] == [BUILD, BUILD]
        assert "too large" in outcomes[0].why
        assert measurer.compare(job_of(llvm_task), job_of(llvm_task)).state == BUILD

        def full(path: Path, content: bytes) -> int:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(Path, "write_bytes", full)
        ((_, outcome),) = measurer.measure([job_of(llvm_task)])
        assert outcome.state == BUILD
        assert "No space left" in outcome.why


def test_results_that_differ_from_the_default_are_wrong(measurer: LocalMeasurer, llvm_task: Task) -> None:
    trace = unrolled(llvm_task)
    jobs = [job_of(llvm_task), job_of(llvm_task, trace=trace), job_of(llvm_task, "run_wrong", trace)]
    outcomes = dict(measurer.measure(jobs))
    assert [outcomes[number].state for number in range(3)] == [OK, OK, WRONG]
    assert "differ" in outcomes[2].why
    assert outcomes[0].digest


def test_wrong_results_are_refused(measurer: LocalMeasurer, llvm_task: Task) -> None:
    comparison = measurer.compare(job_of(llvm_task, "run_wrong"), job_of(llvm_task))
    assert comparison.state == WRONG
    assert not comparison.is_faster
    assert "differ" in comparison.why


def test_compares_times_and_results(measurer: LocalMeasurer, llvm_task: Task) -> None:
    default, slow = job_of(llvm_task), job_of(llvm_task, trace=unrolled(llvm_task))
    comparison = measurer.compare(slow, default)
    assert comparison.state == OK, comparison.why
    assert comparison.same_results
    assert len(comparison.candidate) == len(comparison.default) >= 8
    assert comparison.ratio > 1
    assert not comparison.is_faster
    assert measurer.compare(default, slow).is_faster


def alive(pid: int) -> bool:
    for _ in range(20):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        time.sleep(0.1)
    return True
