"""What a schedule rule is: a choice of schedule for one kind of kernel, read from the target's description
record.

Rules are tried in order of `priority`, highest first; the first whose `matches` holds schedules the
kernel.  A plugin adds rules through the hook `dlc_schedule_rules`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dlc_core.schedule.schedule import Schedule
from dlc_core.target.target import Description
from dlc_core.tir.stmt import PrimFunc


@dataclass(frozen=True)
class Machine:
    """What rules read: the description record, and how many threads the code is made for."""

    description: Description
    threads: int

    @property
    def registers(self) -> int:
        """Registers for the values of a tile, its vectors and one broadcast."""
        return self.description.usable_registers

    @property
    def plain(self) -> bool:
        """Whether tiles are of one value, for short code."""
        return self.description.short_code

    @property
    def workers(self) -> int:
        """Threads that loops are dealt out to."""
        return self.threads if self.description.parallel else 1

    def lanes(self, bits: int) -> int:
        return self.description.lanes(bits)


class ScheduleRule:
    """Base of rules."""

    name: ClassVar[str] = ""
    priority: ClassVar[int] = 0

    def matches(self, func: PrimFunc, machine: Machine) -> bool:
        """Whether the rule knows this kind of kernel on this kind of machine."""
        raise NotImplementedError(f"{type(self).__name__}.matches")

    def apply(self, schedule: Schedule, machine: Machine) -> None:
        """Schedule the kernel."""
        raise NotImplementedError(f"{type(self).__name__}.apply")
