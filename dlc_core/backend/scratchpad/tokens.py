"""Dependence tokens: which commands of different units wait for each other.

A command waits for the writes of what it reads (RAW), and for earlier reads and writes of what it writes
(WAR, WAW). The commands of one unit are in order already. For each pair of units there is a queue of
tokens: the command that is waited for puts a token into it (`pushes`), and the one that waits takes one out
(`pops`). A wait that follows from earlier ones needs no token.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from dlc_core.backend.scratchpad.commands import Command
from dlc_core.diag import CodegenError, RuntimeFailure

Clock = dict[str, int]
"""For each unit, how many of its commands are done."""


class _Log:
    """The accesses of one unit to one memory, as intervals of bytes with the numbers of commands."""

    __slots__ = ("numbers", "rows")

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.rows: np.ndarray[Any, np.dtype[np.int64]] = np.empty((16, 2), np.int64)

    def add(self, begin: int, end: int, number: int) -> None:
        if len(self.numbers) == len(self.rows):
            self.rows = np.concatenate([self.rows, np.empty_like(self.rows)])
        self.rows[len(self.numbers)] = begin, end
        self.numbers.append(number)

    def last(self, begin: int, end: int, first: int) -> int:
        """The last command from number `first` on with an access to any of these bytes; -1: none."""
        start = bisect_left(self.numbers, first)
        rows = self.rows[start : len(self.numbers)]
        hits = np.flatnonzero((rows[:, 0] < end) & (rows[:, 1] > begin))
        return self.numbers[start + int(hits[-1])] if hits.size else -1


class Task(NamedTuple):
    """An instruction as the checks see it: its unit, and the bytes or entries that it accesses."""

    unit: str
    touched: Sequence[tuple[Hashable, int, int, bool]]
    """Memory, begin, end, and whether it is written."""
    pops: Sequence[str] = ()
    pushes: Sequence[str] = ()
    text: object = ""
    """The instruction, for messages."""


def task_of(command: Command) -> Task:
    """A command as a task."""
    touched = [((o.space, o.memory), *span, False) for o, span in command.reads()]
    target, span = command.writes()
    touched.append(((target.space, target.memory), *span, True))
    return Task(command.unit, touched, command.pops, command.pushes, command)


class Accesses:
    """All accesses so far. `number` counts the tasks of one unit."""

    def __init__(self) -> None:
        self.logs: dict[Hashable, dict[tuple[str, bool], _Log]] = defaultdict(lambda: defaultdict(_Log))

    def needed(self, task: Task, clock: Clock) -> Iterator[tuple[str, int, str]]:
        """For other units, the last task that must be done before this one, and why. Those that `clock` has
        are left out: the search looks at the few later accesses only, so a long stream takes linear time.
        """
        for memory, begin, end, writes in task.touched:
            for (unit, written), log in self.logs[memory].items():
                if unit != task.unit and (writes or written):
                    found = log.last(begin, end, clock.get(unit, 0))
                    if found >= 0:
                        yield unit, found, "RAW" if not writes else "WAW" if written else "WAR"

    def add(self, task: Task, number: int) -> None:
        for memory, begin, end, writes in task.touched:
            self.logs[memory][task.unit, writes].add(begin, end, number)


Linked = Callable[[str, str], bool]


def _all(first: str, second: str) -> bool:
    return True


def tokens_for(tasks: Sequence[Task], linked: Linked = _all) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
    """For each task the units whose tokens it takes, and those that it gives one to.

    `linked(a, b)` says whether unit a can give tokens to unit b. Raises CodegenError if a task must wait for
    a unit that cannot give it a token.
    """
    accesses, counts = Accesses(), defaultdict[str, int](int)
    clocks: dict[str, Clock] = defaultdict(dict)
    after: dict[tuple[str, int], Clock] = {}
    position: dict[tuple[str, int], int] = {}
    pops: list[list[str]] = [[] for _ in tasks]
    pushes: list[list[str]] = [[] for _ in tasks]
    for i, task in enumerate(tasks):
        clock = clocks[task.unit]
        wanted: dict[str, int] = {}
        for unit, number, _ in accesses.needed(task, clock):
            wanted[unit] = max(wanted.get(unit, -1), number)
        # A token of the latest task may tell of the others, so it is taken first.
        for unit, number in sorted(wanted.items(), key=lambda item: -position[item]):
            if clock.get(unit, 0) > number:
                continue
            if not linked(unit, task.unit):
                why = f"{unit} gives {task.unit} no tokens"
                raise CodegenError(f"{task.text} must wait for {tasks[position[unit, number]].text}", why=why)
            pops[i].append(unit)
            pushes[position[unit, number]].append(task.unit)
            _merge(clock, after[unit, number])
        number = counts[task.unit]
        accesses.add(task, number)
        counts[task.unit] = clock[task.unit] = number + 1
        after[task.unit, number], position[task.unit, number] = dict(clock), i
    return [(tuple(a), tuple(b)) for a, b in zip(pops, pushes, strict=True)]


def synchronise(commands: Sequence[Command], linked: Linked = _all) -> tuple[Command, ...]:
    """The commands with tokens. Raises CodegenError as `tokens_for` does."""
    made = tokens_for([task_of(command) for command in commands], linked)
    return tuple(
        replace(command, pops=pops, pushes=pushes)
        for command, (pops, pushes) in zip(commands, made, strict=True)
    )


def check_tasks(tasks: Iterable[Task]) -> None:
    """Prove that tokens order all conflicting tasks, whatever their times are.

    Raises RuntimeFailure for the first task that is not ordered after one that it depends on, and for one
    that waits for a token that no earlier task gives.
    """
    accesses, counts = Accesses(), defaultdict[str, int](int)
    clocks: dict[str, Clock] = defaultdict(dict)
    queues: dict[tuple[str, str], deque[Clock]] = defaultdict(deque)
    for task in tasks:
        clock = clocks[task.unit]
        for unit in task.pops:
            if not queues[unit, task.unit]:
                raise RuntimeFailure(
                    f"{task.text}: it waits for a token of {unit} that nothing earlier gives"
                )
            _merge(clock, queues[unit, task.unit].popleft())
        for unit, number, why in accesses.needed(task, clock):
            raise RuntimeFailure(
                f"race: {task.text} is not ordered after instruction {number} of {unit}",
                why=f"the two access the same memory ({why}), and no token is between them",
            )
        number = counts[task.unit]
        accesses.add(task, number)
        counts[task.unit] = clock[task.unit] = number + 1
        for unit in task.pushes:
            queues[task.unit, unit].append(dict(clock))


def check_tokens(commands: Sequence[Command]) -> None:
    """Prove that tokens order all conflicting commands. Raises RuntimeFailure as `check_tasks` does."""
    check_tasks(map(task_of, commands))


def _merge(clock: Clock, other: Clock) -> None:
    for unit, count in other.items():
        clock[unit] = max(clock.get(unit, 0), count)


__all__ = ["Task", "check_tasks", "check_tokens", "synchronise", "task_of", "tokens_for"]
