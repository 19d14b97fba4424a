"""The features of candidates, computed once for each trace of each task."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from dlc_core.diag import DlcError
from dlc_tune.ranking.features import NAMES, Features, Row
from dlc_tune.space import Candidate
from dlc_tune.task import Task

Rows = npt.NDArray[np.float32]
MAX_KEPT = 1 << 14
"""The rows of a task that are kept, of 0.4 kB each."""
MAX_TASKS = 64
"""The tasks whose rows are kept, the latest ones."""
OVERLAP = 0.1
"""The part of the shorter of the times of instructions and of traffic that is added to the longer one."""


class KnownFeatures:
    """The features of the candidates of all tasks that were asked for."""

    def __init__(self) -> None:
        self._of_task: dict[tuple[str, str], tuple[Features, dict[str, Row]]] = {}

    def rows(self, task: Task, candidates: Sequence[Candidate]) -> Rows:
        """[len(candidates), len(NAMES)] float32. The row of a candidate that the compiler refuses is NaN."""
        key = task_key(task)
        if key not in self._of_task:
            while len(self._of_task) >= MAX_TASKS:
                del self._of_task[next(iter(self._of_task))]
            self._of_task[key] = (Features(task), {})
        features, known = self._of_task[key]
        if len(known) > MAX_KEPT:
            known.clear()
        found = np.empty((len(candidates), len(NAMES)), np.float32)
        for number, one in enumerate(candidates):
            text = one.trace.to_json()
            if text not in known:
                known[text] = _row(features, one)
            found[number] = known[text]
        return found


KNOWN = KnownFeatures()
"""The features that the rankers of this process share: each search has a ranker of its own."""


def task_key(task: Task) -> tuple[str, str]:
    """The key of a task: its kernel, and its target with the sizes and the settings of its compiles."""
    return task.key, f"{task.target} {sorted(task.sizes.items())} {sorted(task.settings.items())}"


def _row(features: Features, one: Candidate) -> Row:
    try:
        return features.of(one.func)
    except DlcError:
        return np.full(len(NAMES), np.nan, np.float32)


def analytic_scores(rows: Rows) -> npt.NDArray[np.float64]:
    """Scores by the predicted time alone: minus its logarithm to base 2, relative to the machine's limit.

    Of two candidates that memory limits equally, the one with fewer cycles is first, and vice versa.
    """
    seconds, cycles, memory = (
        rows[:, NAMES.index(name)].astype(np.float64)
        for name in ("seconds_over_limit", "cycles_over_limit", "memory_over_limit")
    )
    found = -np.log2(np.exp2(seconds) + OVERLAP * np.exp2(np.minimum(cycles, memory)))
    return np.where(np.isnan(found), -np.inf, found)


__all__ = ["KNOWN", "KnownFeatures", "Rows", "analytic_scores", "task_key"]
