"""Evolutionary search: changed copies of the best points, ranked by a cost model before they are measured.

Each round makes a pool of legal candidates: mutations of measured points, where better points have more
offspring, crossings of two of them, and some random points. A ranker orders the pool, and the first ones are
measured, with a few others so that the search does not follow the errors of the model. The results teach the
model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dlc_tune.choices import Answer, Point, Question, defaults, drawn
from dlc_tune.ranking import Ranker, default_ranker
from dlc_tune.space import Candidate, Space
from dlc_tune.strategies.made import PointSearch
from dlc_tune.strategy import Tried
from dlc_tune.task import Task

PARENTS = 8
"""The number of measured points that have offspring."""
POOL = 2
"""The candidates in the pool for each one that is measured."""
RANKED_STEPS = 64
"""Schedules with more steps are not ranked: their features cost about as much as a measurement."""
ATTEMPTS = 4
"""Points that are made at most for each place in the pool."""
CHANGES = 2
"""The expected number of questions that a mutation answers again; at least one is."""
NEIGHBOUR = 0.5
"""The probability with which a new answer is a neighbour of the old one: options are often sizes in order."""
RANDOM = 0.15
"""The part of the pool that are random points, and the part of a batch that ignores the ranking."""


class EvolutionarySearch(PointSearch):
    """One search. Until results are known it tries the point of defaults and its mutations."""

    def __init__(self, task: Task, space: Space, seed: int, ranker: Ranker) -> None:
        super().__init__(task, space, seed)
        self._ranker = ranker
        self._measured: list[Tried] = []
        self._began = False
        self._is_ranked = True

    def ask(self, count: int) -> Sequence[Candidate]:
        chosen: list[Candidate] = []
        if not self._began:
            self._began = True
            first = self._made.new(defaults)
            chosen += [] if first is None else [first]
            self._is_ranked = first is None or len(first.trace.steps) <= RANKED_STEPS
        pool = self._pool((POOL if self._is_ranked else 1) * (count - len(chosen)))
        scores = self._ranker.scores(self._made.task, pool) if self._is_ranked and pool else [0.0] * len(pool)
        ranked = [each for _, _, each in sorted(zip((-s for s in scores), range(len(pool)), pool))]
        explored = [each for each in ranked if self._random.random() < RANDOM]
        for each in (*ranked[: max(0, count - len(chosen) - int(RANDOM * count))], *explored, *ranked):
            if len(chosen) < count and self._made.add(each):
                chosen.append(each)
        return chosen

    def tell(self, tried: Sequence[Tried]) -> None:
        super().tell(tried)
        self._measured += [each for each in tried if each.seconds is not None]
        self._measured.sort(key=lambda each: each.seconds or 0.0)
        if self._is_ranked:
            self._ranker.learn(self._made.task, tried)

    def _pool(self, size: int) -> list[Candidate]:
        """Legal candidates with distinct schedules that were not measured."""
        found: dict[str, Candidate] = {}
        for _ in range(ATTEMPTS * size):
            if len(found) >= size:
                break
            made = self._made.any(self._proposal())
            if isinstance(made, Candidate):
                text = made.trace.as_python()
                if not self._made.knows(text):
                    found.setdefault(text, made)
        return list(found.values())

    def _proposal(self) -> Answer:
        if self._random.random() < RANDOM:
            return drawn(self._random)
        parents = self._measured[:PARENTS]
        if not parents:
            return self._mutation({})
        mother = self._random.choices(parents, [1 / (1 + n) for n in range(len(parents))])[0]
        point = dict(mother.candidate.point)
        if len(parents) > 1 and self._random.random() < NEIGHBOUR:
            father = self._random.choice(parents).candidate.point
            point.update({name: text for name, text in father.items() if self._random.random() < NEIGHBOUR})
        return self._mutation(point)

    def _mutation(self, point: Point) -> Answer:
        """Answers as in a point, some of them changed."""
        certain = self._random.randrange(max(1, len(point)))
        redrawn = (CHANGES - 1) / max(1, len(point))
        asked = 0

        def answer(question: Question) -> int:
            nonlocal asked
            asked += 1
            text, count = point.get(question.name), len(question.options)
            old = question.options.index(text) if text in question.options else question.default
            if count == 1 or (asked - 1 != certain and self._random.random() >= redrawn):
                return old
            if self._random.random() < NEIGHBOUR:
                return max(0, min(count - 1, old + self._random.choice((-1, 1))))
            return self._random.randrange(count)

        return answer


class EvolutionaryStrategy:
    """Mutations of the best points, ranked by a cost model."""

    name = "evolutionary"
    about = "Mutations and crossings of the best points, ranked by a learned cost model."

    def __init__(self, make_ranker: Callable[[], Ranker] = default_ranker) -> None:
        self._make_ranker = make_ranker

    def for_model(self) -> EvolutionaryStrategy:
        """The strategy for the kernels of one model: what the ranker learns of one serves the others."""
        ranker = self._make_ranker()
        return EvolutionaryStrategy(lambda: ranker)

    def start(self, task: Task, space: Space, seed: int) -> EvolutionarySearch:
        return EvolutionarySearch(task, space, seed, self._make_ranker())


STRATEGY = EvolutionaryStrategy()

__all__ = ["STRATEGY", "EvolutionarySearch", "EvolutionaryStrategy"]
