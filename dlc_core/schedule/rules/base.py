"""The base class of schedule rules: each rule schedules one kind of kernel from the target's description
record.

Rules are tried in order of `priority`, highest first. The first rule whose `matches` holds schedules the
kernel. A plugin adds rules by the hook `dlc_schedule_rules`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dlc_core.schedule.schedule import Schedule
from dlc_core.target.target import Description
from dlc_core.tir.stmt import PrimFunc


@dataclass(frozen=True)
class Machine:
    """The input of rules: the description record, and the number of threads that code is generated for."""

    description: Description
    threads: int

    @property
    def registers(self) -> int:
        """Registers for the accumulators, the vectors of one step and one broadcast."""
        return self.description.usable_registers

    @property
    def plain(self) -> bool:
        """Whether tiles have one value, for short code."""
        return self.description.short_code

    @property
    def workers(self) -> int:
        """Threads that parallel loops run on."""
        return self.threads if self.description.parallel else 1

    def lanes(self, bits: int) -> int:
        return self.description.lanes(bits)


class ScheduleRule:
    """The base class of schedule rules."""

    name: ClassVar[str] = ""
    priority: ClassVar[int] = 0

    def matches(self, func: PrimFunc, machine: Machine) -> bool:
        """Whether the rule schedules this kernel on this machine."""
        raise NotImplementedError(f"{type(self).__name__}.matches")

    def apply(self, schedule: Schedule, machine: Machine) -> None:
        """Schedule the kernel."""
        raise NotImplementedError(f"{type(self).__name__}.apply")
