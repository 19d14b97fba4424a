"""Building, running and comparing in processes of their own."""

from __future__ import annotations

import errno
import os
import signal
import tempfile
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

from dlc_core import te
from dlc_core.backend.compiler import compiler_problem
from dlc_core.diag import UsageError
from dlc_core.ir.expr import Var

TARGET = "llvm -num-threads=1"


def opencl_problem() -> str | None:
    """Why no OpenCL device can be used here."""
    reason = "the OpenCL backend is not installed"
    found: str | None = pytest.importorskip("dlc_backend_opencl.platforms", reason=reason).problem()
    return found


DEVICES = {"c": compiler_problem, "opencl": opencl_problem}


@pytest.fixture(scope="module")
def measurer() -> Iterator[LocalMeasurer]:
    with LocalMeasurer(timeout=20.0, compare_seconds=1.0, memory_bytes=3 << 30, setup=faults) as made:
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
    with LocalMeasurer(timeout=60.0, setup=faults) as measurer:
        list(measurer.measure([job_of(llvm_task)]))  # starts the processes
        measurer.timeout = 3.0
        ((_, outcome),) = measurer.measure([job_of(llvm_task, "run_hang")])
        assert outcome.state == TIMEOUT
        assert "3 s" in outcome.why
        measurer.timeout = 60.0
        ((_, outcome),) = measurer.measure([job_of(llvm_task)])
        assert outcome.state == OK


@pytest.mark.parametrize("stage", ["build", "run"])
def test_a_killed_process_loses_only_its_job(llvm_task: Task, stage: str) -> None:
    with LocalMeasurer(timeout=20.0, setup=faults) as measurer:
        list(measurer.measure([job_of(llvm_task)]))
        process = (measurer._builders if stage == "build" else measurer._runners)[0]
        victim = process.pid

        def kill() -> None:
            while not list(Path(measurer._folder).glob(f"{victim}-2.task")):
                time.sleep(0.05)
            time.sleep(0.5)  # the process takes the task
            os.kill(victim, signal.SIGKILL)

        threading.Thread(target=kill).start()
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


def test_symbolic_dims_are_measured_at_the_sizes_of_the_job(measurer: LocalMeasurer) -> None:
    n = Var("n")
    x = te.placeholder((n, 16), name="x")
    func = te.create_prim_func([x], [te.compute((n, 16), lambda i, j: te.exp(x[i, j]), "y")], "grow")
    jobs = [Job(func, TARGET, sizes={"n": size}) for size in (2, 4000)]
    outcomes = dict(measurer.measure([*jobs, Job(func, TARGET)]))
    assert [outcomes[number].state for number in range(3)] == [OK, OK, BUILD]
    assert (outcomes[1].best or 0) > 10 * (outcomes[0].best or 1)
    assert "no size for the dim 'n'" in outcomes[2].why


@pytest.mark.parametrize("target", ["reference", "c", "opencl"])
def test_other_targets(measurer: LocalMeasurer, task: Task, target: str) -> None:
    problem = DEVICES[target]() if target in DEVICES else None
    if problem:
        pytest.skip(problem)
    default = Job(task.func, target)
    outcomes = dict(measurer.measure([default, Job(task.func, target, unrolled(task))]))
    assert outcomes[0].state == OK, outcomes[0].why
    if target == "c":
        assert outcomes[1].state == OK, outcomes[1].why
        comparison = measurer.compare(default, Job(task.func, target, unrolled(task)))
        assert comparison.state == OK, comparison.why
        assert comparison.same_results
    else:  # the reference has no schedules, and a launch needs threads
        assert outcomes[1].state == BUILD
        assert outcomes[1].why


def test_a_folder_with_too_long_a_path_is_named(tmp_path, monkeypatch, llvm_task):
    folder = tmp_path / ("long" * 20)
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    message = "the folder for temporary files has a path of"
    with LocalMeasurer() as measurer, pytest.raises(UsageError, match=message):
        list(measurer.measure([job_of(llvm_task)]))
