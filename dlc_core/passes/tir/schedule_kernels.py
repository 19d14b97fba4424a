"""Every kernel gets the schedule that the first fitting rule chooses from the target's description record."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import ClassVar

from dlc_core.arith import Analyzer
from dlc_core.diag import ScheduleError
from dlc_core.ir.expr import const_value
from dlc_core.passes.base import PassContext
from dlc_core.passes.tir.base import PrimFuncPass
from dlc_core.passes.tir.workspace import allocations_in_loops, on_stack, size_bound
from dlc_core.schedule import Schedule
from dlc_core.schedule.rules import RULES
from dlc_core.schedule.rules.base import Machine, ScheduleRule
from dlc_core.tir.functor import buffers_written
from dlc_core.tir.stmt import PrimFunc

TRACES = "traces"
"""The setting of a context that asks for the traces of kernels."""


@dataclass(frozen=True)
class ScheduleKernels(PrimFuncPass):
    """Apply schedule rules; `rules` restricts them to those names, empty means all.

    Where `config["traces"]` of the context is true, the attribute `trace` of a kernel has the steps that
    made it, as Python that runs on a schedule `sch` of the unscheduled kernel.
    """

    name: ClassVar[str] = "schedule_kernels"
    place: ClassVar[tuple[float, ...]] = (50,)
    min_level: ClassVar[int] = 1
    exact: ClassVar[bool] = False
    rules: tuple[str, ...] = ()

    def run_function(self, func: PrimFunc, context: PassContext) -> PrimFunc:
        if context.target is None or func.attrs.get("scheduled"):
            return func
        if _writes_nothing(func):
            return _noted(func, rule="none", why_not=())
        description = context.target.describe()
        machine = Machine(description, description.cores)
        refused: list[str] = []
        for rule in self._candidates(context):
            if not rule.matches(func, machine):
                continue
            schedule = Schedule(func, intrins=context.tensor_intrins)
            try:
                rule.apply(schedule, machine)
                schedule.compact_buffers()
                _check_sizes(schedule.func)
            except ScheduleError as error:
                refused.append(f"{rule.name}: {error}")
                continue
            facts: dict[str, object] = {"rule": rule.name, "why_not": tuple(refused)}
            if context.config.get(TRACES):
                facts["trace"] = schedule.trace.tidied().as_python()
            return _noted(schedule.func, **facts)
        return _noted(func, rule="none", why_not=tuple(refused))

    def _candidates(self, context: PassContext) -> list[ScheduleRule]:
        found = [*context.schedule_rules, *(r for r in RULES if r not in context.schedule_rules)]
        wanted = [r for r in found if not self.rules or r.name in self.rules]
        return sorted(wanted, key=lambda rule: -rule.priority)


def _check_sizes(func: PrimFunc) -> None:
    """Temporaries in loops must have sizes that are known, or bounded, before the program runs."""
    analyzer = Analyzer()
    for scalar in func.scalars:
        analyzer.declare_dim(scalar, low=0)
    for buffer, loops in allocations_in_loops(func.body):
        if not on_stack(buffer) and size_bound(buffer.num_elements(), loops, analyzer) is None:
            raise ScheduleError(f"the size of the temporary {buffer.name} has no bound outside of its loops")


def _writes_nothing(func: PrimFunc) -> bool:
    """Whether all results are known to have no elements."""
    written = set(buffers_written(func.body))
    results = [b for b in func.buffers if b in written]
    return bool(results) and all(const_value(b.num_elements()) == 0 for b in results)


def _noted(func: PrimFunc, **facts: object) -> PrimFunc:
    """The program with the reasons of its schedule among its attributes."""
    return replace(func, attrs=MappingProxyType({**func.attrs, **facts}))
