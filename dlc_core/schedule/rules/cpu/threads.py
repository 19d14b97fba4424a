"""Whether the threads of a machine share the loops of a kernel."""

from __future__ import annotations

from dlc_core.decisions import Decision
from dlc_core.schedule.rules.base import Machine

THREADS = Decision(
    "loops.threads",
    "Whether threads share a kernel's loops, which pays from some amount of work.",
    ("one", "all"),
)


def worth_threads(machine: Machine, work: int | None, least: int) -> bool:
    """Whether threads share the loops of a kernel of so many iterations or multiply-adds.

    `work` None is a number that is not known before the call, taken for a large one; `least` is where waking
    other threads begins to pay.
    """
    if not machine.description.parallel:
        return False
    return THREADS.choose("all" if work is None or work >= least else "one") == "all"


__all__ = ["THREADS", "worth_threads"]
