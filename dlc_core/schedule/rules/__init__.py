"""Schedule rules of the core, by kind of machine."""

from dlc_core.schedule.rules.base import Machine, ScheduleRule
from dlc_core.schedule.rules.cpu import CPU_RULES

RULES: tuple[ScheduleRule, ...] = CPU_RULES

__all__ = ["RULES", "Machine", "ScheduleRule"]
