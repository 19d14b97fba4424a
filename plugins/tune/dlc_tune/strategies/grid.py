"""Grid search: all points, the defaults first, the last question varying fastest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from dlc_tune.choices import Question
from dlc_tune.space import Candidate, Space
from dlc_tune.strategies.made import PointSearch
from dlc_tune.task import Task


def _rank(question: Question, index: int) -> int:
    """The position of an option in the order of the grid: the default, then the others."""
    if index == question.default:
        return 0
    return index + 1 if index < question.default else index


def _option(question: Question, rank: int) -> int:
    """The inverse of `_rank`."""
    if rank == 0:
        return question.default
    return rank - 1 if rank - 1 < question.default else rank


class GridSearch(PointSearch):
    """One walk over all points. Which questions follow depends on the answers before, so the walk goes depth
    first: it repeats the answers up to the last question that has further options.
    """

    def __init__(self, task: Task, space: Space, seed: int) -> None:
        super().__init__(task, space, seed)
        self._points = self._walk()

    def ask(self, count: int) -> Sequence[Candidate]:
        return list(islice(self._points, count))

    def _walk(self) -> Iterator[Candidate]:
        prefix: list[int] = []
        while True:
            ranks: list[int] = []

            def answer(question: Question, prefix: list[int] = prefix, ranks: list[int] = ranks) -> int:
                rank = prefix[len(ranks)] if len(ranks) < len(prefix) else 0
                ranks.append(rank)
                return _option(question, rank)

            found = self._made.any(answer)
            if isinstance(found, Candidate) and self._made.add(found):
                yield found
            questions = found.questions
            ranks = [_rank(q, q.options.index(found.point[q.name])) for q in questions]
            while ranks and ranks[-1] + 1 == len(questions[len(ranks) - 1].options):
                ranks.pop()
            if not ranks:
                return
            prefix = [*ranks[:-1], ranks[-1] + 1]


class GridStrategy:
    """All points in order."""

    name = "grid"
    about = "All points in order, the defaults first."

    def start(self, task: Task, space: Space, seed: int) -> GridSearch:
        return GridSearch(task, space, seed)


STRATEGY = GridStrategy()

__all__ = ["STRATEGY", "GridSearch", "GridStrategy"]
