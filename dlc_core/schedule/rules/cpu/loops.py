"""Kernels of any kind, as they stand: their outermost independent loops are dealt out to threads.

The last resort: reductions of several values at once, as argmax is, come here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dlc_core.diag import ScheduleError
from dlc_core.schedule.rules.analysis import deal_out, work_of
from dlc_core.schedule.rules.base import Machine, ScheduleRule
from dlc_core.schedule.schedule import Schedule
from dlc_core.tir.functor import block_list
from dlc_core.tir.stmt import PrimFunc

PARALLEL_WORK = 1 << 13
"""Iterations below which a kernel is not worth waking other threads for."""


@dataclass(frozen=True)
class LoopsRule(ScheduleRule):
    """Whatever has blocks."""

    name: ClassVar[str] = "cpu.loops"
    priority: ClassVar[int] = 0

    def matches(self, func: PrimFunc, machine: Machine) -> bool:
        return bool(block_list(func.body))

    def apply(self, schedule: Schedule, machine: Machine) -> None:
        work = work_of(schedule.func)
        if not machine.description.parallel or (work is not None and work < PARALLEL_WORK):
            return
        for handle in schedule.get_blocks():
            axes = schedule.get(handle).axes
            loops = schedule.get_loops(handle)[: sum(a.kind == "spatial" for a in axes)]
            try:
                deal_out(schedule, loops)
            except ScheduleError:
                continue  # Loops of this block depend on one another: they stay serial.


__all__ = ["LoopsRule"]
