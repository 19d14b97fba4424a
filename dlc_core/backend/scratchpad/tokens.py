"""Dependence tokens: which commands of different units wait for each other.

A command waits for the writes of what it reads (RAW), and for earlier reads and writes of what it writes
(WAR, WAW). The commands of one unit are in order already. For each pair of units there is a queue of
tokens: the command that is waited for puts a token into it (`pushes`), and the one that waits takes one out
(`pops`). A wait that follows from earlier ones needs no token.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dlc_core.backend.scratchpad.commands import Command
from dlc_core.diag import CodegenError, RuntimeFailure

Clock = dict[str, int]
"""For each unit, how many of its commands are done."""


class _Log:
    """The accesses of one unit to one memory, as intervals of bytes with the numbers of commands."""

    __slots__ = ("count", "rows")

    def __init__(self) -> None:
        self.count = 0
        self.rows: np.ndarray[Any, np.dtype[np.int64]] = np.empty((16, 3), np.int64)

    def add(self, begin: int, end: int, number: int) -> None:
        if self.count == len(self.rows):
            self.rows = np.concatenate([self.rows, np.empty_like(self.rows)])
        self.rows[self.count] = begin, end, number
        self.count += 1

    def last(self, begin: int, end: int) -> int:
        """The last command with an access to any of these bytes; -1 if there is none."""
        rows = self.rows[: self.count]
        hits = np.flatnonzero((rows[:, 0] < end) & (rows[:, 1] > begin))
        return int(rows[hits[-1], 2]) if hits.size else -1


class Accesses:
    """All accesses so far. `number` counts the commands of one unit."""

    def __init__(self) -> None:
        self.logs: dict[tuple[str, int], dict[tuple[str, bool], _Log]] = defaultdict(
            lambda: defaultdict(_Log)
        )

    def needed(self, command: Command) -> Iterator[tuple[str, int, str]]:
        """For other units, the last command that must be done before this one, and why."""
        target, written = command.writes()
        spans = [(each, span, (True,), "RAW") for each, span in command.reads()]
        spans += [(target, written, (True,), "WAW"), (target, written, (False,), "WAR")]
        for operand, span, kinds, why in spans:
            for (unit, writes), log in self.logs[operand.space, operand.memory].items():
                if unit != command.unit and writes in kinds:
                    found = log.last(*span)
                    if found >= 0:
                        yield unit, found, why

    def add(self, command: Command, number: int) -> None:
        for operand, span in command.reads():
            self.logs[operand.space, operand.memory][command.unit, False].add(*span, number)
        target, span = command.writes()
        self.logs[target.space, target.memory][command.unit, True].add(*span, number)


def synchronise(
    commands: Sequence[Command], linked: Callable[[str, str], bool] = lambda first, second: True
) -> tuple[Command, ...]:
    """The commands with tokens. `linked(a, b)` says whether unit a can give tokens to unit b.

    Raises CodegenError if a command must wait for a unit that cannot give it a token.
    """
    accesses, counts = Accesses(), defaultdict[str, int](int)
    clocks: dict[str, Clock] = defaultdict(dict)
    after: dict[tuple[str, int], Clock] = {}
    position: dict[tuple[str, int], int] = {}
    pops: list[list[str]] = [[] for _ in commands]
    pushes: list[list[str]] = [[] for _ in commands]
    for i, command in enumerate(commands):
        clock = clocks[command.unit]
        wanted: dict[str, int] = {}
        for unit, number, _ in accesses.needed(command):
            wanted[unit] = max(wanted.get(unit, -1), number)
        # A token of the latest command may tell of the others, so it is taken first.
        for unit, number in sorted(wanted.items(), key=lambda item: -position[item]):
            if clock.get(unit, 0) > number:
                continue
            if not linked(unit, command.unit):
                raise CodegenError(
                    f"{command} must wait for {unit}", why=f"{unit} gives {command.unit} no tokens"
                )
            pops[i].append(unit)
            pushes[position[unit, number]].append(command.unit)
            _merge(clock, after[unit, number])
        number = counts[command.unit]
        accesses.add(command, number)
        counts[command.unit] = clock[command.unit] = number + 1
        after[command.unit, number], position[command.unit, number] = dict(clock), i
    return tuple(
        replace(command, pops=tuple(a), pushes=tuple(b))
        for command, a, b in zip(commands, pops, pushes, strict=True)
    )


def check_tokens(commands: Sequence[Command]) -> None:
    """Prove that tokens order all conflicting commands, whatever their times are.

    Raises RuntimeFailure for the first command that is not ordered after one that it depends on, and for one
    that waits for a token that no earlier command gives.
    """
    accesses, counts = Accesses(), defaultdict[str, int](int)
    clocks: dict[str, Clock] = defaultdict(dict)
    queues: dict[tuple[str, str], deque[Clock]] = defaultdict(deque)
    for command in commands:
        clock = clocks[command.unit]
        for unit in command.pops:
            if not queues[unit, command.unit]:
                raise RuntimeFailure(
                    f"{command}: it waits for a token of {unit} that no earlier command gives"
                )
            _merge(clock, queues[unit, command.unit].popleft())
        for unit, number, why in accesses.needed(command):
            if clock.get(unit, 0) <= number:
                raise RuntimeFailure(
                    f"race: {command} is not ordered after command {number} of {unit}",
                    why=f"the two access the same bytes ({why}), and no token is between them",
                )
        number = counts[command.unit]
        accesses.add(command, number)
        counts[command.unit] = clock[command.unit] = number + 1
        for unit in command.pushes:
            queues[command.unit, unit].append(dict(clock))


def _merge(clock: Clock, other: Clock) -> None:
    for unit, count in other.items():
        clock[unit] = max(clock.get(unit, 0), count)


__all__ = ["Accesses", "check_tokens", "synchronise"]
