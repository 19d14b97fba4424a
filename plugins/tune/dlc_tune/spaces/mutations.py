"""The space of changed traces: the schedule of the rules, with single steps changed.

The rules make a trace, with their decisions asked for as in the space `decisions`. Then each step that can be
changed is a question of its own, whose default is the step as it is:

    split       other factors: halves, doubles and neighbours
    reorder     two neighbouring loops exchanged
    parallel    the loop stays serial
    unroll      the loop stays a loop
    prefetch    left out
    sampling    another decision

and each innermost loop that is left may be unrolled by a factor. A point of `decisions` is a point of this
space too. Most changes of a step that later steps rely on are not legal; the primitives refuse them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

from dlc_core.diag import DlcError
from dlc_core.ir.expr import const_value
from dlc_core.schedule import Schedule, Trace
from dlc_core.schedule.handles import LoopRV
from dlc_core.schedule.trace import DECISION, Step
from dlc_core.tir.functor import stmts
from dlc_core.tir.stmt import For
from dlc_tune.choices import Answer, Choices, Question
from dlc_tune.known_points import KnownPoints
from dlc_tune.spaces.decisions import SPACE as DECISIONS
from dlc_tune.task import Task

UNROLLED = (1, 2, 4, 8)
"""The factors by which innermost loops may be unrolled."""
PREFETCHES = ("prefetch", "prefetch_at")
KEPT, LEFT_OUT = "kept", "left out"
MAX_FACTOR = 1 << 14


def _factors(factor: int) -> list[int]:
    """A factor and those that are tried instead."""
    others = {factor // 2, factor // 4, factor * 2, factor * 4, factor - 1, factor + 1, factor * 3 // 2}
    return [factor, *sorted(each for each in others if 1 <= each <= MAX_FACTOR and each != factor)]


def _changed_split(step: Step, label: str, choose: Choices) -> Step:
    _, factors = step.args[0], list(step.args[1])
    for position, factor in enumerate(factors):
        if type(factor) is int:
            factors[position] = choose(f"{label}.{position}", _factors(factor), factor)
    return replace(step, args=(step.args[0], factors, *step.args[2:]))


def _changed_order(step: Step, label: str, choose: Choices) -> Step:
    loops = list(step.args)
    at = choose(label, [-1, *range(len(loops) - 1)])
    if at >= 0:
        loops[at], loops[at + 1] = loops[at + 1], loops[at]
    return replace(step, args=tuple(loops))


def _options(step: Step) -> Sequence[Any]:
    """The values of a sampling decision that are tried, the current one first."""
    old = step.options[DECISION]
    if step.name == "sample_categorical":
        return [old, *(i for i in range(len(step.args[0])) if i != old)]
    if step.name == "sample_compute_location":
        return [old, *(i for i in range(-1, old + 3) if i != old)]
    found = [list(old)]
    for outer in range(len(old) - 1):
        for inner in range(outer + 1, len(old)):
            for one, other in ((outer, inner), (inner, outer)):
                if old[one] % 2 == 0:
                    moved = list(old)
                    moved[one] //= 2
                    moved[other] *= 2
                    found.append(moved)
    return found


def _changed_decision(step: Step, label: str, choose: Choices) -> Step:
    return replace(step, options={**step.options, DECISION: choose(label, _options(step))})


def changed(trace: Trace, choose: Choices) -> Trace:
    """A trace with the changes that are chosen."""
    return Trace(list(_steps(trace, choose)))


def _steps(trace: Trace, choose: Choices) -> Iterator[Step]:
    for number, step in enumerate(trace.steps):
        label = f"step{number}.{step.name}"
        if step.name == "split" and len(step.args) > 1:
            yield _changed_split(step, label, choose)
        elif step.name == "reorder" and all(isinstance(arg, LoopRV) for arg in step.args):
            yield _changed_order(step, label, choose)
        elif step.name in ("parallel", "unroll", *PREFETCHES):
            if choose(label, (KEPT, LEFT_OUT)) == KEPT:
                yield step
        elif DECISION in step.options:
            yield _changed_decision(step, label, choose)
        else:
            yield step


def _innermost(schedule: Schedule) -> list[LoopRV]:
    """The serial loops around blocks that contain no other loops but unrolled and vectorised ones."""
    found: dict[LoopRV, None] = {}
    for block in schedule.get_blocks():
        for loop in reversed(schedule.get_loops(block)):
            stmt = schedule.get_for(loop)
            if stmt.kind == "serial":
                inner = [each for each in stmts(stmt.body) if isinstance(each, For)]
                if all(each.kind != "serial" for each in inner) and const_value(stmt.extent) is not None:
                    found[loop] = None
                break
    return list(found)


class Mutations:
    """Changed traces of the rules."""

    name = "mutations"
    about = "The decisions of the rules, and single steps of their traces changed."

    def __init__(self) -> None:
        self._traces: WeakKeyDictionary[Task, KnownPoints[Trace | DlcError]] = WeakKeyDictionary()

    def fits(self, task: Task) -> str:
        return DECISIONS.fits(task)

    def generate(self, schedule: Schedule, choose: Choices, task: Task) -> None:
        changed(self._by_rules(choose, task), choose).replay(schedule)
        for number, loop in enumerate(_innermost(schedule)):
            factor = choose(f"unroll{number}", UNROLLED)
            if factor > 1:
                schedule.unroll(schedule.split(loop, [None, factor])[1])
        schedule.compact_buffers()

    def _by_rules(self, choose: Choices, task: Task) -> Trace:
        """The trace of the rules with the decisions that are chosen."""
        if task not in self._traces:

            def make(answer: Answer) -> tuple[list[Question], Trace | DlcError]:
                decide, schedule = Choices(answer), task.schedule()
                try:
                    DECISIONS.generate(schedule, decide, task)
                except DlcError as error:
                    return decide.questions, error
                # The buffers are made compact at the end, after the changes.
                steps = [s for s in schedule.trace.tidied().steps if s.name != "compact_buffers"]
                return decide.questions, Trace(steps)

            self._traces[task] = KnownPoints(make)

        def answer(question: Question) -> int:
            options = question.options
            return options.index(choose(question.name, options, options[question.default]))

        found = self._traces[task].find(answer)
        if isinstance(found, DlcError):
            raise found
        return found


SPACE = Mutations()

__all__ = ["SPACE", "Mutations", "changed"]
