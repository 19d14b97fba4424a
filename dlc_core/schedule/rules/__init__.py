"""Schedule rules of the core, by kind of machine."""

from dlc_core.schedule.rules.base import Machine, ScheduleRule
from dlc_core.schedule.rules.cpu import CPU_RULES
from dlc_core.schedule.rules.gpu import GPU_RULES
from dlc_core.target.description import Description

RULES: tuple[ScheduleRule, ...] = (*CPU_RULES, *GPU_RULES)


def rules_for(description: Description) -> tuple[ScheduleRule, ...]:
    """The core's rules for a machine: those of `gpu` if it has thread axes, else those of `cpu`."""
    return GPU_RULES if description.thread_axes else CPU_RULES


__all__ = ["RULES", "Machine", "ScheduleRule", "rules_for"]
