"""Tuning of a whole model within a budget: which kernel gets the next round of the search.

Decisions of graph passes come first (`graph_search`), since they determine which kernels there are; those
that are left are tried at the end, if the budget has not ended before. Then each
round goes to the kernel with the largest expected gain: the milliseconds that it takes in a call of the
model, times the part of them that a round may still save. That part is taken from what the rounds before have
saved, and halves with every round without a gain. Time for the comparisons with the default is kept back.

At the end the whole model with what was found is compared with the model without it, interleaved. If it is
slower beyond the noise, or its results differ, all of it is withdrawn.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from dlc_core import driver
from dlc_core.passes import PassContext
from dlc_core.runtime.executable import Executable
from dlc_core.support.record import record
from dlc_core.target import Target
from dlc_core.tir.stmt import PrimFunc
from dlc_tune.comparing_models import compare_models, measured_targets
from dlc_tune.graph_search import Decided, GraphSearch
from dlc_tune.measuring.job import Measurer
from dlc_tune.records.record import CHOSEN, Record
from dlc_tune.search import KernelSearch, NoStore, Result, Store
from dlc_tune.space import Space
from dlc_tune.strategy import Strategy
from dlc_tune.task import Task, kernel_key
from dlc_tune.tasks import ModelTasks, Part

BATCH = 8
"""Candidates of a round."""
HOPE = 0.3
"""The part of a kernel's time that the first round may save."""
BEGUN = 1e6
"""The factor of the first round of kernels that earlier runs have begun."""
NEGLIGIBLE = 0.002
"""Kernels that take less than this part of a call are not tuned."""
KEPT_BACK = 0.25
"""The part of the budget for comparisons."""
GRAPH = 0.2
"""The part of the budget for decisions of graph passes."""
MEASURED = 0.5
"""The same for a model with parts on a target that has a measure: the host computes little then."""
CLEAR = 0.97
"""The part of the default's time below which a candidate is compared even if the budget has ended."""
SLOWER = 0.01
"""What was found is withdrawn if the whole model takes this much longer, or longer beyond the noise."""
NOT_COMPARED = "the search ended before its best candidate was compared; the next run goes on from there"
INTERRUPTED = "interrupted: "
"""The begin of what is done (`Progress.now`) after the search was interrupted."""
COMPARE_SECONDS = 3.0
"""The time of the comparison of whole models."""


@record(frozen=True)
class Line:
    """The state of one kernel, for progress reports. Times are milliseconds of one call of the model."""

    name: str
    default: float
    best: float
    trials: int
    state: str


@record(frozen=True)
class Progress:
    """A snapshot: kernels, seconds that have passed and that are left, what is done now."""

    lines: tuple[Line, ...]
    passed: float
    left: float
    now: str


@record(frozen=True, eq=False)
class ModelResult:
    """The result of tuning a model. `print` shows a line for each kernel.

    `ratio` is the time of a call of the tuned model over that of the untuned one, by an interleaved
    comparison, and `noise` the half width of its interval; None if there was no such comparison.
    """

    results: tuple[Result, ...]
    decided: tuple[Decided, ...] = ()
    """The decisions of graph passes that were found to be faster."""
    ratio: float | None = None
    noise: float | None = None
    withdrawn: str = ""
    """Why the chosen schedules were withdrawn; empty if they were not."""
    interrupted: bool = False
    left_out: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    model_trials: int = 0
    """The options of decisions that were tried with the whole model."""

    @property
    def chosen(self) -> tuple[Record, ...]:
        """The records that compiles use from now on."""
        return () if self.withdrawn else tuple(r.chosen for r in self.results if r.chosen is not None)

    @property
    def trials(self) -> int:
        """The measured candidates of kernels."""
        return sum(result.trials for result in self.results)

    def __str__(self) -> str:
        lines = [str(result) for result in self.results]
        lines += [
            f"{d.decision.partition('/')[0]}: {d.option} instead of {d.preferred}" for d in self.decided
        ]
        if self.ratio is not None:
            lines.append(f"the whole model: {self.ratio:.3f} ± {self.noise:.3f} of its time before")
        return "\n".join([*lines, *([f"withdrawn: {self.withdrawn}"] if self.withdrawn else [])])


@dataclass
class _Kernel:
    part: Part
    search: KernelSearch
    rounds_in_vain: int = 0
    last_gain: float = HOPE
    result: Result | None = None

    @property
    def expected_gain(self) -> float:
        """Milliseconds of a call that the next round is expected to save."""
        if self.search.has_ended or self.result is not None:
            return 0.0
        # What earlier runs have begun comes first: its best candidates may not have been compared.
        first = BEGUN if self.search.default is None and self.search.earlier else 1.0
        return first * self.part.milliseconds * max(self.last_gain, 0.02) * 0.5**self.rounds_in_vain

    def line(self) -> Line:
        default, best = self.search.default, self.search.best_seconds
        share = 1.0 if not default or not default.best or best is None else best / default.best
        state = "waiting" if default is None else "searched" if self.result is None else "kept the default"
        if self.result is not None and self.result.chosen is not None:
            state, share = "chosen", self.result.ratio
        elif self.result is not None:
            share = 1.0
        ours = self.part.milliseconds
        return Line(self.part.task.name, ours, ours * share, self.search.trials, state)


class ModelTuner:
    """Tunes the kernels of a model. `run` may be interrupted by Ctrl-C: what was found until then is kept."""

    def __init__(
        self,
        tasks: Callable[[], ModelTasks],
        spaces: Sequence[Space],
        strategy: Strategy,
        measurer: Measurer,
        store: Store | None = None,
        *,
        graph: GraphSearch | None = None,
        seed: int = 0,
        batch: int = BATCH,
        max_trials: int | None = None,
        progress: Callable[[Progress], None] = lambda _: None,
    ) -> None:
        self._make_tasks, self._graph = tasks, graph
        self._store: Store = store or NoStore()
        self._strategy: Strategy = getattr(strategy, "for_model", lambda: strategy)()
        self._spaces, self._measurer, self._seed = spaces, measurer, seed
        self._batch, self._max_trials, self._progress = batch, max_trials, progress
        self._kernels: list[_Kernel] = []
        self._start = self._end = 0.0

    def run(self, seconds: float) -> ModelResult:
        """Search for about `seconds`."""
        self._start = time.monotonic()
        self._end = self._start + seconds
        untuned, tasks, interrupted = None, None, False
        try:
            if self._graph is not None:
                untuned = self._graph.untuned
                part = MEASURED if measured_targets(untuned) else GRAPH
                self._decide(self._start + seconds * part)
            self._report("measuring the kernels")
            tasks = self._make_tasks()
            least = NEGLIGIBLE * sum(part.milliseconds for part in tasks.parts)
            parts = [part for part in tasks.parts if part.milliseconds >= least]
            self._kernels = [_Kernel(part, self._search_for(part.task)) for part in parts]
            self._search(self._start + seconds * (1 - KEPT_BACK))
            self._decide(self._start + seconds * (1 - KEPT_BACK))
        except KeyboardInterrupt:
            interrupted = True
            self._end = min(self._end, time.monotonic())  # only clear gains are compared from now on
        stopped = False
        try:
            self._conclude(INTERRUPTED if interrupted else "")
        except KeyboardInterrupt:
            interrupted = stopped = True
        results = tuple(each.result or each.search.without_comparison(NOT_COMPARED) for each in self._begun())
        decided, tried = ((), 0) if self._graph is None else (tuple(self._graph.found), self._graph.trials)
        left_out = {} if tasks is None else tasks.left_out
        found = ModelResult(results, decided, interrupted=interrupted, left_out=left_out, model_trials=tried)
        if tasks is not None and not stopped and (found.chosen or decided):
            note = INTERRUPTED if interrupted else ""
            self._report(f"{note}comparing the whole model with the untuned one")
            try:
                found = self._verified(found, tasks, untuned or tasks.exe)
            except KeyboardInterrupt:
                found = replace(found, interrupted=True)
        return replace(found, seconds=time.monotonic() - self._start)

    def _search_for(self, task: Task) -> KernelSearch:
        return KernelSearch(task, self._spaces, self._strategy, self._measurer, self._store, self._seed)

    def _decide(self, end: float) -> None:
        """Search decisions with the whole model until a time, and record those that were found."""
        if self._graph is None:
            return
        recorded = self._graph.records
        self._graph.run(end, self._report)
        found = self._graph.records
        for each in (one for one in recorded if one not in found):  # another option is faster
            self._forget(each)
        for each in (one for one in found if one not in recorded):
            self._store.add(each)

    def _forget(self, found: Record) -> None:
        self._store.forget(kernel=found.kernel, target=found.target, state=CHOSEN, time=found.time)

    def _search(self, end: float) -> None:
        while time.monotonic() < end:
            kernel = max(self._kernels, key=lambda each: each.expected_gain, default=None)
            if kernel is None or kernel.expected_gain <= 0.0:
                return
            self._report(f"searching {kernel.part.task.name}")
            before = kernel.search.best_seconds
            most = self._batch
            if self._max_trials is not None:
                most = min(most, self._max_trials - kernel.search.trials)
            kernel.search.go_on(most)
            after = kernel.search.best_seconds
            if before is not None and after is not None and after < before:
                kernel.last_gain, kernel.rounds_in_vain = 1 - after / before, 0
            elif before is not None:
                kernel.rounds_in_vain += 1
            if self._max_trials is not None and kernel.search.trials >= self._max_trials:
                self._finish(kernel)

    def _begun(self) -> list[_Kernel]:
        """The kernels that were searched."""
        return [each for each in self._kernels if each.search.default is not None]

    def _conclude(self, note: str) -> None:
        """Compare the best candidates of each kernel with its default, the largest gains first. After the end
        of the budget only those whose gain is clear are compared: what was found shall not be lost.
        """
        waiting = [each for each in self._begun() if each.result is None and each.search.best]
        waiting.sort(key=lambda each: each.line().best - each.line().default)
        for kernel in waiting:
            line = kernel.line()
            if time.monotonic() > self._end and line.best > CLEAR * line.default:
                return
            self._finish(kernel, note)

    def _finish(self, kernel: _Kernel, note: str = "") -> None:
        self._report(f"{note}comparing {kernel.part.task.name} with its default")
        kernel.result = kernel.search.conclude()

    def _verified(self, found: ModelResult, tasks: ModelTasks, untuned: Executable) -> ModelResult:
        """Compare the whole model, and withdraw what was found if it is slower or its results differ."""
        why, ratios = compare_models(tuned_model(tasks, found.chosen), untuned, tasks.inputs, COMPARE_SECONDS)
        if not why and ratios is not None and ratios.ratio > 1 + min(ratios.noise, SLOWER):
            why = f"the whole model took {ratios.ratio:.3f} ± {ratios.noise:.3f} of the untuned one's time"
        if why:
            graph = () if self._graph is None else self._graph.records
            for each in (*found.chosen, *graph):
                self._forget(each)
        if ratios is None:
            return replace(found, withdrawn=why)
        return replace(found, ratio=ratios.ratio, noise=ratios.noise, withdrawn=why)

    def _report(self, now: str) -> None:
        passed = time.monotonic() - self._start
        left = max(0.0, self._end - time.monotonic())
        self._progress(Progress(tuple(each.line() for each in self._kernels), passed, left, now))


def tuned_model(tasks: ModelTasks, records: Sequence[Record]) -> Executable:
    """The model of the tasks, compiled with the schedules of records and no others."""
    traces = {each.kernel: each.trace for each in records}

    def schedule(func: PrimFunc, target: Target) -> str | None:
        return traces.get(kernel_key(func))

    with PassContext.current().with_(tuner=schedule, decider=tasks.decider):
        return driver.compile(tasks.model, tasks.target, cache=False, **tasks.options)


__all__ = ["INTERRUPTED", "Line", "ModelResult", "ModelTuner", "Progress", "tuned_model"]
