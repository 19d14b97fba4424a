"""Named choices that make a point of a search space, asked for one after the other.

A space asks for each choice while it schedules a kernel, as in define-by-run optimisers:

    tile = choose("tile", ["4x16", "6x16", "8x8"], default="6x16")

Which choices are asked for may depend on earlier ones. A search strategy answers them by a function from a
`Question` to the index of an option. The answers of one run are a *point*: a mapping from names to the texts
of the options, which JSON can hold. A point that was found for one kernel can be tried on another: `replay`
takes its answers where the options exist, and the defaults elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import TypeVar

from dlc_core.diag import ScheduleError
from dlc_core.support.record import record

T = TypeVar("T")
Point = Mapping[str, str]
"""The answers of a run: the text of the chosen option by the name of its question."""


@record(frozen=True)
class Question:
    """A choice that a space asks for: its name, the texts of its options, and the index of the default."""

    name: str
    options: tuple[str, ...]
    default: int = 0


Answer = Callable[[Question], int]
"""Answers a question by the index of an option."""


class Choices:
    """Asks a strategy for choices, and keeps the questions and the answers of one run, in order."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self.questions: list[Question] = []
        self.point: dict[str, str] = {}

    def __call__(self, name: str, options: Sequence[T], default: T | None = None) -> T:
        """Choose one of the options, which differ in their texts (`str`).

        `default` is the option that the analytic model prefers; without it, the first one. A name that was
        asked before in this run gives the same answer. Raises ScheduleError if there are no options.
        """
        texts = tuple(str(option) for option in options)
        if not texts:
            raise ScheduleError(f"the choice {name!r} has no options")
        if len(set(texts)) != len(texts):
            raise ScheduleError(f"the choice {name!r} has options with equal texts: {', '.join(texts)}")
        if name in self.point and self.point[name] in texts:
            return options[texts.index(self.point[name])]
        if default is not None and str(default) not in texts:
            raise ScheduleError(
                f"the choice {name!r} has the default {default}", why=f"its options are {', '.join(texts)}"
            )
        question = Question(name, texts, 0 if default is None else texts.index(str(default)))
        index = self._answer(question)
        if not 0 <= index < len(texts):
            raise ScheduleError(f"the choice {name!r} has no option {index}", why=f"it has {len(texts)}")
        self.questions.append(question)
        self.point[name] = texts[index]
        return options[index]


def defaults(question: Question) -> int:
    """Answers each question by its default."""
    return question.default


def drawn(draw: Random) -> Answer:
    """Answers each question by a random option."""
    return lambda question: draw.randrange(len(question.options))


def replay(point: Point) -> Answer:
    """Answers by a point, and by the default where the point has no answer among the options."""

    def answer(question: Question) -> int:
        text = point.get(question.name)
        return question.options.index(text) if text in question.options else question.default

    return answer


__all__ = ["Answer", "Choices", "Point", "Question", "defaults", "drawn", "replay"]
