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

    It is if the predicted time, with that of waking the others (`Description.fork_cycles`), is no longer.
    Programs for one thread keep the loops that two threads would share, for calls with more threads. `work`
    is None if symbolic, which counts as large.
    """
    if not machine.description.parallel:
        return False
    threads = machine.threads if machine.threads > 1 else 2

    def cycles(alternative: str) -> float | None:
        if work is None:
            return None
        alone = work / LOOPS.work_per_cycle[kind]
        return alone if alternative == "one" else alone / threads + machine.description.fork_cycles

    one, several = cycles("one"), cycles("all")
    preferred = "all" if one is None or several is None or several <= one else "one"
    return THREADS.choose(preferred, cost=cycles) == "all"


__all__ = ["THREADS", "worth_threads"]
