"""The decision whether a kernel's loops run on several threads."""

from __future__ import annotations

from types import MappingProxyType

from dlc_core.decisions import Decision
from dlc_core.schedule.rules.base import Machine

THREADS = Decision(
    "loops.threads",
    "Whether a kernel's loops run on all threads; that pays from some amount of work.",
    ("one", "all"),
)
PER_CYCLE = MappingProxyType({"multiply-adds": 16, "window taps": 4, "iterations": 2, "elements": 4})
"""Work of one thread per cycle, by kind of kernel: rough averages, which only decide whether threads pay."""


def worth_threads(machine: Machine, work: int | None, kind: str) -> bool:
    """Return whether threads are worth waking for so much work of a kind in `PER_CYCLE`.

    They are if one thread works longer than waking the others takes (`Description.fork_cycles`).  `work` None
    is a symbolic number, which counts as large.
    """
    if not machine.description.parallel:
        return False
    least = machine.description.fork_cycles * PER_CYCLE[kind]
    preferred = "all" if work is None or work >= least else "one"

    def cycles(alternative: str) -> float | None:
        if work is None:
            return None
        alone = work / PER_CYCLE[kind]
        return alone if alternative == "one" else alone / machine.threads + machine.description.fork_cycles

    return THREADS.choose(preferred, cost=cycles) == "all"


__all__ = ["PER_CYCLE", "THREADS", "worth_threads"]
