"""How long a stream takes: the cycle-level simulator.

Three units run at the same time, each in the order of its queue:

- The fetch unit reads the stream through a port of its own, one instruction in ceil(64 / bus) cycles, and
  puts it into the queue of its unit; it waits while that is full (an instruction leaves its queue as it
  begins).
- A transfer takes `latency` cycles and those of the bus (`transfer.beats`); loads and stores have a bus each.
- Gemm takes one block in a cycle, `outer inner (end - begin)` of them; Alu takes `alu_beat` cycles for each
  entry; both `STARTUP` cycles more, in which their pipelines fill.
- An instruction begins when it is in its queue, the one before it is done, and there are the tokens that it
  pops.  Tokens that it pushes are there when it is done.

Times follow from the stream alone, whatever the numbers are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from dlc_backend_vta.config import Config
from dlc_backend_vta.isa import Alu, Gemm, Instruction, Transfer, Unit
from dlc_backend_vta.transfer import beats
from dlc_core.diag import RuntimeFailure

STARTUP = 8
"""Cycles in which the pipeline of an instruction of the unit compute fills."""
REASONS = ("instructions", "tokens of the previous unit", "tokens of the next unit")
"""The reasons why a unit waits."""


def duration(one: Instruction, config: Config) -> int:
    """Cycles from the beginning of an instruction to its end."""
    if isinstance(one, Transfer):
        return config.latency + beats(one, config)
    assert isinstance(one, (Gemm, Alu))
    blocks = one.outer * one.inner * (one.end - one.begin)
    return STARTUP + blocks * (1 if isinstance(one, Gemm) else config.alu_beat)


@dataclass
class Report:
    """Cycles of a stream; those in which each unit is busy, and what it waits for in the others."""

    cycles: int = 0
    instructions: int = 0
    busy: dict[str, int] = field(default_factory=dict)
    stalls: dict[str, dict[str, int]] = field(default_factory=dict)

    @property
    def utilisation(self) -> dict[str, float]:
        """The part of the time in which each unit is busy."""
        return {name: busy / max(1, self.cycles) for name, busy in self.busy.items()}

    def __str__(self) -> str:
        lines = [f"{self.cycles} cycles, {self.instructions} instructions"]
        for name, part in self.utilisation.items():
            waits = ", ".join(f"{cycles} for {why}" for why, cycles in self.stalls[name].items() if cycles)
            lines.append(f"  {name:8}{part:6.1%} busy" + (f"; waits {waits}" if waits else ""))
        return "\n".join(lines)


class Deadlock(RuntimeFailure):
    """No unit can go on, and the stream is not at its end."""


class _State:
    """A unit and its queue."""

    def __init__(self, depth: int) -> None:
        self.waiting: deque[tuple[Instruction, int]] = deque()
        """Instructions in the queue, with the times at which they came."""
        self.begun: deque[int] = deque(maxlen=depth)
        """When the last instructions began."""
        self.free = 0
        self.busy = 0
        self.stalls = [0, 0, 0]


class Simulator:
    """One run of a stream on an idle machine.

    `limit` ends it as soon as it is known to take longer; `run` then gives None.
    """

    def __init__(self, config: Config, limit: int | None = None) -> None:
        self.config = config
        self.limit = limit
        self.units = [_State(config.queue) for _ in Unit]
        self.tokens: list[tuple[deque[int], deque[int]]] = [(deque(), deque()) for _ in Unit]
        """For each unit when its tokens came, from the previous unit and from the next one."""

    def run(self, program: Iterable[Instruction]) -> Report | None:
        """The cycles; Deadlock, with the instructions that wait, where it does not come to its end."""
        depth, fetched, count = self.config.queue, 0, 0
        for one in program:
            state = self.units[one.unit]
            while len(state.waiting) >= depth:
                if not self._advance():
                    raise self._deadlock(f"the queue of {one.unit.name.lower()} is full, and after it")
            room = depth - len(state.waiting)
            fetched += self.config.fetch
            if len(state.begun) >= room:
                fetched = max(fetched, state.begun[-room])
            state.waiting.append((one, fetched))
            count += 1
            if len(state.waiting) == 1:
                self._advance()
            if self.limit is not None and max(unit.free for unit in self.units) > self.limit:
                return None
        self._advance()
        if any(unit.waiting for unit in self.units):
            raise self._deadlock("the stream is at its end, and")
        return self._report(count)

    def _advance(self) -> bool:
        """Let units begin all that has its tokens; whether any did."""
        some = False
        moved = True
        while moved:
            moved = False
            for unit in Unit:
                while self._begin(unit):
                    moved = some = True
        return some

    def _begin(self, unit: Unit) -> bool:
        state = self.units[unit]
        if not state.waiting:
            return False
        one, ready = state.waiting[0]
        before, behind = self.tokens[unit]
        if (one.pop_prev and not before) or (one.pop_next and not behind):
            return False
        times = (ready, before.popleft() if one.pop_prev else 0, behind.popleft() if one.pop_next else 0)
        start = max(state.free, *times)
        if start > state.free:
            state.stalls[times.index(start)] += start - state.free
        took = duration(one, self.config)
        state.waiting.popleft()
        state.begun.append(start)
        state.busy += took
        state.free = start + took
        if one.push_prev:
            self._give(unit - 1, 1, state.free, one)
        if one.push_next:
            self._give(unit + 1, 0, state.free, one)
        return True

    def _give(self, unit: int, side: int, time: int, one: Instruction) -> None:
        if not 0 <= unit < len(self.tokens):
            raise RuntimeFailure(f"{one}: there is no unit that takes its token")
        self.tokens[unit][side].append(time)

    def _deadlock(self, where: str) -> Deadlock:
        heads = [
            f"{unit.name.lower()} waits at: {self.units[unit].waiting[0][0]}"
            for unit in Unit
            if self.units[unit].waiting
        ]
        return Deadlock(
            "the units wait for each other",
            why=f"{where} no instruction has its tokens",
            details=heads,
            hint="each pop needs a push of the neighbouring unit, on another instruction",
        )

    def _report(self, count: int) -> Report:
        return Report(
            max(unit.free for unit in self.units),
            count,
            {unit.name.lower(): self.units[unit].busy for unit in Unit},
            {unit.name.lower(): dict(zip(REASONS, self.units[unit].stalls)) for unit in Unit},
        )


def simulate(program: Iterable[Instruction], config: Config) -> Report:
    """The cycles of a stream on an idle machine; Deadlock where it does not come to its end."""
    made = Simulator(config).run(program)
    assert made is not None
    return made


__all__ = ["REASONS", "STARTUP", "Deadlock", "Report", "Simulator", "duration", "simulate"]
