"""Schedules: transformations of tensor programs that do not change their results."""

from dlc_core.schedule.handles import BlockRV, Copy, LoopRV, Loops, flat
from dlc_core.schedule.index_map import IndexMap
from dlc_core.schedule.intrin import TensorIntrin
from dlc_core.schedule.schedule import Schedule
from dlc_core.schedule.stages import Stage, StagedSchedule, create_schedule
from dlc_core.schedule.trace import Trace

__all__ = [
    "BlockRV",
    "Copy",
    "IndexMap",
    "LoopRV",
    "Loops",
    "Schedule",
    "Stage",
    "StagedSchedule",
    "TensorIntrin",
    "Trace",
    "create_schedule",
    "flat",
]
