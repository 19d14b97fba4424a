"""Ranking by a model that is trained on the measurements of the search, and on those of earlier ones.

Until some candidates of a kernel are measured, the order is that of the core's cost model, or that of a model
that was trained before. The more of them are measured, the more the learned model counts: the scores are the
weighted mean of both, each normalised over the candidates that are compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dlc_tune.ranking import model
from dlc_tune.ranking.analytic import analytic_ranker
from dlc_tune.ranking.candidates import KNOWN, analytic_scores, task_key
from dlc_tune.ranking.model import Group
from dlc_tune.ranking.ranker import Ranker, Scores
from dlc_tune.ranking.weights import load_weights
from dlc_tune.space import Candidate
from dlc_tune.strategy import Tried
from dlc_tune.task import Task

ENOUGH = 16
"""The number of samples of a kernel at which the learned model counts as much as the analytic one."""
ELSEWHERE = 7
"""The samples of a kernel that training on many other kernels is worth. By the measured kernels of
`benchmarks/ranking.py`: 7 and 16 rank about as well, 0 and 50 worse."""
LEAST = 8
"""The number of samples below which no model is trained."""


class LearnedRanker:
    """LightGBM over features of lowered programs, blended with the analytic model."""

    def __init__(self, seed: int = 0, weights: str | Path | None = None) -> None:
        model.library()
        self._seed = seed
        self._before = None if weights is None else load_weights(weights)
        self._samples: dict[tuple[str, str], dict[str, tuple[npt.NDArray[np.float32], float]]] = {}
        self._booster: Any = self._before
        self._is_old = False

    def scores(self, task: Task, candidates: Sequence[Candidate]) -> Scores:
        rows = KNOWN.rows(task, candidates)
        analytic = analytic_scores(rows)
        booster = self._current()
        if booster is None or not len(candidates):
            return analytic
        samples = len(self._samples.get(task_key(task), ()))
        return blended(analytic, booster.predict(rows), share_of(samples, self._before is not None))

    def learn(self, task: Task, tried: Sequence[Tried]) -> None:
        known = self._samples.setdefault(task_key(task), {})
        rows = KNOWN.rows(task, [one.candidate for one in tried])
        for one, row in zip(tried, rows):
            if not np.isnan(row).any():
                seconds = np.inf if one.seconds is None else one.seconds
                known[one.candidate.trace.to_json()] = (row, seconds)
                self._is_old = True

    def _current(self) -> Any:
        """The model of all samples; None if they are too few."""
        if self._is_old:
            self._is_old = False
            groups = [_group(list(known.values())) for known in self._samples.values() if len(known) > 1]
            if sum(len(one.seconds) for one in groups) >= LEAST:
                self._booster = model.trained(groups, self._seed, self._before)
        return self._booster


def share_of(samples: int, is_trained: bool) -> float:
    """The weight of the learned model, 0 to 1, after some samples of the kernel.

    `is_trained` holds for a model that was trained on many other kernels.
    """
    known = samples + (ELSEWHERE if is_trained else 0)
    return known / (known + ENOUGH)


def blended(analytic: Scores, learned: Scores, share: float) -> Scores:
    """The weighted mean of normalised scores. What the compiler refuses stays at -inf."""
    legal = np.isfinite(analytic)
    found = np.full(len(analytic), -np.inf)
    found[legal] = share * _normal(learned[legal]) + (1 - share) * _normal(analytic[legal])
    return found


def _normal(values: Scores) -> Scores:
    """Values with mean 0 and deviation 1, or 0 if they are equal."""
    centred = values - values.mean() if len(values) else values
    deviation = float(centred.std()) if len(values) else 0.0
    return centred / deviation if deviation > 1e-12 else np.zeros(len(values))


def _group(samples: Sequence[tuple[npt.NDArray[np.float32], float]]) -> Group:
    return Group(np.stack([row for row, _ in samples]), np.array([seconds for _, seconds in samples]))


def learned_ranker(seed: int = 0, weights: str | Path | None = None) -> Ranker:
    """The ranker that learns. `weights` is a file of `save_weights`.

    Raises PluginError, which names the extra `dlc-tune[ranking]`, if LightGBM is not installed; UsageError if
    the file is not one of this version's weights.
    """
    return LearnedRanker(seed, weights)


def default_ranker(seed: int = 0) -> Ranker:
    """The learned ranker if LightGBM is installed, else the analytic one."""
    return learned_ranker(seed) if model.has_library() else analytic_ranker()


__all__ = ["LearnedRanker", "blended", "default_ranker", "learned_ranker", "share_of"]
