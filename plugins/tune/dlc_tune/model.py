"""Tuning of a whole model within a budget: which kernel gets the next round of the search.

Decisions of graph passes come first (`graph_search`), since they determine which kernels there are; those
that are left are tried at the end, if the budget has not ended before. Then each
round goes to the kernel with the largest expected gain: the milliseconds of a call that it takes beyond its
roofline, halved with every round without a gain. Time for the comparisons with the default is kept back.

These are made in the model where its code times its kernels (`selecting`), else kernel by kernel. At the end
the whole model with what was found is compared with the model without it, interleaved. If it is slower beyond
the noise, or its results differ, the half with the least gains is withdrawn, and so on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from dlc_tune.comparing_kernels import times_kernels
from dlc_tune.comparing_models import measured_targets
from dlc_tune.graph_search import GraphSearch
from dlc_tune.measuring.job import Measurer
from dlc_tune.model_result import Line, ModelResult, Progress
from dlc_tune.rounds import Round, runs_here
from dlc_tune.search import GAIN, KernelSearch, Result
from dlc_tune.selecting import Selection, tuned_model
from dlc_tune.space import Space
from dlc_tune.store import NoStore, Store, forget
from dlc_tune.strategy import Strategy
from dlc_tune.task import Task
from dlc_tune.tasks import ModelTasks, Part
from dlc_tune.verifying import VERIFY_SECONDS, Verification

BATCH = 8
"""Candidates of a round."""
HOPE = 0.3
"""The part of a kernel's time that a round may save, if its roofline is not known."""
LEAST_HOPE = 0.02
"""The same for kernels at their roofline, which is an estimate."""
TOGETHER = 4
"""The kernels of a round on this machine: proposals for one overlap with builds of the others."""
NEAR = 0.25
"""The part of the largest expected gain that other kernels of a round have at least."""
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
NOT_COMPARED = "the search ended before its best candidate was compared; the next run goes on from there"
INTERRUPTED = "interrupted: "
"""The begin of what is done (`Progress.now`) after the search was interrupted."""


@dataclass
class _Kernel:
    part: Part
    search: KernelSearch
    rounds_in_vain: int = 0
    is_done: bool = False
    """Whether it had all the trials that it may have."""
    result: Result | None = None

    @property
    def expected_gain(self) -> float:
        """Milliseconds of a call that the next round is expected to save."""
        if self.search.has_ended or self.is_done:
            return 0.0
        # What earlier runs have begun comes first: its best candidates may not have been compared.
        first = BEGUN if self.search.default is None and self.search.earlier else 1.0
        now, limit = self.line().best, self.part.roofline
        room = HOPE * now if limit is None else max(now - limit, LEAST_HOPE * now)
        return first * room * 0.5**self.rounds_in_vain

    def note_round(self, before: float | None) -> None:
        """Note a round, before which this was the best time; None if there was none."""
        before = self.search.default.best if before is None and self.search.default else before
        after = self.search.best_seconds
        has_gained = before is not None and after is not None and after < before * (1 - GAIN)
        self.rounds_in_vain = 0 if has_gained else self.rounds_in_vain + 1

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
        self._together = TOGETHER if runs_here(measurer) else 1
        self._start = self._end = 0.0
        self._note = ""

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
            if self._decide(self._start + seconds * (1 - KEPT_BACK)):
                tasks = replace(tasks, exe=tuned_model(tasks, {})[0])
        except KeyboardInterrupt:
            interrupted = True
            self._end = min(self._end, time.monotonic())  # only clear gains are compared from now on
            self._note = INTERRUPTED
        stopped = False
        try:
            if tasks is not None:
                self._conclude(tasks)
        except KeyboardInterrupt:
            interrupted = stopped = True
        results = tuple(each.result or _without_comparison(each.search) for each in self._begun())
        decided, tried = ((), 0) if self._graph is None else (tuple(self._graph.found), self._graph.trials)
        left_out = {} if tasks is None else tasks.left_out
        found = ModelResult(results, decided, interrupted=interrupted, left_out=left_out, model_trials=tried)
        if tasks is not None and not stopped and (found.chosen or decided):
            try:
                spent = {each.part.task.key: each.part.milliseconds for each in self._kernels}
                verify = Verification(tasks, untuned or tasks.exe, self._store, self._graph, self._report)
                found = verify.run(found, spent)
            except KeyboardInterrupt:
                found = replace(found, interrupted=True)
        return replace(found, seconds=time.monotonic() - self._start)

    def _search_for(self, task: Task) -> KernelSearch:
        return KernelSearch(task, self._spaces, self._strategy, self._measurer, self._store, self._seed)

    def _decide(self, end: float) -> bool:
        """Search decisions with the whole model until a time, and record those that were found. Returns
        whether there are other ones than before.
        """
        if self._graph is None:
            return False
        recorded = self._graph.records
        self._graph.run(end, self._report)
        found = self._graph.records
        forget(self._store, [each for each in recorded if each not in found])  # another option is faster
        for each in (one for one in found if one not in recorded):
            self._store.add(each)
        return found != recorded

    def _search(self, end: float) -> None:
        while time.monotonic() < end:
            kernels = self._next_kernels()
            if not kernels:
                return
            self._report(f"searching {', '.join(each.part.task.name for each in kernels)}")
            before = [each.search.best_seconds for each in kernels]
            Round({each.search: self._count(each) for each in kernels}, self._measurer).run(end)
            for kernel, earlier in zip(kernels, before, strict=True):
                kernel.note_round(earlier)
                kernel.is_done = self._max_trials is not None and kernel.search.trials >= self._max_trials

    def _next_kernels(self) -> list[_Kernel]:
        """The kernels of the next round: that with the largest expected gain, and those that come near it."""
        waiting = sorted(self._kernels, key=lambda each: -each.expected_gain)[: self._together]
        least = NEAR * waiting[0].expected_gain if waiting else 0.0
        return [each for each in waiting if each.expected_gain > 0.0 and each.expected_gain >= least]

    def _count(self, kernel: _Kernel) -> int:
        """How many candidates of a kernel the next round has."""
        left = None if self._max_trials is None else self._max_trials - kernel.search.trials
        return self._batch if left is None else min(self._batch, left)

    def _begun(self) -> list[_Kernel]:
        """The kernels that were searched."""
        return [each for each in self._kernels if each.search.default is not None]

    def _conclude(self, tasks: ModelTasks) -> None:
        """Compare the best candidates of the kernels with their defaults: after the end of the budget, as few
        as do not lose what was found.
        """
        waiting = [each for each in self._begun() if each.search.best]
        if waiting and runs_here(self._measurer) and times_kernels(tasks.exe, tasks.inputs):
            selection = Selection(tasks, [each.search for each in waiting], self._report)
            results = selection.run(self._end - VERIFY_SECONDS)
            for kernel, result in zip(waiting, results, strict=True):
                kernel.result = result
            return
        waiting.sort(key=lambda each: each.line().best - each.line().default)
        for kernel in waiting:
            line = kernel.line()
            if time.monotonic() > self._end and line.best > CLEAR * line.default:
                return
            self._report(f"comparing {kernel.part.task.name} with its default")
            kernel.result = kernel.search.conclude()

    def _report(self, now: str) -> None:
        passed = time.monotonic() - self._start
        left = max(0.0, self._end - time.monotonic())
        self._progress(Progress(tuple(each.line() for each in self._kernels), passed, left, self._note + now))


def _without_comparison(search: KernelSearch) -> Result:
    return search.without_comparison(NOT_COMPARED) if search.promising else search.keep_default(None)


__all__ = ["INTERRUPTED", "KEPT_BACK", "ModelTuner"]
