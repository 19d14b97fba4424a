"""The space of the rules' own decisions: what `dlc explain --why` lists, for one kernel.

A rule schedules the kernel as usual, but the choices that its cost models make are asked for: which of the
matching rules, the register tile, the loop order, cache blocking, threads, prefetch. The defaults are what
the cost models prefer, so the point of defaults is the schedule of a compile without a tuner. Only candidates
that the rules consider legal are options.

Choices of graph passes, which make other kernels, are not in this space, nor are those of passes after the
schedule.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from dlc_core.decisions import asking, scope, unrecorded
from dlc_core.passes.tir.schedule_kernels import RULE, ScheduleKernels
from dlc_core.schedule import Schedule
from dlc_core.schedule.rules.base import ScheduleRule
from dlc_tune.choices import Choices
from dlc_tune.task import Task


@lru_cache(maxsize=64)
def matching_rules(task: Task) -> tuple[ScheduleRule, ...]:
    """The rules that match the kernel of a task, the preferred first. The rule with the lowest priority,
    which takes any loops, is one of them only if no other matches: it is slower by far.
    """
    rules = ScheduleKernels().candidates(task.context, task.machine)
    found = tuple(rule for rule in rules if rule.matches(task.func, task.machine))
    lowest = min((rule.priority for rule in rules), default=0)
    return tuple(rule for rule in found if rule.priority > lowest) or found


class Decisions:
    """The decisions of schedule rules."""

    name = "decisions"
    about = (
        "The choices that the schedule rules weigh: tiles, loop orders, cache blocking, threads, prefetch."
    )

    def fits(self, task: Task) -> str:
        return "" if matching_rules(task) else "no schedule rule matches the kernel"

    def generate(self, schedule: Schedule, choose: Choices, task: Task) -> None:
        rules = {rule.name: rule for rule in matching_rules(task)}
        rule = rules[choose(RULE.name, list(rules))]

        names: dict[tuple[str, tuple[str, ...], int], str] = {}

        def answer(decision: str, labels: Sequence[str], preferred: int) -> int:
            # A rule may weigh a decision several times, for other parts of the kernel or for another plan.
            asked = (decision, tuple(labels), preferred)
            if asked not in names:
                earlier = sum(name == decision for name, _, _ in names)
                names[asked] = f"{decision}#{earlier + 1}" if earlier else decision
            return labels.index(choose(names[asked], labels, labels[preferred]))

        with scope(task.func.name), unrecorded(), asking(answer):
            rule.apply(schedule, task.machine)
            schedule.compact_buffers()


SPACE = Decisions()

__all__ = ["SPACE", "Decisions", "matching_rules"]
