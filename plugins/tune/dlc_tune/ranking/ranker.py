"""The interface of rankers: they predict which of several candidates are worth measuring first.

ranker = default_ranker()
scores = ranker.scores(task, candidates)       the higher, the better
ranker.learn(task, tried)                      from measurements of these or other candidates
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from dlc_tune.space import Candidate
from dlc_tune.strategy import Tried
from dlc_tune.task import Task

Scores = npt.NDArray[np.float64]


class Ranker(Protocol):
    """Predicts which candidates are fast."""

    def scores(self, task: Task, candidates: Sequence[Candidate]) -> Scores:
        """A score for each candidate, [len(candidates)]; the higher, the faster it is expected to be.

        Only scores of one call compare. A candidate that the compiler refuses has the score -inf.
        """
        ...

    def learn(self, task: Task, tried: Sequence[Tried]) -> None:
        """Take measurements of candidates of a task. Failed ones, whose seconds are None, count as the
        slowest.
        """
        ...


__all__ = ["Ranker", "Scores"]
