"""The decision whether a kernel's loops run on several threads."""

from __future__ import annotations

from dlc_core.decisions import Decision
from dlc_core.schedule.rules.base import Machine

THREADS = Decision(
    "loops.threads",
    "Whether a kernel's loops run on all threads; that pays from some amount of work.",
    ("one", "all"),
)


def worth_threads(machine: Machine, work: int | None, least: int) -> bool:
    """Return whether threads are worth waking for so many iterations or multiply-adds.

    `work` None is a symbolic number, which counts as large. `least` is the work from which threads pay.
    """
    if not machine.description.parallel:
        return False
    return THREADS.choose("all" if work is None or work >= least else "one") == "all"


__all__ = ["THREADS", "worth_threads"]
