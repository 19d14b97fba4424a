"""Rules for machines with vector registers and a few cores."""

from dlc_core.schedule.rules.base import ScheduleRule
from dlc_core.schedule.rules.cpu.contraction import ContractionRule
from dlc_core.schedule.rules.cpu.lanes import LanesRule
from dlc_core.schedule.rules.cpu.loops import LoopsRule
from dlc_core.schedule.rules.cpu.maps import MapRule
from dlc_core.schedule.rules.cpu.rows import RowsRule

CPU_RULES: tuple[ScheduleRule, ...] = (
    ContractionRule(),
    LanesRule(),
    RowsRule(),
    MapRule(),
    LoopsRule(),
)
"""Highest priority first."""
