"""The time of a candidate that the core's cost model predicts, without a library and without learning.

The core predicts the cycles in which the instructions of the final code are issued (`predict_cycles`), and
the time of traffic by its reuse distances (`target/reuse.py`). Here the reuses are those inside the kernel,
at each loop of its schedule.
"""

from __future__ import annotations

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
from dlc_tune.task import Task


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
    threads: int


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
        found = statements(lowered.loops, self.description.cache_line)
        reused = reuses(found)
        parts = issue_parts(lowered.code, self.description)
        threads = _threads(found, self.description)
        cycles = 0.0 if parts is None else parts.cycles
        traffic = [one.traffic for one in reused]
        estimate = self.machine.estimate(self.work, threads=threads, cycles=cycles, traffic=traffic)
        memory = self.machine.estimate(self.work, threads=threads, cycles=1.0, traffic=traffic)
        limit = 0.0 if estimate is None else estimate.limit
        seconds = math.inf if estimate is None else estimate.seconds
        return Prediction(
            lowered, found, reused, parts, seconds, limit, 0.0 if memory is None else memory.seconds, threads
        )


def _threads(found: Sequence[Statement], machine: Description) -> int:
    """The threads among which the iterations of parallel loops are divided."""
    most = max((one.copies("parallel") for one in found), default=1)
    return max(1, min(machine.workers, most))


__all__ = ["Prediction", "Predictor"]
