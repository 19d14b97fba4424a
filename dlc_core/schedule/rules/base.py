"""The base class of schedule rules: each rule schedules one kind of kernel from the target's description
record.

Rules are tried in order of `priority`, highest first. The first rule whose `matches` holds schedules the
kernel. A plugin adds rules by the hook `dlc_schedule_rules`.
"""

from __future__ import annotations

import sys
from inspect import cleandoc
from typing import ClassVar

from dlc_core.schedule.schedule import Schedule
from dlc_core.support.record import record
from dlc_core.target.description import Description
from dlc_core.tir.stmt import PrimFunc


@record(frozen=True)
class Machine:
    """The input of rules: the description record, and the number of threads that code is generated for."""

    description: Description
    threads: int

    @property
    def registers(self) -> int:
        """Registers for the accumulators, the vectors of one step and one broadcast."""
        return self.description.usable_registers

    @property
    def short_code(self) -> bool:
        """Whether tiles have one value, to keep the code short."""
        return self.description.short_code

    @property
    def workers(self) -> int:
        """Threads that parallel loops run on."""
        return self.threads if self.description.parallel else 1

    def lanes(self, bits: int) -> int:
        return self.description.lanes(bits)


class ScheduleRule:
    """The base class of schedule rules.

    The first sentence of a rule's docstring says what it is for: "The rule for ...".  The docstring of its
    module has the loop nest that it makes.  `dlc rules NAME` prints both, with the decisions.
    """

    name: ClassVar[str] = ""
    priority: ClassVar[int] = 0
    keys: ClassVar[tuple[str, ...]] = ()
    """Keys that a target must have, all of them, for the rule to be tried (`Target.keys`)."""
    decisions: ClassVar[tuple[str, ...]] = ()
    """Names of the decisions that the rule may make about a kernel; `--set` can change these."""

    @property
    def about(self) -> str:
        """When the rule applies, and its loop nest: the docstrings of the class and of its module."""
        own, module = type(self).__doc__, sys.modules[type(self).__module__].__doc__
        return "\n\n".join(cleandoc(text) for text in (own, module) if text)

    def matches(self, func: PrimFunc, machine: Machine) -> bool:
        """Whether the rule schedules this kernel on this machine."""
        raise NotImplementedError(f"{type(self).__name__}.matches")

    def apply(self, schedule: Schedule, machine: Machine) -> None:
        """Schedule the kernel."""
        raise NotImplementedError(f"{type(self).__name__}.apply")
