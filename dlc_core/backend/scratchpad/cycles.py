"""The time of a stream of commands, by the units and the banks of a description."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dlc_core.backend.scratchpad.commands import MAIN, Command, duration
from dlc_core.backend.scratchpad.queues import Queues, Step, Timing
from dlc_core.target.description import Description

DISPATCH = 4
"""Cycles to dispatch a command, unless a device gives another number."""


def simulate(
    commands: Sequence[Command],
    machine: Description,
    *,
    cycles: Callable[[Command], int] | None = None,
    dispatch: int = DISPATCH,
) -> Timing:
    """The times of a stream on an idle machine (`queues`). `cycles` gives the duration of a command; by
    default it is that of the description. Times do not depend on data.

    Raises Deadlock for a stream that would stop.
    """
    take = cycles or Durations(machine)

    def step(command: Command) -> Step:
        return Step(command.unit, take(command), command.pops, command.pushes, banks_of(command, machine))

    made = Queues({unit.name: unit.queue for unit in machine.units}, step, dispatch).run(commands)
    assert made is not None
    return made


class Durations:
    """The duration of commands by the description. Raises TargetError for a unit that it does not have."""

    def __init__(self, machine: Description) -> None:
        self.machine = machine

    def __call__(self, command: Command) -> int:
        scope = next((o.space for o in command.operands if o.space != MAIN), "")
        return duration(
            command, self.machine.unit(command.unit), self.machine.scope(scope) if scope else None
        )


def banks_of(command: Command, machine: Description) -> list[tuple[str, int]]:
    """The banks that a command uses, as (scope, number)."""
    found = []
    for operand in command.operands:
        scope = machine.scope(operand.space) if operand.space != MAIN else None
        if scope is not None and scope.banks > 1 and scope.bytes:
            begin, end = operand.interval(command.whole)
            last = -(-end // scope.bank_bytes)
            found += [(scope.name, bank) for bank in range(begin // scope.bank_bytes, last)]
    return found


__all__ = ["DISPATCH", "Durations", "Timing", "banks_of", "simulate"]
