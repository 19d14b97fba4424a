"""The search for one kernel: rounds of candidates, then a comparison with the default schedule.

    search = KernelSearch(task, spaces, strategy, measurer, database)
    while search.go_on(8):              a round: ask, build, run, record, tell
        ...
    result = search.conclude()          the best candidates against the default, interleaved

The spaces are searched one after the other; each learns from the results of those before. What is measured is
recorded at once, so nothing but the round under way is lost when the tuner ends. Later searches for the same
kernel go on from there.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from statistics import median

from dlc_core.schedule import Trace
from dlc_core.support.record import record
from dlc_core.version import __version__
from dlc_tune.choices import replay
from dlc_tune.measuring.job import LOST, OK, Comparison, Job, Measurer, Outcome
from dlc_tune.measuring.vendor import unit_of
from dlc_tune.ranking import FEATURES, features_text
from dlc_tune.records.family import family_of
from dlc_tune.records.record import CHOSEN, TRIED, Record, machine_of
from dlc_tune.space import Candidate, Space, candidate
from dlc_tune.store import NoStore, Store
from dlc_tune.strategy import Search, Strategy, Tried
from dlc_tune.task import Task

PATIENCE = 3
"""Rounds without a gain after which the search goes on to the next space."""
GAIN = 0.01
"""The part of the best time by which a candidate must be better to count as a gain."""
COMPARED = 3
"""How many of the best candidates are compared with the default at the end, until one is faster."""
PROMISING = 1.03
"""Candidates are compared if they take at most this multiple of the default's time: single measurements are
noisy in both directions."""


@record(frozen=True)
class Result:
    """The result of the search for one kernel.

    `chosen` is the record that compiles use from now on; None if nothing was faster than the default beyond
    the noise with the same results, and `why` says what was measured.
    """

    task: Task
    default: Outcome
    chosen: Record | None
    comparison: Comparison | None
    trials: int
    failed: int
    """Trials that could not be built or run."""
    why: str = ""

    def __str__(self) -> str:
        found = self.why if self.chosen is None else f"{self.ratio:.3f} of the default's time"
        return f"{self.task.name}: {self.trials} trials, {self.failed} failed: {found}"

    @property
    def ratio(self) -> float:
        """The time of the schedule in use over that of the default: 1 if nothing was chosen."""
        return 1.0 if self.chosen is None or self.comparison is None else self.comparison.ratio


@dataclass(eq=False)
class KernelSearch:
    """The state of a search."""

    task: Task
    spaces: Sequence[Space]
    strategy: Strategy
    measurer: Measurer
    store: Store = field(default_factory=NoStore)
    seed: int = 0
    trials: int = 0
    failed: int = 0
    default: Outcome | None = None
    best: list[Tried] = field(default_factory=list)
    """The measured candidates, the fastest first."""
    _waiting: list[Space] = field(default_factory=list)
    _search: Search | None = None
    _rounds_without_gain: int = 0
    _known: list[Tried] = field(default_factory=list)
    _has_ended: bool = False
    last_reason: str = ""
    """Why the last point of an exhausted search was not legal; empty if that is not known."""

    def __post_init__(self) -> None:
        self._waiting = [space for space in self.spaces if not space.fits(self.task)]
        self._has_ended = not self._waiting

    @property
    def has_ended(self) -> bool:
        """Whether there is nothing left to try, or the default cannot be measured."""
        return self._has_ended or (self.default is not None and self.default.state != OK)

    @property
    def unit(self) -> str:
        """The unit of measured costs."""
        return unit_of(self.task.target)

    @property
    def best_seconds(self) -> float | None:
        """The least measured cost, of the default or of a candidate."""
        costs = [self.default.best if self.default else None, self.best[0].seconds if self.best else None]
        return min((cost for cost in costs if cost is not None), default=None)

    def job(self, trace: Trace | None) -> Job:
        """The job that measures a schedule of the kernel; None is the default schedule."""
        task = self.task
        text = None if trace is None else trace.to_json()
        return Job(task.func, str(task.target), text, dict(task.settings), dict(task.sizes))

    def measure_default(self) -> Outcome:
        """Measure the schedule of the rules, once."""
        if self.default is None:
            ((_, self.default),) = self.measurer.measure([self.job(None)])
        return self.default

    def go_on(self, count: int) -> bool:
        """Try at most `count` candidates. Returns False if there are none left, or the default cannot be
        measured.
        """
        self.measure_default()
        if self.has_ended:
            return False
        asked = self.propose(count)
        found = self.measurer.measure([self.job(each.trace) for each in asked])
        self.learn([self.note(asked[number], outcome) for number, outcome in found])
        return not self.has_ended

    def propose(self, count: int) -> list[Candidate]:
        """At most `count` candidates to measure next; none if there are none left in any space."""
        while not self._has_ended:
            search = self._current()
            asked = [] if search is None else list(search.ask(count) or ())
            if asked:
                return asked
            self.last_reason = getattr(search, "why_not", "") or self.last_reason
            self._next_space()
        return []

    def note(self, made: Candidate, outcome: Outcome) -> Tried:
        """Record the outcome of a candidate."""
        self.trials += 1
        self.failed += outcome.state != OK
        if outcome.state != LOST:  # it says nothing about the candidate, which may be tried again
            self.store.add(self._record(made, TRIED, outcome, None))
        return Tried(made, outcome.best)

    def learn(self, tried: Sequence[Tried]) -> None:
        """Take the results of a round of candidates."""
        if not tried:
            return
        before = self.best_seconds
        search = self._current()
        if search is not None:
            search.tell(tried)
        self._known += tried
        self.best = sorted((*self.best, *(t for t in tried if t.seconds is not None)), key=_seconds)
        after = self.best_seconds
        gained = before is not None and after is not None and after < before * (1 - GAIN)
        self._rounds_without_gain = 0 if gained else self._rounds_without_gain + 1
        if self._rounds_without_gain >= PATIENCE:
            self._next_space()

    @property
    def promising(self) -> list[Tried]:
        """The candidates that are worth a comparison with the default, the fastest first."""
        default = None if self.default is None else self.default.best
        return [] if default is None else [t for t in self.best if _seconds(t) <= default * PROMISING]

    def conclude(self) -> Result:
        """Compare the best candidates with the default, and record the first one that is faster."""
        self.measure_default()
        comparison = None
        for each in self.promising[:COMPARED]:
            comparison = self.measurer.compare(self.job(each.candidate.trace), self.job(None))
            if comparison.is_faster:
                return self.choose(each, comparison)
        return self.keep_default(comparison)

    def choose(self, tried: Tried, comparison: Comparison) -> Result:
        """Record a candidate that a comparison found to be faster than the default."""
        chosen = self._record(tried.candidate, CHOSEN, Outcome(OK, comparison.candidate), comparison)
        self.store.add(chosen)
        return self._result(chosen, comparison)

    def keep_default(self, comparison: Comparison | None) -> Result:
        """The result if no candidate was faster; `comparison` is that of the best one."""
        return self._result(None, comparison, _why_not(self, comparison))

    def without_comparison(self, why: str) -> Result:
        """The result of a search whose best candidates were not compared."""
        return self._result(None, None, why)

    def _current(self) -> Search | None:
        if self._search is None and self._waiting:
            space = self._waiting[0]
            self._search = self.strategy.start(self.task, space, self.seed)
            earlier = self._known or list(self._recorded(space))
            if earlier:
                self._search.tell(earlier)
                self._known = self._known or earlier
                self.best = sorted((t for t in self._known if t.seconds is not None), key=_seconds)
        return self._search

    def _next_space(self) -> bool:
        del self._waiting[:1]
        self._search, self._rounds_without_gain = None, 0
        self._has_ended = not self._waiting
        return bool(self._waiting)

    @cached_property
    def earlier(self) -> tuple[Record, ...]:
        """The records of earlier searches on this machine, by this version of dlc."""
        machine = machine_of(self.task.context.target.describe())
        known = self.store.of_kernel(self.task.key, str(self.task.target.for_code()))
        return tuple(each for each in known if (each.machine, each.compiler) == (machine, __version__))

    def _recorded(self, space: Space) -> Iterator[Tried]:
        """The results of earlier searches in this space."""
        for each in self.earlier:
            if each.space != space.name:
                continue
            made = candidate(space, self.task, replay(each.point))
            if isinstance(made, Candidate):
                yield Tried(made, each.seconds if each.outcome == OK else None)

    def _record(self, made: Candidate, state: str, outcome: Outcome, comparison: Comparison | None) -> Record:
        task, description = self.task, self.task.context.target.describe()
        # The ratio of both is that of the interleaved comparison.
        usual = median(comparison.default) if comparison and comparison.default else None
        family, extents = family_of(task.func)
        return Record(
            kernel=task.key,
            target=str(task.target.for_code()),
            processor=task.target.identity,
            family=family,
            extents=extents,
            space=made.space,
            point=dict(made.point),
            trace=made.trace.to_json(),
            state=state,
            outcome=outcome.state,
            seconds=outcome.best if usual is None or comparison is None else comparison.ratio * usual,
            default_seconds=usual,
            noise=outcome.noise if comparison is None else comparison.noise,
            unit=self.unit,
            threads=description.cores,
            machine=machine_of(description),
            name=task.name,
            compiler=__version__,
            time=time.time(),
            # A cost model can then be trained on records without their kernels.
            notes={FEATURES: features_text(task, made)},
        )

    def _result(self, chosen: Record | None, comparison: Comparison | None, why: str = "") -> Result:
        return Result(self.task, self.measure_default(), chosen, comparison, self.trials, self.failed, why)


def _seconds(tried: Tried) -> float:
    return float("inf") if tried.seconds is None else tried.seconds


def _why_not(search: KernelSearch, comparison: Comparison | None) -> str:
    if search.default is not None and search.default.state != OK:
        return f"the default schedule could not be measured: {search.default.why}"
    if not search.best:
        reasons = [reason for space in search.spaces if (reason := space.fits(search.task))]
        if search.trials:
            return "no candidate could be measured"
        last = f"; the last point: {search.last_reason}" if search.last_reason else ""
        return reasons[0] if reasons else f"no candidate is legal{last}"
    if comparison is None:
        return "no candidate came near the default"
    if comparison.state != OK:
        return f"the comparison failed: {comparison.why}"
    if not comparison.same_results:
        return f"the results differ: {comparison.why}"
    return f"not faster beyond the noise: {comparison.ratio:.3f} ± {comparison.noise:.3f} of the default"


__all__ = ["GAIN", "KernelSearch", "Result"]
