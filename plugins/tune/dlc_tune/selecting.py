"""The choice among the best candidates of all kernels, by comparisons in their model.

Each round compiles the model once, with one candidate of every kernel, and compares every kernel with its
default (`comparing_kernels`). The first round takes the fastest candidates, the next one the second ones.
At the end a model with all that were faster confirms them, since a kernel also finds the caches as its
neighbours leave them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from dlc_core import driver
from dlc_core.config import config
from dlc_core.passes import PassContext
from dlc_core.runtime.executable import Executable
from dlc_core.schedule import Trace
from dlc_tune.comparing_kernels import compare_kernels
from dlc_tune.measuring.comparing import Ratios
from dlc_tune.measuring.job import OK, Comparison
from dlc_tune.schedules import Schedules
from dlc_tune.search import KernelSearch, Result
from dlc_tune.strategy import Tried
from dlc_tune.tasks import ModelTasks

ROUNDS = 6
"""How many candidates of a kernel are compared at most."""
COMPARE_SECONDS = 1.0
"""The time of a comparison whose result stays unclear for some kernel."""
NOT_REACHED = "the budget ended before its candidates were compared in the model"


def tuned_model(tasks: ModelTasks, traces: Mapping[str, str | Trace]) -> tuple[Executable, dict[str, str]]:
    """The model of the tasks with these schedules, by key of their kernels, and no others; and the names of
    all kernels in it, by key.
    """
    schedules = Schedules(traces)
    with PassContext.current().with_(tuner=schedules, decider=tasks.decider):
        exe = driver.compile(tasks.model, tasks.target, cache=bool(config.cache), **tasks.options)
    return exe, schedules.names


@dataclass
class Selection:
    """The selection for one model. `searches` are those of its kernels."""

    tasks: ModelTasks
    searches: Sequence[KernelSearch]
    report: Callable[[str], None] = lambda _: None
    found: dict[str, tuple[Tried, Ratios]] = field(default_factory=dict)
    """The fastest candidate of each kernel that is faster than its default, by key."""
    _last: dict[str, Ratios] = field(default_factory=dict)
    """The best comparison of each kernel."""
    _wrong: dict[str, str] = field(default_factory=dict)

    def run(self, end: float) -> list[Result]:
        """Compare until a time of `time.monotonic`, at least the fastest candidates. Returns the results of
        all searches, and records what was chosen.
        """
        waiting = {each.task.key: each.promising for each in self.searches}
        longest = 0.0
        for position in range(ROUNDS):
            tried = {key: found[position] for key, found in waiting.items() if len(found) > position}
            start = time.monotonic()
            if not tried or (position and start + 2 * longest > end):  # twice: the last one confirms
                break
            self.report(f"comparing {len(tried)} kernels in the model")
            for key, ratios in self._compared(tried).items():
                self._note(key, tried[key], ratios)
            longest = max(longest, time.monotonic() - start)
        if len(self.found) > 1:
            self._confirm()
        return [self._result(each) for each in self.searches]

    def _note(self, key: str, tried: Tried, ratios: Ratios) -> None:
        if key not in self._last or ratios.ratio < self._last[key].ratio:
            self._last[key] = ratios
        if ratios.is_faster and (key not in self.found or ratios.ratio < self.found[key][1].ratio):
            self.found[key] = (tried, ratios)

    def _confirm(self) -> None:
        """Compare what was found once more, all together, and drop kernels that are not faster so."""
        self.report(f"confirming {len(self.found)} kernels in the model")
        again = self._compared({key: tried for key, (tried, _) in self.found.items()})
        for key in list(self.found):
            if key not in again or again[key].ratio >= 1:
                del self.found[key]
                self._last[key] = again.get(key, self._last[key])

    def _compared(self, tried: Mapping[str, Tried]) -> dict[str, Ratios]:
        """Compare one candidate of each of some kernels. If results differ, it is found out whose."""
        traces = {key: each.candidate.trace for key, each in tried.items()}
        exe, names = tuned_model(self.tasks, traces)
        defaults = {each.task.key: each.task.name for each in self.searches}
        pairs = {key: (names[key], defaults[key]) for key in tried if key in names}
        wrong, found = compare_kernels(exe, self.tasks.exe, self.tasks.inputs, pairs, COMPARE_SECONDS)
        if not wrong:
            return found
        if len(tried) == 1:
            self._wrong |= dict.fromkeys(tried, wrong)
            return {}
        keys = list(tried)
        halves = keys[: len(keys) // 2], keys[len(keys) // 2 :]
        parts = [self._compared({key: tried[key] for key in half}) for half in halves]
        return {**parts[0], **parts[1]}

    def _result(self, search: KernelSearch) -> Result:
        key = search.task.key
        if key in self.found:
            tried, ratios = self.found[key]
            return search.choose(tried, _comparison(ratios, search.task.calls))
        if key in self._wrong and key not in self._last:
            return search.keep_default(Comparison(OK, why=self._wrong[key]))
        if key not in self._last and search.promising:
            return search.without_comparison(NOT_REACHED)
        return search.keep_default(
            _comparison(self._last[key], search.task.calls) if key in self._last else None
        )


def _comparison(ratios: Ratios, runs: float) -> Comparison:
    """The comparison of a kernel that runs so often in a call, by seconds of a run."""
    ours, theirs = (
        tuple(float(t) / max(runs, 1) for t in times) for times in (ratios.candidate, ratios.default)
    )
    return Comparison(OK, ours, theirs, float(ratios.ratio), float(ratios.noise), same_results=True)


__all__ = ["Selection", "tuned_model"]
