"""A vendor's measure in place of the clock."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from dlc_tune.measuring.build import build_file
from dlc_tune.measuring.execute import Run
from dlc_tune.measuring.job import OK, WRONG, Job
from dlc_tune.measuring.noise import Repeats
from dlc_tune.measuring.vendor import Measure
from dlc_tune.measuring.worker import compare_task, run_task
from dlc_tune.task import Task

from dlc_core.diag import UsageError
from dlc_core.hooks import hookimpl
from dlc_core.plugin.registry import fresh_registry

backend_llvm = pytest.importorskip("dlc_backend_llvm.plugin", reason="the kernels run on the LLVM backend")
TARGET = "llvm -num-threads=1"
REPEATS: list[int] = []


def operations(exe: Any, inputs: Sequence[np.ndarray], repeat: int) -> tuple[list[float], Any]:
    """The predicted cycles, as a cycle counter would return them."""
    REPEATS.append(repeat)
    return [exe.explain().kernels[0].cycles] * repeat, exe(*inputs)


def plugin_of(measure: Measure) -> Any:
    return SimpleNamespace(DLC_API="0.1", dlc_measures=hookimpl(lambda: [measure]))


@pytest.fixture
def jobs(llvm_task: Task, tmp_path: Path) -> tuple[Job, str, Job, str]:
    """A kernel by its rule, and by a slow schedule, with their artefacts."""
    schedule = llvm_task.schedule()
    schedule.unroll(schedule.split(schedule.get_loops(schedule.get_blocks()[-1])[-1], [None, 4])[1])
    fast = Job(llvm_task.func, TARGET)
    slow = Job(llvm_task.func, TARGET, schedule.trace.tidied().to_json())
    paths = [tmp_path / "fast.dlc", tmp_path / "slow.dlc"]
    build_file(fast, paths[0])
    build_file(slow, paths[1])
    return fast, str(paths[0]), slow, str(paths[1])


def test_costs_are_those_of_the_measure(jobs: tuple[Job, str, Job, str]) -> None:
    job, path, _, _ = jobs
    REPEATS.clear()
    with fresh_registry({"llvm": backend_llvm, "vendor": plugin_of(Measure("llvm", operations))}):
        ran = run_task(job, path, False, Repeats(), None)
        cycles = Run(Path(path), job).exe.explain().kernels[0].cycles
    assert ran.costs == (cycles,)
    assert ran.unit == "cycles"
    assert REPEATS == [1]
    with fresh_registry({"llvm": backend_llvm}):
        assert run_task(job, path, False, Repeats(), None).unit == "seconds"
        assert run_task(job, path, False, Repeats(), None).digest == ran.digest


def test_deterministic_costs_are_compared_without_noise(jobs: tuple[Job, str, Job, str]) -> None:
    fast, fast_path, slow, slow_path = jobs
    with fresh_registry({"llvm": backend_llvm, "vendor": plugin_of(Measure("llvm", operations))}):
        better = compare_task(fast, fast_path, slow, slow_path, False, 1.0)
        worse = compare_task(slow, slow_path, fast, fast_path, False, 1.0)
        equal = compare_task(fast, fast_path, fast, fast_path, False, 1.0)
    assert better.state == worse.state == equal.state == OK
    assert better.is_faster
    assert better.noise == 0
    assert better.ratio == better.candidate[0] / better.default[0] < 1
    assert not worse.is_faster
    assert equal.ratio == 1
    assert not equal.is_faster


def test_costs_with_noise_are_interleaved(jobs: tuple[Job, str, Job, str]) -> None:
    fast, fast_path, slow, slow_path = jobs
    rng = np.random.default_rng(0)

    def noisy(exe: Any, inputs: Sequence[np.ndarray], repeat: int) -> tuple[list[float], Any]:
        costs, outputs = operations(exe, inputs, repeat)
        return [cost * (1 + 0.05 * rng.random()) for cost in costs], outputs

    measure = Measure("llvm", noisy, unit="ticks", deterministic=False)
    with fresh_registry({"llvm": backend_llvm, "vendor": plugin_of(measure)}):
        found = compare_task(fast, fast_path, slow, slow_path, False, 10.0)
    assert found.is_faster
    assert len(found.candidate) == len(found.default) >= 8
    assert found.noise > 0


def test_wrong_results_are_refused(jobs: tuple[Job, str, Job, str]) -> None:
    fast, fast_path, slow, slow_path = jobs
    wrong = iter([0.0, 1.0])

    def broken(exe: Any, inputs: Sequence[np.ndarray], repeat: int) -> tuple[list[float], Any]:
        return [1.0], exe(*inputs) + next(wrong)

    with fresh_registry({"llvm": backend_llvm, "vendor": plugin_of(Measure("llvm", broken))}):
        found = compare_task(fast, fast_path, slow, slow_path, False, 1.0)
    assert found.state == WRONG
    assert not found.is_faster


@pytest.mark.parametrize("costs", [[], [-1.0], [float("nan")], [float("inf")]])
def test_costs_that_are_none_are_refused(jobs: tuple[Job, str, Job, str], costs: list[float]) -> None:
    job, path, _, _ = jobs
    measure = Measure("llvm", lambda exe, inputs, repeat: (costs, exe(*inputs)))
    with (
        fresh_registry({"llvm": backend_llvm, "vendor": plugin_of(measure)}),
        pytest.raises(UsageError, match="the measure of 'llvm' returned the costs"),
    ):
        run_task(job, path, False, Repeats(), None)
