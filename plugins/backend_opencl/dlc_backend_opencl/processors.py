"""Schedules for CPU devices: the core's rules for CPUs, with a group of one thread for each parallel
iteration.

Drivers for CPUs run all threads of a group on one core, so sharing memory among many threads gains nothing.
One thread per group with explicit vectors uses a CPU best.
"""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from dlc_backend_opencl.kind import PROCESSOR
from dlc_core.plugin.builtin import from_slices
from dlc_core.schedule.dependence import outer_blocks
from dlc_core.schedule.handles import BlockRV
from dlc_core.schedule.rules.base import Machine, ScheduleRule
from dlc_core.schedule.rules.cpu import CPU_RULES
from dlc_core.schedule.rules.gpu.grid import Grid, bind_single_thread
from dlc_core.schedule.schedule import Schedule
from dlc_core.tir.stmt import PrimFunc
from dlc_core.tir.threads import is_axis

_FIRST = 1000
"""The difference between the priorities of these rules and those of the core."""


class ProcessorRule(ScheduleRule):
    """A CPU rule of the core, whose parallel loops are bound to groups."""

    def __init__(self, rule: ScheduleRule) -> None:
        self.rule = rule
        # Rules are identified by their names, and each of these wraps one of the core's.
        self.name = f"opencl.{rule.name}"  # type: ignore[misc]
        self.priority = _FIRST + rule.priority  # type: ignore[misc]
        self.keys = rule.keys  # type: ignore[misc]
        self.decisions = rule.decisions  # type: ignore[misc]

    @property
    def about(self) -> str:
        """The purpose of the class, and the rule of the core: when it applies, and its loop nest."""
        return f"{type(self).__doc__}\n\n{self.rule.about}"

    def matches(self, func: PrimFunc, machine: Machine) -> bool:
        """Whether the machine is a CPU, and the wrapped rule matches the kernel."""
        return bool(machine.description.extra.get(PROCESSOR)) and self.rule.matches(func, _alone(machine))

    def apply(self, schedule: Schedule, machine: Machine) -> None:
        """Schedule the kernel. Raises ScheduleError if its loops cannot be bound to groups."""
        self.rule.apply(schedule, _alone(machine))
        grid = Grid.of(machine)
        for block in outer_blocks(schedule.func.body):
            _launch(schedule, grid, BlockRV(block.name))


def _alone(machine: Machine) -> Machine:
    """The machine without thread axes, for rules of CPUs."""
    facts = replace(machine.description, thread_axes={}, parallel=True)
    return replace(machine, description=facts)


def _launch(s: Schedule, grid: Grid, handle: BlockRV) -> None:
    """Bind the loop nest of a block to groups, unless it is already bound."""
    loops = s.get_loops(handle)
    if any(is_axis(s.get_for(loop)) for loop in loops):
        return
    parallel = [loop for loop in loops if s.get_for(loop).kind == "parallel"]
    for loop in parallel:
        s.serial(loop)
    if parallel:
        s.bind(parallel[0], grid.groups)
    else:
        bind_single_thread(s, grid, loops[0] if loops else handle)


_SLICES = cast(tuple[ScheduleRule, ...], from_slices("dlc_schedule_rules"))
RULES = tuple(map(ProcessorRule, (*_SLICES, *CPU_RULES)))

__all__ = ["RULES", "ProcessorRule"]
