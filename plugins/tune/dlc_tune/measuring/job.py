"""Jobs of a measurer, and their outcomes.

measurer = LocalMeasurer(...)                    another one measures on a cluster
for number, outcome in measurer.measure(jobs):   in the order in which they end
    ...
comparison = measurer.compare(job, default_job)  interleaved: A B A B ...
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from types import MappingProxyType
from typing import Any, Protocol

from dlc_core.support.record import record
from dlc_core.tir.stmt import PrimFunc
from dlc_tune.measuring.noise import noise_of

OK, BUILD, TIMEOUT, MEMORY, CRASH, RUN, WRONG, LOST = (
    "ok",
    "build",
    "timeout",
    "memory",
    "crash",
    "run",
    "wrong",
    "lost",
)
STATES: Mapping[str, str] = MappingProxyType(
    {
        OK: "measured",
        BUILD: "the compiler refused the candidate or failed",
        TIMEOUT: "building or running took longer than the time limit",
        MEMORY: "building or running took more memory than the limit",
        CRASH: "the process that built or ran it died",
        RUN: "the run raised an error",
        WRONG: "its results differ from those of the default schedule",
        LOST: "the machine that measured it vanished",
    }
)
"""The states of an outcome."""


@record(frozen=True)
class Job:
    """A kernel to build and run.

    `trace` is the JSON of its schedule; None is the one that the rules choose. `inputs_seed` makes its inputs
    and constants, so that jobs of one kernel compute the same results.
    """

    func: PrimFunc
    target: str
    trace: str | None = None
    settings: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    sizes: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    inputs_seed: int = 0
    threads: int | None = None

    def __getstate__(self) -> dict[str, Any]:
        """The fields for pickling, which does not know read-only mappings."""
        return {**vars(self), "settings": dict(self.settings), "sizes": dict(self.sizes)}


@record(frozen=True)
class Outcome:
    """The outcome of a job. `seconds` has one entry for each repeat: the time of a run, or the cost that the
    target's measure returns; it is empty unless the state is OK.
    """

    state: str
    seconds: tuple[float, ...] = ()
    why: str = ""
    build_seconds: float = 0.0
    run_seconds: float = 0.0
    where: str = ""
    """The machine and the device that ran it."""
    digest: str = ""
    """A hash of the results of the run."""

    @property
    def best(self) -> float | None:
        """The least cost; None unless it was measured."""
        return min(self.seconds) if self.state == OK and self.seconds else None

    @property
    def noise(self) -> float | None:
        """How much repeats differ from the least, relative to it; None unless it was measured."""
        return noise_of(self.seconds) if self.state == OK and self.seconds else None


@record(frozen=True)
class Comparison:
    """An interleaved comparison of a candidate with the default schedule.

    `ratio` is the median of the ratios of neighbouring runs, candidate over default; `noise` the half width
    of its interval of confidence (95%). `is_faster` holds if the whole interval is below 1 and the results
    agree.
    """

    state: str
    candidate: tuple[float, ...] = ()
    default: tuple[float, ...] = ()
    ratio: float = 1.0
    noise: float = 0.0
    same_results: bool = False
    why: str = ""

    @property
    def is_faster(self) -> bool:
        return self.state == OK and self.same_results and self.ratio + self.noise < 1.0


class Measurer(Protocol):
    """Builds and runs jobs. It may be used by one thread at a time; `close` ends its processes."""

    def measure(self, jobs: Iterable[Job]) -> Iterator[tuple[int, Outcome]]:
        """The outcome of each job with its index, in the order in which they end. Jobs may be made by an
        iterator while others are built.
        """
        ...

    def compare(self, candidate: Job, default: Job) -> Comparison:
        """Run both alternately, and compare their times and their results."""
        ...

    def close(self) -> None: ...


__all__ = [
    "BUILD",
    "CRASH",
    "LOST",
    "MEMORY",
    "OK",
    "RUN",
    "STATES",
    "TIMEOUT",
    "WRONG",
    "Comparison",
    "Job",
    "Measurer",
    "Outcome",
]
