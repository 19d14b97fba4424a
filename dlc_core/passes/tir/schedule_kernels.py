"""Every kernel gets the schedule that the first fitting rule chooses from the target's description record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dlc_core.passes.base import PassContext
from dlc_core.passes.tir.base import PrimFuncPass
from dlc_core.schedule import Schedule
from dlc_core.schedule.rules import RULES
from dlc_core.schedule.rules.base import Machine, ScheduleRule
from dlc_core.tir.stmt import PrimFunc


@dataclass(frozen=True)
class ScheduleKernels(PrimFuncPass):
    """Apply schedule rules; `rules` restricts them to those names, empty means all."""

    name: ClassVar[str] = "schedule_kernels"
    place: ClassVar[tuple[float, ...]] = (50,)
    min_level: ClassVar[int] = 1
    rules: tuple[str, ...] = ()

    def run_function(self, func: PrimFunc, context: PassContext) -> PrimFunc:
        if context.target is None:
            return func
        description = context.target.describe()
        machine = Machine(description, description.cores)
        for rule in self._candidates(context):
            if rule.matches(func, machine):
                schedule = Schedule(func)
                rule.apply(schedule, machine)
                schedule.compact_buffers()
                return schedule.func
        return func

    def _candidates(self, context: PassContext) -> list[ScheduleRule]:
        found = [*context.schedule_rules, *(r for r in RULES if r not in context.schedule_rules)]
        wanted = [r for r in found if not self.rules or r.name in self.rules]
        return sorted(wanted, key=lambda rule: -rule.priority)
