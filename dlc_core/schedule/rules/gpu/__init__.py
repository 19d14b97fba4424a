"""Rules for machines that launch groups of threads: they read the axes and memories of the description."""

from dlc_core.schedule.rules.base import ScheduleRule
from dlc_core.schedule.rules.gpu.loops import LoopsRule
from dlc_core.schedule.rules.gpu.maps import MapRule

GPU_RULES: tuple[ScheduleRule, ...] = (
    MapRule(),
    LoopsRule(),
)
"""Highest priority first."""
