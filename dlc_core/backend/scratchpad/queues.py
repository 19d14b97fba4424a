"""The time of units that execute the instructions of their queues in order, and wait by tokens.

An instruction starts when

- it was dispatched: the stream is dispatched in order, one instruction in `dispatch` cycles, and a unit holds
  as many instructions that have not started as its queue has room for;
- its unit is free, and the tokens that it takes are there; an instruction gives its tokens when it has ended;
- no other unit uses the same resources, such as banks. Of two instructions, the one that is earlier in the
  stream goes first.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Generic, NamedTuple, TypeVar

from dlc_core.diag import RuntimeFailure
from dlc_core.support.record import record

Instruction = TypeVar("Instruction")


class Step(NamedTuple):
    """An instruction as the simulation sees it."""

    unit: str
    cycles: int
    pops: Sequence[str] = ()
    """The units whose tokens it takes."""
    pushes: Sequence[str] = ()
    """The units that it gives a token to."""
    resources: Sequence[Hashable] = ()
    """What it uses alone among the units."""


@record(frozen=True)
class Timing:
    """The cycles of a stream: start and end of each instruction, and for each unit the cycles in which it
    works and those in which it waits, by reason.
    """

    cycles: int
    spans: tuple[tuple[int, int], ...]
    busy: dict[str, int]
    waits: dict[str, dict[str, int]]

    @property
    def instructions(self) -> int:
        """The number of instructions."""
        return len(self.spans)

    @property
    def utilisation(self) -> dict[str, float]:
        """The part of the time in which each unit works."""
        return {unit: busy / max(1, self.cycles) for unit, busy in self.busy.items()}

    def __str__(self) -> str:
        lines = [f"{self.cycles:,} cycles, {len(self.spans):,} instructions"]
        for unit, part in self.utilisation.items():
            reasons = ", ".join(f"{cycles:,} for {why}" for why, cycles in self.waits[unit].items() if cycles)
            lines.append(f"  {unit:8}{part:6.1%} busy" + (f"; waits {reasons}" if reasons else ""))
        return "\n".join(lines)


class Deadlock(RuntimeFailure):
    """No unit can go on, and the stream is not at its end."""


class Queues(Generic[Instruction]):
    """One run of a stream on an idle machine.

    `depths` are the instructions that each queue holds. `step` describes an instruction. `limit` ends a run
    that takes more cycles.
    """

    def __init__(
        self,
        depths: Mapping[str, int],
        step: Callable[[Instruction], Step],
        dispatch: int = 0,
        limit: int | None = None,
    ) -> None:
        self.step = step
        self.dispatch = dispatch
        self.limit = limit
        self.depths = depths
        self.waiting: dict[str, deque[tuple[int, Instruction, Step, int]]] = {
            unit: deque() for unit in depths
        }
        """The instructions of each queue, with their numbers and the cycles of their dispatch."""
        self.started = {unit: deque[int](maxlen=depth) for unit, depth in depths.items()}
        self.free = dict.fromkeys(depths, 0)
        self.busy = dict.fromkeys(depths, 0)
        self.waits: dict[str, dict[str, int]] = {unit: defaultdict(int) for unit in depths}
        self.tokens: dict[tuple[str, str], deque[int]] = defaultdict(deque)
        self.held: dict[Hashable, tuple[str, int]] = {}
        self.spans: dict[int, tuple[int, int]] = {}

    def run(self, stream: Iterable[Instruction]) -> Timing | None:
        """The times; None if the run was ended by the limit. Raises Deadlock, with the instructions that
        wait, for a stream that does not come to its end.
        """
        fetched = 0
        for number, one in enumerate(stream):
            step = self.step(one)
            if step.unit not in self.depths:
                raise RuntimeFailure(f"{one}: the machine has no unit {step.unit!r}")
            queue, depth = self.waiting[step.unit], self.depths[step.unit]
            while len(queue) >= depth:
                if not self._advance():
                    raise self._deadlock(f"the queue of {step.unit} is full, and after it")
            room, started = depth - len(queue), self.started[step.unit]
            fetched += self.dispatch
            if len(started) >= room:
                fetched = max(fetched, started[-room])
            queue.append((number, one, step, fetched))
            if len(queue) == 1:
                self._advance()
            if self.limit is not None and max(self.free.values()) > self.limit:
                return None
        self._advance()
        if any(self.waiting.values()):
            raise self._deadlock("the stream is at its end, and")
        spans = tuple(self.spans[number] for number in range(len(self.spans)))
        waits = {unit: dict(reasons) for unit, reasons in self.waits.items()}
        return Timing(max(self.free.values(), default=0), spans, self.busy, waits)

    def _advance(self) -> bool:
        """Start all instructions that have their tokens; whether there were any."""
        some = moved = False
        while True:
            for unit in self.depths:
                while self._start(unit):
                    moved = some = True
            if not moved:
                return some
            moved = False

    def _start(self, unit: str) -> bool:
        if not self.waiting[unit]:
            return False
        number, one, step, fetched = self.waiting[unit][0]
        if not all(self.tokens[other, unit] for other in step.pops):
            return False
        times = {"dispatch": fetched}
        times.update((f"tokens of {other}", self.tokens[other, unit].popleft()) for other in step.pops)
        users = [self.held.get(each, ("", 0)) for each in step.resources]
        times["banks"] = max((end for user, end in users if user != unit), default=0)
        why = max(times, key=times.__getitem__)
        start = max(self.free[unit], times[why])
        if start > self.free[unit]:
            self.waits[unit][why] += start - self.free[unit]
        end = start + step.cycles
        self.waiting[unit].popleft()
        self.started[unit].append(start)
        self.busy[unit] += step.cycles
        self.free[unit] = end
        self.spans[number] = start, end
        self.held.update(dict.fromkeys(step.resources, (unit, end)))
        for other in step.pushes:
            if other not in self.depths:
                raise RuntimeFailure(f"{one}: there is no unit {other!r} that takes its token")
            self.tokens[unit, other].append(end)
        return True

    def _deadlock(self, where: str) -> Deadlock:
        heads = [f"{unit} waits at: {queue[0][1]}" for unit, queue in self.waiting.items() if queue]
        return Deadlock(
            "deadlock: the units wait for each other",
            why=f"{where} no instruction has its tokens",
            details=heads,
            hint="each token that is taken must be given by an instruction of another unit",
        )


__all__ = ["Deadlock", "Queues", "Step", "Timing"]
