"""Results of points that were made before, found again without making them.

A space that is given the same answers asks the same questions and gives the same schedule. The questions form
a tree, whose edges are answers and whose leaves are results. A search walks along it with its answers; the
space is called only where the tree ends.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from dlc_tune.choices import Answer, Question

T = TypeVar("T")


class _Node(Generic[T]):
    """A question and what followed each answer; without a question, a result."""

    __slots__ = ("followed", "question", "result")

    def __init__(self) -> None:
        self.question: Question | None = None
        self.followed: dict[int, _Node[T]] = {}
        self.result: T | None = None


class KnownPoints(Generic[T]):
    """The tree of one space and one task.

    `make(answer)` makes a point; it returns the questions that it asked, in order, and the result.
    """

    def __init__(self, make: Callable[[Answer], tuple[Sequence[Question], T]]) -> None:
        self._make = make
        self._root: _Node[T] = _Node()

    def find(self, answer: Answer) -> T:
        """The result for these answers. Each question is answered once."""
        node: _Node[T] | None = self._root
        given: list[int] = []
        while node is not None and node.question is not None:
            given.append(answer(node.question))
            node = node.followed.get(given[-1])
        if node is not None and node.result is not None:
            return node.result
        first = iter(tuple(given))

        def go_on(question: Question) -> int:
            index = next(first, None)
            if index is None:
                index = answer(question)
                given.append(index)
            return index

        questions, result = self._make(go_on)
        node = self._root
        for question, index in zip(questions, given, strict=False):
            node.question = question
            node = node.followed.setdefault(index, _Node())
        node.result = result
        return result


__all__ = ["KnownPoints"]
