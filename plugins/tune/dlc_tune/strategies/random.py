"""Random search: every question is answered by a random option."""

from __future__ import annotations

from collections.abc import Sequence

from dlc_tune.space import Candidate, Space
from dlc_tune.strategies.made import PointSearch
from dlc_tune.task import Task


class RandomSearch(PointSearch):
    """One random search."""

    def ask(self, count: int) -> Sequence[Candidate]:
        return self._made.drawn(count, self._random)


class RandomStrategy:
    """Uniformly random points."""

    name = "random"
    about = "Uniformly random points."

    def start(self, task: Task, space: Space, seed: int) -> RandomSearch:
        return RandomSearch(task, space, seed)


STRATEGY = RandomStrategy()

__all__ = ["STRATEGY", "RandomSearch", "RandomStrategy"]
