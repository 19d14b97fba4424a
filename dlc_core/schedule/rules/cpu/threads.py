"""The decision whether a kernel's loops run on several threads."""

from __future__ import annotations

from dlc_core.decisions import Decision
from dlc_core.schedule.rules.base import Machine
from dlc_core.schedule.rules.cpu.heuristics import LOOPS

THREADS = Decision(
    "loops.threads",
    "Whether a kernel's loops run on all threads, which takes a minimum amount of work to be faster.",
    ("one", "all"),
)


def worth_threads(machine: Machine, work: int | None, kind: str) -> bool:
    """Whether this much work of a kind in `LOOPS.work_per_cycle` is worth several threads.

    It is if one thread needs more time for it than waking the others takes (`Description.fork_cycles`).
    `work` is None if symbolic, which counts as large.
    """
    if not machine.description.parallel:
        return False
    least = machine.description.fork_cycles * LOOPS.work_per_cycle[kind]
    preferred = "all" if work is None or work >= least else "one"

    def cycles(alternative: str) -> float | None:
        if work is None:
            return None
        alone = work / LOOPS.work_per_cycle[kind]
        return alone if alternative == "one" else alone / machine.threads + machine.description.fork_cycles

    return THREADS.choose(preferred, cost=cycles) == "all"


__all__ = ["THREADS", "worth_threads"]
