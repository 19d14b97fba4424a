"""The time of a stream: units with queues, tokens and banks.

A command starts when

- it was dispatched: the stream is dispatched in order, one command in `dispatch` cycles, and a unit holds
  `Unit.queue` commands that have not started;
- its unit is free, and the tokens that it takes are there; a command gives its tokens when it has ended;
- no other unit uses the banks of its tiles. Of two commands, the one that is earlier in the stream goes
  first.

Times do not depend on data.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Sequence

from dlc_core.backend.scratchpad.commands import MAIN, Command, duration
from dlc_core.diag import RuntimeFailure
from dlc_core.support.record import record
from dlc_core.target.description import Description
from dlc_core.target.units import Unit

DISPATCH = 4
"""Cycles to dispatch a command, unless a device gives another number."""
REASONS = ("dispatch", "unit", "tokens", "banks")
"""What a command may wait for."""


@record(frozen=True)
class Timing:
    """The cycles of a stream: start and end of each command, and for each unit the cycles in which it works
    and those in which it waits, by reason.
    """

    cycles: int
    spans: tuple[tuple[int, int], ...]
    busy: dict[str, int]
    waits: dict[str, dict[str, int]]

    def __str__(self) -> str:
        lines = [f"{self.cycles:,} cycles, {len(self.spans):,} commands"]
        for unit, cycles in self.busy.items():
            reasons = ", ".join(f"{c:,} for {why}" for why, c in self.waits[unit].items() if c)
            lines.append(
                f"  {unit:8}{cycles / max(1, self.cycles):6.1%} busy" + f"; waits {reasons}" * bool(reasons)
            )
        return "\n".join(lines)


def simulate(
    commands: Sequence[Command],
    machine: Description,
    *,
    cycles: Callable[[Command], int] | None = None,
    dispatch: int = DISPATCH,
) -> Timing:
    """The times of a stream on an idle machine. `cycles` gives the duration of a command; by default it is
    that of the description.

    Raises RuntimeFailure for a stream that would stop: a command that waits for a token that no earlier
    command gives.
    """
    take = cycles or Durations(machine)
    units = {unit.name: unit for unit in machine.units}
    free: dict[str, int] = defaultdict(int)
    started: dict[str, deque[int]] = {name: deque(maxlen=unit.queue) for name, unit in units.items()}
    tokens: dict[tuple[str, str], deque[int]] = defaultdict(deque)
    banks: dict[tuple[str, int], tuple[str, int]] = {}
    busy = dict.fromkeys(units, 0)
    waits = {name: dict.fromkeys(REASONS[:1] + REASONS[2:], 0) for name in units}
    spans, fetched = [], 0
    for command in commands:
        unit = command.unit
        if unit not in units:
            raise RuntimeFailure(f"{command}: the machine has no unit {unit!r}")
        full = started[unit][0] if len(started[unit]) == units[unit].queue else 0
        fetched = max(fetched + dispatch, full)
        arrived = 0
        for other in command.pops:
            if not tokens[other, unit]:
                raise RuntimeFailure(
                    f"deadlock: {command} waits for a token of {other}", why="no earlier command gives one"
                )
            arrived = max(arrived, tokens[other, unit].popleft())
        own = _banks(command, machine)
        held = max(
            (end for bank in own for user, end in [banks.get(bank, ("", 0))] if user != unit), default=0
        )
        times = (fetched, free[unit], arrived, held)
        start = max(times)
        if start > free[unit]:
            waits[unit][REASONS[times.index(start)]] += start - free[unit]
        end = start + take(command)
        busy[unit] += end - start
        free[unit] = end
        started[unit].append(start)
        banks.update(dict.fromkeys(own, (unit, end)))
        for other in command.pushes:
            tokens[unit, other].append(end)
        spans.append((start, end))
    return Timing(max(free.values(), default=0), tuple(spans), busy, waits)


class Durations:
    """The duration of commands by the description. Equal shapes are computed once."""

    def __init__(self, machine: Description) -> None:
        self.units: dict[str, Unit] = {unit.name: unit for unit in machine.units}
        self.machine = machine

    def __call__(self, command: Command) -> int:
        scope = next((o.space for o in command.operands if o.space != MAIN), "")
        return duration(command, self.units[command.unit], self.machine.scope(scope) if scope else None)


def _banks(command: Command, machine: Description) -> list[tuple[str, int]]:
    """The banks that a command uses."""
    found = []
    for operand in command.operands:
        scope = machine.scope(operand.space) if operand.space != MAIN else None
        if scope is not None and scope.banks > 1:
            begin, end = operand.interval(command.whole)
            found += [
                (scope.name, bank) for bank in range(begin // scope.bank_bytes, -(-end // scope.bank_bytes))
            ]
    return found


__all__ = ["DISPATCH", "Durations", "Timing", "simulate"]
