"""The learned cost model: features of lowered programs, and a model that ranks candidates by them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from dlc_tune.space import Candidate
from dlc_tune.strategy import Tried
from dlc_tune.task import Task


class Ranker(Protocol):
    def scores(self, task: Task, candidates: Sequence[Candidate]) -> Any: ...
    def learn(self, task: Task, tried: Sequence[Tried]) -> None: ...


class _None:
    def scores(self, task: Task, candidates: Sequence[Candidate]) -> Any:
        return np.zeros(len(candidates))

    def learn(self, task: Task, tried: Sequence[Tried]) -> None:
        return


def default_ranker() -> Ranker:
    return _None()
