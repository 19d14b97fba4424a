"""Ranking by the core's cost model alone."""

from __future__ import annotations

from collections.abc import Sequence

from dlc_tune.ranking.candidates import KNOWN, analytic_scores
from dlc_tune.ranking.ranker import Ranker, Scores
from dlc_tune.space import Candidate
from dlc_tune.strategy import Tried
from dlc_tune.task import Task


class AnalyticRanker:
    """Scores candidates by the predicted time of their lowered programs. It learns nothing."""

    def scores(self, task: Task, candidates: Sequence[Candidate]) -> Scores:
        return analytic_scores(KNOWN.rows(task, candidates))

    def learn(self, task: Task, tried: Sequence[Tried]) -> None:
        """Do nothing: the predictions have no parameters."""


def analytic_ranker() -> Ranker:
    """The ranker that needs no library and no measurement."""
    return AnalyticRanker()


__all__ = ["AnalyticRanker", "analytic_ranker"]
