"""The candidates that a search has made, so that none is measured twice; the base of searches by points."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from dlc_tune.choices import Answer, Question, drawn
from dlc_tune.known_points import KnownPoints
from dlc_tune.space import Candidate, Invalid, Space, candidate
from dlc_tune.strategy import Tried
from dlc_tune.task import Task

ATTEMPTS = 64
"""Points that are drawn in vain, one after the other, before a space counts as exhausted."""


class Made:
    """Makes candidates of one task and one space, and remembers their traces."""

    def __init__(self, task: Task, space: Space) -> None:
        self.task, self.space = task, space
        self._points = KnownPoints(self._make)
        self._seen: set[str] = set()
        self.invalid = 0
        """The number of points that were not legal."""
        self.repeated = 0
        """The number of points that gave a known schedule."""
        self.why_not = ""
        """Why the last point that was not legal was refused."""

    def new(self, answer: Answer) -> Candidate | None:
        """The candidate of these answers; None if it is not legal or its schedule was made before."""
        found = self.any(answer)
        return found if isinstance(found, Candidate) and self.add(found) else None

    def any(self, answer: Answer) -> Candidate | Invalid:
        """The candidate of these answers, known or not."""
        return self._points.find(answer)

    def _make(self, answer: Answer) -> tuple[tuple[Question, ...], Candidate | Invalid]:
        found = candidate(self.space, self.task, answer)
        if isinstance(found, Invalid):
            self.invalid += 1
            self.why_not = found.why
        return found.questions, found

    def drawn(self, count: int, draw: Random) -> list[Candidate]:
        """At most `count` new candidates at random points; fewer if the space is exhausted."""
        found: list[Candidate] = []
        in_vain = 0
        while len(found) < count and in_vain < ATTEMPTS:
            made = self.new(drawn(draw))
            found += [] if made is None else [made]
            in_vain = in_vain + 1 if made is None else 0
        return found

    def knows(self, text: str) -> bool:
        """Whether a schedule, given by the text of its trace, was made before."""
        return text in self._seen

    def add(self, found: Candidate) -> bool:
        """Remember a candidate. Returns whether its schedule is new."""
        text = found.trace.as_python()
        is_new = text not in self._seen
        self._seen.add(text)
        self.repeated += not is_new
        return is_new


class PointSearch:
    """The base of searches that answer the questions of a space themselves."""

    def __init__(self, task: Task, space: Space, seed: int) -> None:
        self._made = Made(task, space)
        self._random = Random(f"{seed}/{task.key}/{space.name}")

    @property
    def why_not(self) -> str:
        """Why the last point that was not legal was refused."""
        return self._made.why_not

    def tell(self, tried: Sequence[Tried]) -> None:
        """Remember candidates, those of earlier searches too."""
        for each in tried:
            self._made.add(each.candidate)


__all__ = ["Made", "PointSearch"]
