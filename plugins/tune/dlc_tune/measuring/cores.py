"""The cores and the memory of builder and runner processes on this machine.

Runners have the last cores, builders the others. Without enough cores for both, such as for kernels on all
cores, they share all, and nothing may be built while a kernel is timed.
"""

from __future__ import annotations

import os

from dlc_core.driver import find_target
from dlc_core.runtime.machine.memory import available_memory
from dlc_core.support.record import record
from dlc_tune.measuring.job import Job

SHARE = 0.75
"""The part of the available memory that all processes together may use by default."""


@record(frozen=True)
class Cores:
    """The division of the `usable` cores for kernels with `threads` threads and a number of runners."""

    usable: tuple[int, ...]
    threads: int
    runners: int

    @property
    def are_apart(self) -> bool:
        """Whether runners and builders have cores of their own."""
        return self.threads * self.runners < len(self.usable)

    @property
    def builders(self) -> tuple[int, ...]:
        """The cores of all builders."""
        return self.usable[: -self.threads * self.runners] if self.are_apart else self.usable

    def runner(self, number: int) -> tuple[int, ...]:
        """The cores of a runner."""
        last = len(self.usable) - (self.threads * number if self.are_apart else 0)
        return self.usable[max(0, last - self.threads) : last]


def cores_of(job: Job, runners: int) -> Cores:
    """The division of the cores of this process for a job."""
    usable = tuple(sorted(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else ()
    threads = job.threads or find_target(job.target).describe().cores
    return Cores(usable, threads, runners)


def default_memory(processes: int) -> int | None:
    """The bytes that each of some processes may use; None if the free memory is not known."""
    free = available_memory()
    return None if free is None else int(SHARE * free) // processes


__all__ = ["Cores", "cores_of", "default_memory"]
