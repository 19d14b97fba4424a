"""Random search: every question is answered by a random option."""

from __future__ import annotations

import random
from collections.abc import Sequence

from dlc_tune.space import Candidate, Space
from dlc_tune.strategies.tried import Made
from dlc_tune.strategy import Tried
from dlc_tune.task import Task

ATTEMPTS = 64
"""Points that are drawn in vain, one after the other, before the search ends: the space is exhausted."""


class RandomSearch:
    """One random search."""

    def __init__(self, task: Task, space: Space, seed: int) -> None:
        self._made = Made(task, space)
        self._random = random.Random(f"{seed}/{task.key}/{space.name}")

    @property
    def why_not(self) -> str:
        """Why the last point that was not legal was refused."""
        return self._made.why_not

    def ask(self, count: int) -> Sequence[Candidate]:
        found: list[Candidate] = []
        in_vain = 0
        while len(found) < count and in_vain < ATTEMPTS:
            made = self._made.new(lambda question: self._random.randrange(len(question.options)))
            if made is None:
                in_vain += 1
            else:
                in_vain = 0
                found.append(made)
        return found

    def tell(self, tried: Sequence[Tried]) -> None:
        for each in tried:
            self._made.add(each.candidate)


class RandomStrategy:
    """Uniformly random points."""

    name = "random"
    about = "Uniformly random points."

    def start(self, task: Task, space: Space, seed: int) -> RandomSearch:
        return RandomSearch(task, space, seed)


STRATEGY = RandomStrategy()

__all__ = ["STRATEGY", "RandomSearch", "RandomStrategy"]
