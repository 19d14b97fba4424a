"""The choice among candidates by comparisons in their model, and what is withdrawn at the end."""

from __future__ import annotations

import numpy as np
import pytest
from dlc_tune import comparing_kernels, selecting, verifying
from dlc_tune.comparing_kernels import compare_kernels, times_kernels
from dlc_tune.measuring.comparing import Ratios
from dlc_tune.measuring.job import OK, Comparison, Outcome
from dlc_tune.model_result import ModelResult
from dlc_tune.records.record import CHOSEN
from dlc_tune.search import KernelSearch, Result
from dlc_tune.selecting import ROUNDS, Selection, tuned_model
from dlc_tune.space import Candidate, candidate
from dlc_tune.spaces.decisions import SPACE as DECISIONS
from dlc_tune.strategies.random import STRATEGY as RANDOM
from dlc_tune.strategy import Tried
from dlc_tune.tasks import tasks_of
from dlc_tune.verifying import Verification

from dlc_core.testing.networks import cifar, feed

TARGET = "llvm"
FOREVER = float("inf")
MOST = 3
"""Candidates of each kernel."""


@pytest.fixture(scope="module")
def tasks():
    return tasks_of(cifar(), TARGET, inputs=[feed(cifar())], runs=1)


class Kept:
    """A store in memory."""

    def __init__(self):
        self.records, self.forgotten = [], []

    def add(self, record):
        self.records.append(record)

    def of_kernel(self, kernel, target=None):
        return []

    def forget(self, **equal):
        self.forgotten.append(equal["kernel"])
        return 1


def ratios(ratio: float, noise: float = 0.01) -> Ratios:
    return Ratios((ratio,), (1.0,), ratio, ratio - noise, ratio + noise)


@pytest.fixture(scope="module")
def candidates(tasks):
    """Some candidates of the two slowest kernels."""
    found = []
    for part in tasks.parts[:2]:
        made = {}
        for option in range(40):
            one = candidate(DECISIONS, part.task, lambda q, option=option: option % len(q.options))
            if isinstance(one, Candidate):
                made.setdefault(one.trace.to_json(), one)
            if len(made) == MOST:
                break
        assert len(made) == MOST
        found.append([*made.values()])
    return found


def searches_of(tasks, candidates, store, count: int = MOST):
    """Searches whose candidates took 0.5, 0.6, ... of the default's time alone."""
    found = []
    for part, made in zip(tasks.parts, candidates):
        search = KernelSearch(part.task, [DECISIONS], RANDOM, None, store)
        search.default = Outcome(OK, (1.0,))
        search.best = [Tried(one, 0.5 + 0.1 * n) for n, one in enumerate(made[:count])]
        found.append(search)
    return found


def compared(monkeypatch, answer):
    """Let `answer(candidates by key)` be the comparison in the model, and note its arguments."""
    asked = []

    def fake(self, tried):
        asked.append(tried)
        return answer(tried, len(asked))

    monkeypatch.setattr(Selection, "_compared", fake)
    return asked


def test_kernels_of_a_model_are_compared_by_their_own_times(tasks):
    assert times_kernels(tasks.exe, tasks.inputs)
    exe, names = tuned_model(tasks, {})
    defaults = {part.task.key: part.task.name for part in tasks.parts}
    assert {key: names[key] for key in defaults} == defaults
    pairs = {key: (name, name) for key, name in defaults.items()} | {"none": ("none", "none")}
    wrong, found = compare_kernels(exe, tasks.exe, tasks.inputs, pairs, 0.05)
    assert wrong == ""
    assert found.keys() == defaults.keys()
    for part in tasks.parts:
        spent = np.median(found[part.task.key].default)
        assert 0 < spent < 0.2 * max(1.0, part.milliseconds)  # seconds, on a busy machine too


def test_models_with_other_results_are_not_timed(tasks, monkeypatch):
    monkeypatch.setattr(comparing_kernels, "disagreement", lambda *_: "all")
    names = {part.task.key: (part.task.name,) * 2 for part in tasks.parts}
    wrong, found = compare_kernels(tasks.exe, tasks.exe, tasks.inputs, names, 0.05)
    assert "all" in wrong
    assert found == {}


def test_the_fastest_of_the_candidates_is_chosen(tasks, candidates, monkeypatch):
    """In the model the second candidate of the first kernel is best, and none of the second kernel."""
    store = Kept()
    first, second = searches_of(tasks, candidates, store)
    times = {each.candidate.trace.to_json(): r for each, r in zip(first.best, (0.9, 0.7, 0.8))}

    def answer(tried, _):
        return {k: ratios(times.get(t.candidate.trace.to_json(), 1.0)) for k, t in tried.items()}

    asked = compared(monkeypatch, answer)
    one, other = Selection(tasks, [first, second]).run(FOREVER)
    assert [len(tried) for tried in asked] == [2, 2, 2]
    assert one.chosen is not None
    assert one.chosen.trace == first.best[1].candidate.trace.to_json()
    assert one.ratio == 0.7
    assert other.chosen is None
    assert "not faster" in other.why
    assert [record.state for record in store.records] == [CHOSEN]


def test_the_budget_ends_with_the_first_candidates(tasks, candidates, monkeypatch):
    searches = searches_of(tasks, candidates, Kept())
    asked = compared(monkeypatch, lambda tried, _: {key: ratios(1.0) for key in tried})
    Selection(tasks, searches).run(0.0)
    assert len(asked) == 1
    assert len(asked[0]) == 2
    compared(monkeypatch, lambda tried, _: {})
    assert ROUNDS > 1
    results = Selection(tasks, searches).run(0.0)
    assert all("budget" in each.why for each in results)


def test_kernels_that_are_slower_beside_the_others_are_dropped(tasks, candidates, monkeypatch):
    store = Kept()
    searches = searches_of(tasks, candidates, store, count=1)
    keys = [each.task.key for each in searches]

    def answer(tried, number):
        return {key: ratios(1.1 if number == 2 and key == keys[1] else 0.8) for key in tried}

    asked = compared(monkeypatch, answer)
    kept, dropped = Selection(tasks, searches).run(FOREVER)
    assert len(asked) == 2
    assert kept.chosen is not None
    assert dropped.chosen is None
    assert "1.1" in dropped.why
    assert [record.kernel for record in store.records] == keys[:1]


def test_a_candidate_with_wrong_results_is_found_among_others(tasks, candidates, monkeypatch):
    searches = searches_of(tasks, candidates, Kept(), count=1)
    bad = searches[0].task.key
    monkeypatch.setattr(selecting, "tuned_model", lambda tasks, traces: (traces, dict.fromkeys(traces, "")))

    def fake(exe, default, inputs, names, seconds):
        return ("the results differ", {}) if bad in exe else ("", {key: ratios(0.5) for key in names})

    monkeypatch.setattr(selecting, "compare_kernels", fake)
    wrong, right = Selection(tasks, searches).run(FOREVER)
    assert wrong.chosen is None
    assert "differ" in wrong.why
    assert right.chosen is not None


def verified(tasks, candidates, monkeypatch, answer, decided=()):
    """Verify two chosen kernels; `answer(number of schedules)` is the comparison of the whole model."""
    store = Kept()
    searches = searches_of(tasks, candidates, store, count=1)
    comparisons = [Comparison(OK, (ratio,), (1.0,), ratio, 0.01, True) for ratio in (0.9, 0.5)]
    results = tuple(each.choose(each.best[0], c) for each, c in zip(searches, comparisons))
    monkeypatch.setattr(verifying, "tuned_model", lambda tasks, traces: (len(traces), {}))
    monkeypatch.setattr(verifying, "compare_models", lambda exe, *_: answer(exe))
    milliseconds = {each.task.key: 1.0 for each in results}
    check = Verification(tasks, tasks.exe, store)
    return check.run(ModelResult(results, decided), milliseconds), results, store


def test_the_least_gains_are_withdrawn_first(tasks, candidates, monkeypatch):
    found, (small, large), store = verified(
        tasks, candidates, monkeypatch, lambda count: ("", ratios(1.2 if count == 2 else 0.9))
    )
    assert [each.kernel for each in found.chosen] == [large.task.key]
    assert store.forgotten == [small.task.key]
    assert found.ratio == 0.9
    assert "1.2" in found.withdrawn
    assert "withdrawn" in found.results[0].why


def test_everything_is_withdrawn_if_no_part_is_faster(tasks, candidates, monkeypatch):
    found, results, store = verified(
        tasks, candidates, monkeypatch, lambda count: ("", ratios(1.2)), decided=("one",)
    )
    assert found.chosen == ()
    assert found.decided == ()
    assert set(store.forgotten) == {each.task.key for each in results}


def test_nothing_is_withdrawn_from_a_faster_model(tasks, candidates, monkeypatch):
    found, results, store = verified(tasks, candidates, monkeypatch, lambda count: ("", ratios(0.9)))
    assert len(found.chosen) == 2
    assert isinstance(results[0], Result)
    assert (found.withdrawn, store.forgotten) == ("", [])
