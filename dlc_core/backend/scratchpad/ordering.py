"""The static scheduler: the order of the commands in the queues of the units.

Queues are in order, so a command that must wait stops all later ones. The scheduler simulates the
units and lets each take, of its next `WINDOW` commands in program order, the one that can start first. A
copy for the next tile then goes before a copy that waits for a buffer. Dependences between commands are
kept.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dlc_core.backend.scratchpad.commands import Command
from dlc_core.backend.scratchpad.cycles import Durations
from dlc_core.target.description import Description

WINDOW = 12
"""How many commands of a unit are compared."""


class _Live:
    """The accesses to one memory that later commands may conflict with: begin, end, command, write."""

    __slots__ = ("count", "rows")

    def __init__(self) -> None:
        self.count = 0
        self.rows: np.ndarray[Any, np.dtype[np.int64]] = np.empty((16, 4), np.int64)

    def conflicts(self, begin: int, end: int, writes: bool) -> list[int]:
        """The commands whose accesses overlap these bytes, if one of the two writes."""
        rows = self.rows[: self.count]
        hits = (rows[:, 0] < end) & (rows[:, 1] > begin)
        if not writes:
            hits &= rows[:, 3] == 1
        found: list[int] = rows[hits, 2].tolist()
        return found

    def add(self, begin: int, end: int, number: int, writes: bool) -> None:
        if writes:
            # What this command overwrites, others reach through it.
            rows = self.rows[: self.count]
            keep = (rows[:, 0] < begin) | (rows[:, 1] > end)
            self.count = int(keep.sum())
            self.rows[: self.count] = rows[keep]
        if self.count == len(self.rows):
            self.rows = np.concatenate([self.rows, np.empty_like(self.rows)])
        self.rows[self.count] = begin, end, number, writes
        self.count += 1


def dependences(commands: Sequence[Command]) -> list[set[int]]:
    """For each command the earlier ones that must be done before it starts, directly or through others."""
    memories: dict[tuple[str, int], _Live] = defaultdict(_Live)
    found = []
    for number, command in enumerate(commands):
        target, written = command.writes()
        read = command.reads()
        before: set[int] = set()
        for operand, span in read:
            before.update(memories[operand.space, operand.memory].conflicts(*span, False))
        before.update(memories[target.space, target.memory].conflicts(*written, True))
        for operand, span in read:
            memories[operand.space, operand.memory].add(*span, number, False)
        # Bytes between the elements of a strided target are not written.
        dense = written[1] - written[0] == target.itemsize * int(np.prod(command.extents, dtype=np.int64))
        live = memories[target.space, target.memory]
        if dense:
            live.add(*written, number, True)
        else:
            live.add(written[0], written[0], number, True)
            live.rows[live.count - 1, 1] = written[1]
        found.append(before - {number})
    return found


def ordered(
    commands: Sequence[Command], machine: Description, cycles: Callable[[Command], int] | None = None
) -> list[int]:
    """The numbers of the commands in the order in which the units should get them."""
    take = cycles or Durations(machine)
    before = dependences(commands)
    after: list[list[int]] = [[] for _ in commands]
    missing = [len(each) for each in before]
    for number, others in enumerate(before):
        for other in others:
            after[other].append(number)
    queues: dict[str, list[int]] = defaultdict(list)
    for number, command in enumerate(commands):
        queues[command.unit].append(number)
    ready = [0] * len(commands)
    free = dict.fromkeys(queues, 0)
    made: list[tuple[int, int]] = []
    while len(made) < len(commands):
        best: tuple[int, int] | None = None
        for unit, queue in queues.items():
            for number in queue[:WINDOW]:
                if not missing[number]:
                    start = max(free[unit], ready[number])
                    if best is None or (start, number) < best:
                        best = start, number
                    if start == free[unit]:
                        break
        assert best is not None
        start, number = best
        unit = commands[number].unit
        end = start + take(commands[number])
        queues[unit].remove(number)
        free[unit] = end
        made.append((start, number))
        for other in after[number]:
            missing[other] -= 1
            ready[other] = max(ready[other], end)
    return [number for _, number in sorted(made)]


__all__ = ["WINDOW", "dependences", "ordered"]
