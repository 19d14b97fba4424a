"""Rounds of several searches: which kernels, in which order their candidates are asked for, built and run."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from dlc_tune.measuring.batch import MOST_BUILT, Batch, Begun
from dlc_tune.measuring.job import OK, Job, Outcome
from dlc_tune.model import LEAST_HOPE, ModelTuner, _Kernel
from dlc_tune.rounds import Round
from dlc_tune.search import KernelSearch
from dlc_tune.spaces.decisions import SPACE as DECISIONS
from dlc_tune.store import NoStore
from dlc_tune.strategies.random import STRATEGY as RANDOM
from dlc_tune.task import Task
from dlc_tune.tasks import Part


class Here:
    """A measurer of this machine that takes jobs one by one."""

    is_here = True

    def __init__(self, failing: bool = False):
        self.order, self.failing = [], failing

    def measure(self, jobs):
        for number, job in enumerate(jobs):
            self.order.append(job.trace is None)
            if self.failing and number > 1:
                raise KeyboardInterrupt
            yield number, Outcome(OK, (1.0 + number,))


def search_of(task: Task, measurer: Here) -> KernelSearch:
    return KernelSearch(task, [DECISIONS], RANDOM, measurer, NoStore())


def test_the_default_comes_first_and_all_learn(llvm_task):
    measurer = Here()
    searches = [search_of(llvm_task, measurer), search_of(replace(llvm_task, name="other"), measurer)]
    Round({searches[0]: 2, searches[1]: 3}, measurer).run(float("inf"))
    assert measurer.order == [True, False, False, True, False, False, False]
    assert [each.trials for each in searches] == [2, 3]
    assert [each.default.best for each in searches] == [1.0, 4.0]
    assert [len(each.best) for each in searches] == [2, 3]


def test_no_candidate_is_proposed_after_the_end(llvm_task):
    measurer = Here()
    search = search_of(llvm_task, measurer)
    Round({search: 8}, measurer).run(time.monotonic() - 1)
    assert measurer.order == [True]
    assert search.trials == 0


def test_results_before_an_interrupt_count(llvm_task):
    measurer = Here(failing=True)
    search = search_of(llvm_task, measurer)
    with pytest.raises(KeyboardInterrupt):
        Round({search: 8}, measurer).run(float("inf"))
    assert len(search.best) == 1


def test_candidates_wait_for_their_default(llvm_task, tmp_path):
    default = Job(llvm_task.func, "llvm")
    jobs = [replace(default, trace="a"), default, replace(default, trace="b")]
    batch = Batch(iter(jobs))
    assert [batch.ask() for _ in range(4)] == [True, True, True, False]
    assert not batch.is_over
    batch.todo.clear()
    assert batch.is_over
    batch.add_built(Begun(2, None, None, tmp_path / "2"), None)
    assert batch.runnable() is None
    batch.add_built(Begun(0, None, None, tmp_path / "0"), None)
    assert batch.runnable().number == 0  # it came before the default
    batch.built.pop(0)
    batch.has_ended(1)
    assert batch.runnable().number == 2


def test_artefacts_that_wait_are_limited(llvm_task, tmp_path, monkeypatch):
    batch = Batch(iter([Job(llvm_task.func, "llvm", str(n)) for n in range(MOST_BUILT)]))
    while batch.ask():
        pass
    file = tmp_path / "artefact"
    file.write_bytes(b"1")
    for number in reversed(range(MOST_BUILT)):
        assert not batch.is_full
        batch.add_built(Begun(number, None, None, file), None)
    assert batch.is_full
    assert [each.number for each in batch.built] == list(range(MOST_BUILT))
    batch.built = batch.built[:2]
    assert not batch.is_full
    monkeypatch.setattr("dlc_tune.measuring.batch.MOST_BYTES", 2)
    assert batch.is_full


def test_time_beyond_the_roofline_is_what_a_round_may_save(llvm_task):
    def kernel(milliseconds: float, roofline: float | None) -> _Kernel:
        part = Part(llvm_task, milliseconds, 1.0, roofline)
        return _Kernel(part, search_of(llvm_task, Here()))

    assert kernel(4.0, 1.0).expected_gain == 3.0
    assert kernel(4.0, 3.9).expected_gain == pytest.approx(0.1)
    assert kernel(4.0, 5.0).expected_gain == pytest.approx(4 * LEAST_HOPE)
    assert 0 < kernel(4.0, None).expected_gain < 4.0
    slow = kernel(4.0, 1.0)
    slow.search.default = Outcome(OK, (1.0,))
    slow.note_round(None)
    assert slow.expected_gain == 1.5


def test_kernels_with_less_room_wait(llvm_task):
    tuner = ModelTuner(lambda: None, [DECISIONS], RANDOM, Here())
    rooms = (8.0, 1.0, 5.0, 4.0, 3.0, 2.5)
    tuner._kernels = [
        _Kernel(Part(llvm_task, room, 1.0, 0.0), search_of(llvm_task, tuner._measurer)) for room in rooms
    ]
    assert [each.part.milliseconds for each in tuner._next_kernels()] == [8.0, 5.0, 4.0, 3.0]
    tuner._kernels[0].part = Part(llvm_task, 16.0, 1.0, 0.0)
    assert [each.part.milliseconds for each in tuner._next_kernels()] == [16.0, 5.0, 4.0]
