"""The time of a candidate that the core's cost model predicts, without a library and without learning.

The core predicts the cycles in which the instructions of the final code are issued (`predict_cycles`), and
the time of traffic by its reuse distances (`target/reuse.py`). Here the reuses are those inside the kernel,
at each loop of its schedule.

Of machines that launch threads, and of those with units, the core predicts no instructions: all candidates of
a kernel get the same time, and only measurements order them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from dlc_core.passes.lower.costs import work_of
from dlc_core.passes.tir.predict_cycles import IssueParts, issue_parts
from dlc_core.support.record import record
from dlc_core.target.cost import Machine, Work
from dlc_core.target.description import Description
from dlc_core.tir.functor import specialize
from dlc_core.tir.stmt import PrimFunc
from dlc_tune.ranking.accesses import Statement, statements
from dlc_tune.ranking.lowered import Lowered, Lowering, known_sizes
from dlc_tune.ranking.reuse import Reuse, reuses
from dlc_tune.ranking.touched import Lines
from dlc_tune.task import Task


@record(frozen=True)
class Team:
    """The threads among which the iterations of parallel loops are divided."""

    threads: int = 1
    share: float = 1.0
    """The part of the iterations that the busiest thread runs."""
    starts: int = 1
    """How often the parallel loop is started."""

    @property
    def balance(self) -> float:
        """The part of the threads' time in which they compute."""
        return 1 / (self.share * self.threads)


@record(frozen=True)
class Prediction:
    """A lowered candidate and what the cost model says about it.

    `seconds` is the expected time, `limit` the shortest time that the machine allows for the kernel. `parts`
    are the cycles of one thread; None if they are not known.
    """

    lowered: Lowered
    statements: Sequence[Statement]
    reuses: Sequence[Reuse]
    parts: IssueParts | None
    seconds: float
    limit: float
    memory_seconds: float
    team: Team


class Predictor:
    """Predicts the times of the candidates of one task."""

    def __init__(self, task: Task) -> None:
        self.description: Description = task.target.describe()
        self.machine = Machine.of(self.description)
        self._lowering = Lowering(task)
        func = task.func
        known = known_sizes(func, task.sizes)
        self.work: Work = work_of(specialize(func, known) if known else func, dots=self.description.dots)

    def predict(self, func: PrimFunc) -> Prediction:
        """Predict a scheduled kernel of the task. Raises DlcError if a pass refuses it."""
        lowered = self._lowering.lowered(func)
        found = statements(lowered.loops, Lines.of(self.description))
        reused = reuses(found)
        has_instructions = not (self.description.thread_axes or self.description.units)
        parts = issue_parts(lowered.code, self.description) if has_instructions else None
        team = _team(found, self.description)
        # Each thread gets the same number of iterations, rounded up.
        cycles = 0.0 if parts is None else parts.cycles * team.share * team.threads
        traffic = [one.traffic for one in reused]
        estimate = self.machine.estimate(self.work, threads=team.threads, cycles=cycles, traffic=traffic)
        memory = self.machine.estimate(self.work, threads=team.threads, cycles=1.0, traffic=traffic)
        if estimate is None or memory is None:
            seconds = cycles / team.threads / self.machine.frequency if cycles else math.inf
            return Prediction(lowered, found, reused, parts, seconds, 0.0, 0.0, team)
        # A loop that is started several times forks each time; the estimate has one fork.
        seconds = estimate.seconds + (team.starts - 1) * self.machine.fork_seconds
        return Prediction(lowered, found, reused, parts, seconds, estimate.limit, memory.seconds, team)


def _team(found: Sequence[Statement], machine: Description) -> Team:
    """The threads of the parallel loop that runs most."""
    main = max(found, key=lambda one: one.copies("parallel") * one.times, default=None)
    count = 1 if main is None else main.copies("parallel")
    threads = max(1, min(machine.workers, count))
    if main is None or threads < 2:
        return Team()
    outer = itertools.takewhile(lambda loop: loop.kind != "parallel", main.loops)
    return Team(threads, math.ceil(count / threads) / count, math.prod(loop.extent for loop in outer))


__all__ = ["Prediction", "Predictor", "Team"]
