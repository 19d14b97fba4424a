"""The jobs of one call of a local measurer: those that wait for a builder, that are built, and at work."""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from dlc_core.support.record import record
from dlc_tune.measuring.job import Job
from dlc_tune.measuring.process import Task, WorkerProcess
from dlc_tune.measuring.worker import Answer

MOST_BUILT = 64
"""The built artefacts that wait for a runner at most."""
MOST_BYTES = 1 << 30
"""The bytes of their files: artefacts contain the weights of their kernels."""


@record(frozen=True, eq=False)
class Begun:
    """A task of a job: its number, the process that does it, its artefact, and its build if it is a run."""

    number: int
    process: WorkerProcess
    task: Task
    artefact: Path
    build: Answer | None = None


class Batch:
    """The jobs that an iterator gives, one by one. Their numbers are their positions."""

    def __init__(self, source: Iterator[Job]) -> None:
        self._source = source
        self._is_exhausted = False
        self._defaults: dict[object, int] = {}
        self._bytes: dict[int, int] = {}
        self.jobs: list[Job] = []
        self.todo: deque[int] = deque()
        """The jobs that wait for a builder."""
        self.built: list[Begun] = []
        """The jobs that wait for a runner, by number."""
        self.begun: list[Begun] = []
        """Builds and runs that are under way."""

    @property
    def is_over(self) -> bool:
        """Whether all jobs were given to builders."""
        return self._is_exhausted and not self.todo

    @property
    def is_full(self) -> bool:
        """Whether no more artefacts may be built before some have run."""
        used = sum(self._bytes.get(each.number, 0) for each in self.built)
        return len(self.built) >= MOST_BUILT or used >= MOST_BYTES

    def ask(self) -> bool:
        """Take the next job of the iterator, if there is one."""
        job = None if self._is_exhausted else next(self._source, None)
        if job is None:
            self._is_exhausted = True
            return False
        if job.trace is None:
            self._defaults.setdefault(_kernel_of(job), len(self.jobs))
        self.todo.append(len(self.jobs))
        self.jobs.append(job)
        return True

    def add_built(self, build: Begun, answer: Answer) -> None:
        """Note that a job was built."""
        self._bytes[build.number] = build.artefact.stat().st_size if build.artefact.exists() else 0
        insort(self.built, replace(build, build=answer), key=lambda each: each.number)

    def runnable(self) -> Begun | None:
        """The first built job whose default schedule has run, or is no part of this batch."""
        firsts = ((each, self._defaults.get(_kernel_of(self.jobs[each.number]))) for each in self.built)
        return next((each for each, first in firsts if first is None or first >= each.number), None)

    def has_ended(self, number: int) -> None:
        """Note that a job has its outcome."""
        kernel = _kernel_of(self.jobs[number])
        if self._defaults.get(kernel) == number:
            del self._defaults[kernel]


def _kernel_of(job: Job) -> object:
    """The facts that results depend on, for jobs of one batch, without a hash of the program."""
    return id(job.func), job.target, tuple(sorted(job.sizes.items())), job.inputs_seed


__all__ = ["Batch", "Begun"]
