"""Search spaces: generators of schedules, whose points are named choices.

A space schedules a kernel and asks for a choice wherever it could go on in several ways:

    class Unrolls:
        name, about = "unrolls", "Unroll factors of the innermost loop."

        def fits(self, task):
            return ""

        def generate(self, schedule, choose, task):
            *_, inner = schedule.get_loops(schedule.get_blocks()[-1])
            schedule.unroll(schedule.split(inner, [None, choose("unroll", [1, 2, 4, 8])])[1])

Plugins declare spaces by the hook `dlc_search_spaces`. Whatever space a candidate comes from, it is an
ordinary trace of schedule primitives: these check that it is legal, it prints, and it can be replayed.
"""

from __future__ import annotations

import warnings
from typing import Protocol

from dlc_core.diag import DlcError
from dlc_core.schedule import Schedule, Trace
from dlc_core.support.record import record
from dlc_core.tir.stmt import PrimFunc
from dlc_tune.choices import Answer, Choices, Question
from dlc_tune.task import Task


class Space(Protocol):
    """A search space. `about` is one line for users."""

    @property
    def name(self) -> str: ...

    @property
    def about(self) -> str: ...

    def fits(self, task: Task) -> str:
        """Why the space has no candidates for a kernel; empty if it has."""
        ...

    def generate(self, schedule: Schedule, choose: Choices, task: Task) -> None:
        """Schedule the kernel of a task by primitives. A primitive that is not legal raises ScheduleError,
        which makes the point invalid.
        """
        ...


@record(frozen=True)
class Candidate:
    """A point of a space and the schedule that it stands for."""

    space: str
    point: dict[str, str]
    questions: tuple[Question, ...]
    trace: Trace
    func: PrimFunc
    """The scheduled kernel."""


@record(frozen=True)
class Invalid:
    """A point of a space that is not legal, and why. It is not measured."""

    space: str
    point: dict[str, str]
    questions: tuple[Question, ...]
    why: str


def candidate(space: Space, task: Task, answer: Answer) -> Candidate | Invalid:
    """The candidate that a space makes of a task with these answers.

    It is invalid if a primitive refuses it or if it exceeds a limit of the target.
    """
    choose = Choices(answer)
    schedule = task.schedule()
    try:
        space.generate(schedule, choose, task)
        task.check(schedule.func)
    except DlcError as error:
        why = f"{error.what}{f': {error.why}' if error.why else ''}"
        return Invalid(space.name, choose.point, tuple(choose.questions), why)
    except Exception as error:  # noqa: BLE001 (a defect of a space costs a point, not the search)
        why = f"the space {space.name!r} failed: {type(error).__name__}: {error}"
        warnings.warn(f"{why}, at the point {choose.point}", RuntimeWarning, stacklevel=2)
        return Invalid(space.name, choose.point, tuple(choose.questions), why)
    trace = schedule.trace.tidied()
    return Candidate(space.name, choose.point, tuple(choose.questions), trace, schedule.func)


__all__ = ["Candidate", "Invalid", "Space", "candidate"]
