"""Tasks: kernels to tune, each with its target.

task = Task(func, dlc.Target("llvm"))
task.default                     the candidate of the analytic rules
task.schedule()                  a schedule of the kernel as it is before any rule
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

from dlc_core.diag import ScheduleError
from dlc_core.driver import context_for
from dlc_core.ir.structural import structural_hash
from dlc_core.passes import PassContext
from dlc_core.passes.tir.schedule_kernels import ScheduleKernels
from dlc_core.schedule import Schedule, Trace
from dlc_core.schedule.rules.base import Machine
from dlc_core.support.record import record
from dlc_core.target import Target
from dlc_core.tir.stmt import PrimFunc
from dlc_tune.limits import check_limits

KERNEL = "kernel"
"""The name under which kernels are hashed: it does not matter to their code."""


def kernel_key(func: PrimFunc) -> str:
    """A hash of an unscheduled kernel that does not depend on its name."""
    return structural_hash(replace(func, name=KERNEL))


@record(frozen=True, eq=False)
class Task:
    """An unscheduled kernel to tune for a target.

    `name` is for users: that of the kernel. `nodes` are the model nodes that it computes. `calls` is how
    often a call of the model runs it. `sizes` are the values of its symbolic dims, by name, at which it is
    measured.
    """

    func: PrimFunc
    target: Target
    name: str = ""
    nodes: tuple[str, ...] = ()
    calls: float = 1.0
    settings: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    """The `config` of compiles of the kernel."""
    sizes: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))

    @cached_property
    def key(self) -> str:
        """The hash of the kernel."""
        return kernel_key(self.func)

    @cached_property
    def context(self) -> PassContext:
        """The pass context of compiles for the target, without a tuner."""
        return context_for(self.target, config=dict(self.settings)).with_(tuner=None)

    @cached_property
    def machine(self) -> Machine:
        """The input of schedule rules."""
        description = self.context.target.describe()
        return Machine(description, description.cores)

    def schedule(self) -> Schedule:
        """A schedule of the kernel as it is before any rule."""
        return Schedule(self.func, intrins=self.context.tensor_intrins)

    def check(self, func: PrimFunc) -> None:
        """Raise ScheduleError if a scheduled kernel exceeds a limit of the target."""
        check_limits(func, self.context.target.describe())

    @cached_property
    def by_rules(self) -> PrimFunc:
        """The kernel as the analytic rules schedule it, with their choices as attributes."""
        return ScheduleKernels().run_function(self.func, self.context)

    def replayed(self, trace: Trace) -> PrimFunc:
        """The kernel scheduled by a trace. Raises ScheduleError if the trace is not legal."""
        found = ScheduleKernels().run_function(self.func, self.context.with_(tuner=lambda *_: trace))
        if found.attrs.get("rule") != "tuned":
            refused = found.attrs.get("why_not", ("",))[0]
            raise ScheduleError("the trace does not fit the kernel", why=refused)
        return found


__all__ = ["KERNEL", "Task", "kernel_key"]
