"""The search for one kernel and for a model, with a measurer whose costs are known."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256

import pytest
from dlc_tune.choices import defaults
from dlc_tune.measuring.job import BUILD, CRASH, LOST, OK, Comparison, Outcome
from dlc_tune.ranking.notes import FEATURES, row_of
from dlc_tune.records.record import CHOSEN, TRIED
from dlc_tune.search import KernelSearch
from dlc_tune.space import candidate
from dlc_tune.spaces.decisions import SPACE as DECISIONS
from dlc_tune.spaces.mutations import SPACE as MUTATIONS
from dlc_tune.strategies.evolutionary import EvolutionaryStrategy
from dlc_tune.strategies.random import STRATEGY as RANDOM
from dlc_tune.tuner import tune

import dlc_core as dlc
from dlc_core.diag import UsageError

DEFAULT = 1.0


class Measured:
    """A measurer whose costs are a hash of the trace: some below the default's, a few failures."""

    def __init__(self, gains=True, same=True, noise=0.01):
        self.gains, self.same, self.noise = gains, same, noise
        self.jobs = []
        self.compared = []
        self.closed = False

    def cost(self, job):
        if job.trace is None:
            return DEFAULT
        part = int.from_bytes(sha256(job.trace.encode()).digest()[:4], "little") / 2**32
        return 0.5 + part if self.gains else 1.01 + part

    def measure(self, jobs):
        for number, job in reversed(list(enumerate(jobs))):
            self.jobs.append(job)
            cost = self.cost(job)
            if job.trace is not None and int(cost * 1e6) % 10 == 0:
                yield number, Outcome(CRASH if int(cost * 1e7) % 2 else BUILD, why="by chance")
            else:
                yield number, Outcome(OK, (cost, cost * 1.1))

    def compare(self, candidate, default):
        self.compared.append(candidate)
        ratio = self.cost(candidate) / self.cost(default)
        return Comparison(OK, (self.cost(candidate),), (DEFAULT,), ratio, self.noise, self.same, "")

    def close(self):
        self.closed = True


class Kept:
    """A store in memory."""

    def __init__(self):
        self.records = []

    def add(self, record):
        self.records.append(record)

    def of_kernel(self, kernel, target=None):
        return [each for each in self.records if each.kernel == kernel]

    def forget(self, **equal):
        kept = [r for r in self.records if any(getattr(r, k) != v for k, v in equal.items())]
        gone, self.records = len(self.records) - len(kept), kept
        return gone


class Blind:
    """A ranker that knows nothing."""

    def scores(self, task, candidates):
        return [0.0] * len(candidates)

    def learn(self, task, tried):
        pass


def search_of(task, measurer, store, spaces=(DECISIONS,), strategy=RANDOM):
    return KernelSearch(task, spaces, strategy, measurer, store)


def run(search, rounds=100):
    while rounds and search.go_on(4):
        rounds -= 1
    return search.conclude()


class Vanishing(Measured):
    """A measurer that loses the jobs of all candidates."""

    def measure(self, jobs):
        for number, outcome in super().measure(jobs):
            yield number, outcome if jobs[number].trace is None else Outcome(LOST, why="no worker")


def test_lost_candidates_are_not_recorded(task):
    """They are tried again by the next search."""
    store = Kept()
    result = run(search_of(task, Vanishing(), store), rounds=2)
    assert (result.trials, result.failed) == (8, 8)
    assert store.records == []


def test_the_fastest_candidate_is_chosen_and_recorded(task):
    measurer, store = Measured(), Kept()
    result = run(search_of(task, measurer, store))
    tried = [each for each in store.records if each.state == TRIED]
    (chosen,) = (each for each in store.records if each.state == CHOSEN)
    assert all(row_of(each.notes[FEATURES]) is not None for each in store.records)
    assert result.chosen is chosen
    assert chosen.seconds == min(each.seconds for each in tried if each.seconds is not None)
    assert chosen.kernel == task.key
    assert chosen.target == str(task.target)
    assert chosen.default_seconds == DEFAULT
    assert result.ratio == pytest.approx(chosen.seconds)
    assert len(tried) == result.trials
    assert task.replayed(candidate(DECISIONS, task, defaults).trace).attrs["rule"] == "tuned"


def test_failures_are_recorded_and_not_chosen(task):
    measurer, store = Measured(), Kept()
    result = run(search_of(task, measurer, store, (DECISIONS, MUTATIONS)))
    failed = [each for each in store.records if each.outcome != OK]
    assert result.failed == len(failed) > 0
    assert all(each.seconds is None for each in failed)


def test_the_default_is_kept_if_nothing_is_faster(task):
    measurer, store = Measured(gains=False), Kept()
    result = run(search_of(task, measurer, store))
    assert result.chosen is None
    assert result.ratio == 1.0
    assert "default" in result.why
    assert not [each for each in store.records if each.state == CHOSEN]


@pytest.mark.parametrize(
    ("measurer", "why"),
    [(Measured(noise=2.0), "not faster beyond the noise"), (Measured(same=False), "the results differ")],
)
def test_a_candidate_must_be_faster_beyond_the_noise_with_the_same_results(task, measurer, why):
    result = run(search_of(task, measurer, Kept()))
    assert result.chosen is None
    assert why in result.why
    assert 1 <= len(measurer.compared) <= 3


def test_a_search_goes_on_from_records(task):
    store, first = Kept(), Measured()
    run(search_of(task, first, store), rounds=2)
    second = Measured()
    run(search_of(task, second, store), rounds=2)
    known = {job.trace for job in first.jobs} - {None}
    assert known
    assert not known & {job.trace for job in second.jobs}


def test_records_of_other_machines_and_compilers_are_not_used(task):
    store, first = Kept(), Measured()
    run(search_of(task, first, store), rounds=2)
    store.records = [replace(each, machine="another") for each in store.records]
    second = Measured()
    run(search_of(task, second, store), rounds=2)
    assert {job.trace for job in first.jobs} & {job.trace for job in second.jobs} > {None}


def test_spaces_are_searched_in_order_and_no_schedule_is_measured_twice(task):
    measurer = Measured(gains=False)
    search = search_of(task, measurer, Kept(), (DECISIONS, MUTATIONS), EvolutionaryStrategy(Blind))
    run(search, rounds=6)
    assert {each.candidate.space for each in search.best} == {"decisions", "mutations"}
    traces = [job.trace for job in measurer.jobs]
    assert len(set(traces)) == len(traces)


def test_an_unmeasurable_default_ends_the_search(task):
    class Broken(Measured):
        def measure(self, jobs):
            for number, _ in enumerate(jobs):
                yield number, Outcome(CRASH, why="SIGILL")

    search = search_of(task, Broken(), Kept())
    assert not search.go_on(4)
    result = search.conclude()
    assert result.chosen is None
    assert "SIGILL" in result.why


def test_tune_of_a_kernel_keeps_to_its_trials(task):
    measurer = Measured()
    snapshots = []
    result = dlc.tune(
        task.func,
        task.target,
        trials=10,
        measurer=measurer,
        keep=False,
        space="decisions",
        strategy="random",
        progress=snapshots.append,
    )
    assert result.trials == 10
    assert not measurer.closed  # it is the caller's
    assert snapshots[-1].lines[0].trials == 10


@pytest.mark.parametrize("options", [{"seconds": -1}, {"trials": 0}, {"batch": 0}])
def test_budgets_that_are_none_are_refused(task, options):
    with pytest.raises(UsageError, match="no budget"):
        tune(task.func, task.target, measurer=Measured(), keep=False, **options)


def test_a_space_without_its_methods_is_refused(task):
    with pytest.raises(UsageError, match="no search space"):
        tune(task.func, task.target, space=(object(),), measurer=Measured(), keep=False)
