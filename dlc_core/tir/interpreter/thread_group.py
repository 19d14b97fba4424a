"""Threads with barriers: the iterations of a thread loop are generators, which run in turn from barrier to
barrier.

A thread yields the number of the barrier at which it waits, or a tuple that requests the value of another
thread: (number of the statement, operation, own value, argument, width).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any

import numpy as np

from dlc_core.diag import RuntimeFailure
from dlc_core.tir.interpreter.storage import Frame, Races
from dlc_core.tir.matrix import MATRIX

Thread = Generator[Any, Any, None]
_DONE = object()


class ThreadGroup:
    """The threads of one execution of one loop. `races` records which of them runs."""

    def __init__(
        self, body: Callable[[int], Thread], numbers: Iterable[int], loop: str, races: Races | None
    ) -> None:
        self.numbers = list(numbers)
        self.threads = [body(number) for number in self.numbers]
        self.answers: list[Any] = [None] * len(self.threads)
        self.loop = loop
        self.races = races
        self.frames: list[Frame] = []
        self.stacks: list[list[Frame]] = []
        if races is not None:
            count = races.next_number()
            self.frames = [Frame(count, loop, number) for number in self.numbers]
            self.stacks = [[*races.stack, frame] for frame in self.frames]

    def advance(self) -> int | None:
        """Run every thread to its next barrier. Returns the barrier's number, or None if all threads have
        ended.
        """
        while True:
            requests = [self._resume(i) for i in range(len(self.threads))]
            ended = sum(a is _DONE for a in requests)
            if ended == len(requests):
                return None
            if ended:
                raise RuntimeFailure(
                    f"{len(requests) - ended} of {len(requests)} threads wait at a barrier, the others have"
                    " ended",
                    details=[f"the loop {self.loop}"],
                )
            barriers = {a[0] if isinstance(a, tuple) else a for a in requests}
            if len(barriers) > 1:
                raise RuntimeFailure(
                    f"the threads of the loop {self.loop} wait at {len(barriers)} different barriers",
                    why="a barrier stands under a condition, or in a loop, that differs between them",
                )
            if not isinstance(requests[0], tuple):
                for frame in self.frames:
                    frame.epoch += 1
                barrier: int = requests[0]
                return barrier
            self.answers = exchanged(requests, self.loop)

    def _resume(self, index: int) -> Any:
        if self.races is None:
            return _next(self.threads[index], self.answers[index])
        outer = self.races.stack
        self.races.enter_stack(self.stacks[index])
        request = _next(self.threads[index], self.answers[index])
        self.races.enter_stack(outer)
        return request


def _next(thread: Thread, answer: Any) -> Any:
    try:
        return thread.send(answer)
    except StopIteration:
        return _DONE


def multiplied(requests: Sequence[tuple[int, str, Any, Any, int]]) -> list[Any]:
    """Each thread's results of a subgroup's matrix product, as lists of values."""
    unit = requests[0][3]
    acc, a, b = (np.array([own[side] for _, _, own, _, _ in requests]) for side in range(3))
    made: list[Any] = (
        unit.product(acc, a, b).astype(np.float64 if acc.dtype.kind == "f" else np.int64).tolist()
    )
    return made


def exchanged(requests: Sequence[tuple[int, str, Any, Any, int]], loop: str) -> list[Any]:
    """Each thread's result of an exchange in its subgroup of `width` consecutive threads."""
    answers: list[Any] = []
    for lane, (_, operation, own, argument, width) in enumerate(requests):
        if width <= 0 or len(requests) % width:
            raise RuntimeFailure(f"{len(requests)} threads of the loop {loop} are no subgroups of {width}")
        first, within = lane - lane % width, lane % width
        if operation == MATRIX:
            answers += multiplied(requests[lane : lane + width]) if within == 0 else ()
            continue
        if operation == "subgroup_shuffle":
            source = argument
            if not 0 <= source < width:
                raise RuntimeFailure(f"subgroup_shuffle of lane {source} in a subgroup of {width}")
        else:
            source = within + argument if operation == "subgroup_shuffle_down" else within ^ argument
        answers.append(requests[first + source][2] if 0 <= source < width else own)
    return answers
