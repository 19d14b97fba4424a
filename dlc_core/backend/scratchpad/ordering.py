"""The static scheduler: the order of the commands in the queues of the units.

Queues are in order, so a command that must wait stops all later ones. The scheduler simulates the
units and lets each take, of its next `WINDOW` commands in program order, the one that can start first. A
copy for the next tile then goes before a copy that waits for a buffer. Dependences between commands are
kept.

A stream may have hundreds of thousands of commands, and tiles of an NCHW tensor interleave as intervals of
bytes: each load of a layer conflicts with nearly every store of the layer before. Time and memory are linear
in the number of commands, because only recent accesses are compared one by one. A command waits for the older
ones in bulk: for all commands of a unit up to a number (`Before.up_to`). The scheduler hardly ever runs so
far ahead that such a wait matters.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from dlc_core.backend.scratchpad.commands import Command
from dlc_core.backend.scratchpad.cycles import Durations
from dlc_core.target.description import Description

WINDOW = 12
"""How many commands of a unit are compared."""
RECENT = 256
"""How many accesses to a memory are compared one by one: so many reads, and so many writes."""
SINGLE = 16
"""To how many conflicting commands a command has a dependence of its own."""


class Before(NamedTuple):
    """The commands that must be done before one starts, directly or through others."""

    single: tuple[int, ...]
    """Numbers of commands."""
    up_to: tuple[int, ...]
    """For each number n: all commands of the unit of command n, up to n."""


class _Recent:
    """The recent reads of one memory, or its recent writes, that later commands may conflict with: begin,
    end, command, unit. `older` has the last of the others for each unit.
    """

    __slots__ = ("count", "older", "rows")

    def __init__(self) -> None:
        self.count = 0
        self.rows: np.ndarray[Any, np.dtype[np.int64]] = np.empty((RECENT, 4), np.int64)
        self.older: dict[int, int] = {}

    def conflicts(self, begin: int, end: int) -> np.ndarray[Any, np.dtype[np.int64]]:
        """The accesses that overlap these bytes, as rows in program order."""
        rows = self.rows[: self.count]
        return rows[(rows[:, 0] < end) & (rows[:, 1] > begin)]

    def remove(self, begin: int, end: int) -> None:
        """Forget the accesses to these bytes only: others reach them through the command that writes all."""
        rows = self.rows[: self.count]
        kept = rows[(rows[:, 0] < begin) | (rows[:, 1] > end)]
        self.count = len(kept)
        self.rows[: self.count] = kept

    def add(self, begin: int, end: int, number: int, unit: int) -> None:
        if self.count == RECENT:
            half = RECENT // 2
            for _, _, other, its in self.rows[:half].tolist():
                self.older[its] = max(self.older.get(its, -1), other)
            self.rows[:half] = self.rows[half:].copy()
            self.count = half
        self.rows[self.count] = begin, end, number, unit
        self.count += 1


class _Memory:
    """The accesses to one memory."""

    __slots__ = ("reads", "writes")

    def __init__(self) -> None:
        self.reads, self.writes = _Recent(), _Recent()

    def conflicts(self, begin: int, end: int, writes: bool) -> Iterator[tuple[list[list[int]], list[int]]]:
        """The accesses of which one of the two writes: recent ones, and the last of the older ones."""
        for each in (self.writes, self.reads) if writes else (self.writes,):
            yield each.conflicts(begin, end).tolist(), list(each.older.values())


def _before(
    number: int, recent: Sequence[tuple[int, int]], older: Sequence[int], units: Sequence[int]
) -> Before:
    """The dependences of a command on recent accesses, as command and unit, and on older ones."""
    found = sorted(set(recent) - {(number, units[number])})
    last: dict[int, int] = {}
    for other in older:
        last[units[other]] = max(last.get(units[other], -1), other)
    for other, unit in found[:-SINGLE]:
        last[unit] = max(last.get(unit, -1), other)
    single = tuple(other for other, unit in found[-SINGLE:] if other > last.get(unit, -1))
    return Before(single, tuple(last.values()))


def dependences(commands: Sequence[Command]) -> list[Before]:
    """For each command the earlier ones that must be done before it starts, directly or through others."""
    memories: dict[tuple[str, int], _Memory] = defaultdict(_Memory)
    names: dict[str, int] = {}
    units = [names.setdefault(command.unit, len(names)) for command in commands]
    found = []
    for number, command in enumerate(commands):
        target, written = command.writes()
        read = command.reads()
        touched = [(memories[each.space, each.memory], span, False) for each, span in read]
        own = memories[target.space, target.memory]
        recent: list[tuple[int, int]] = []
        older: list[int] = []
        for memory, span, writes in (*touched, (own, written, True)):
            for rows, last in memory.conflicts(*span, writes):
                recent += [(other, unit) for _, _, other, unit in rows]
                older += last
        found.append(_before(number, recent, older, units))
        for memory, span, _ in touched:
            memory.reads.add(*span, number, units[number])
        # Bytes between the elements of a strided target are not written.
        if written[1] - written[0] == target.itemsize * math.prod(command.extents):
            own.reads.remove(*written)
            own.writes.remove(*written)
        own.writes.add(*written, number, units[number])
    return found


class _Queue:
    """The commands of one unit in program order, of which the scheduler takes one of the next `WINDOW`."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.next: list[int] = []
        """The commands that may be taken now."""
        self.seen = 0
        self.free = 0
        self.ends: dict[int, int] = {}
        """The ends of the commands that were taken, without those before which all were."""
        self.first = 0
        """The place of the first command that was not taken."""
        self.last_end = 0
        """The last end of the commands before it."""
        self.waiting: dict[int, list[int]] = {}
        """The commands that wait for all commands up to a number."""

    def fill(self) -> None:
        missing = WINDOW - len(self.next)
        self.next += self.numbers[self.seen : self.seen + missing]
        self.seen += missing

    def take(self, number: int, end: int) -> Iterator[tuple[int, int]]:
        """Take a command. The others that it completes a wait of, each with the time at which it is over."""
        self.next.remove(number)
        self.fill()
        self.free = self.ends[number] = end
        while self.first < len(self.numbers) and self.numbers[self.first] in self.ends:
            done = self.numbers[self.first]
            self.last_end = max(self.last_end, self.ends.pop(done))
            self.first += 1
            for other in self.waiting.pop(done, ()):
                yield other, self.last_end


def ordered(
    commands: Sequence[Command], machine: Description, cycles: Callable[[Command], int] | None = None
) -> list[int]:
    """The numbers of the commands in the order in which the units should get them."""
    take = cycles or Durations(machine)
    queues: dict[str, _Queue] = defaultdict(_Queue)
    after: dict[int, list[int]] = {}
    missing = [0] * len(commands)
    for number, (command, before) in enumerate(zip(commands, dependences(commands), strict=True)):
        queues[command.unit].numbers.append(number)
        missing[number] = len(before.single) + len(before.up_to)
        for other in before.single:
            after.setdefault(other, []).append(number)
        for other in before.up_to:
            queues[commands[other].unit].waiting.setdefault(other, []).append(number)
    for queue in queues.values():
        queue.fill()
    ready = [0] * len(commands)
    made: list[tuple[int, int]] = []
    while len(made) < len(commands):
        best: tuple[int, int] | None = None
        for queue in queues.values():
            for number in queue.next:
                if not missing[number]:
                    start = max(queue.free, ready[number])
                    if best is None or (start, number) < best:
                        best = start, number
                    if start == queue.free:
                        break
        assert best is not None
        start, number = best
        end = start + take(commands[number])
        made.append((start, number))
        released = [(other, end) for other in after.pop(number, ())]
        for other, time in (*released, *queues[commands[number].unit].take(number, end)):
            missing[other] -= 1
            ready[other] = max(ready[other], time)
    return [number for _, number in sorted(made)]


__all__ = ["RECENT", "WINDOW", "Before", "dependences", "ordered"]
