"""A round of several searches: candidates are proposed while earlier ones are built, and run when all are.

Proposals, builds and runs take times of the same order. A measurer of this machine asks for the next proposal
while its builders work. Other measurers get the default schedules first, and then all candidates.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from dlc_tune.measuring.job import Job, Measurer
from dlc_tune.ranking import features_text
from dlc_tune.search import KernelSearch
from dlc_tune.space import Candidate
from dlc_tune.strategy import Tried

STEP = 1
"""The candidates that are proposed at once: builders wait for the end of a proposal."""


def runs_here(measurer: Measurer) -> bool:
    """Whether kernels run on this machine, on the same cores as this process."""
    return bool(getattr(measurer, "is_here", False))


@dataclass
class Round:
    """A round of at most so many candidates of each search."""

    counts: Mapping[KernelSearch, int]
    measurer: Measurer
    _asked: list[tuple[KernelSearch, Candidate | None]] = field(default_factory=list)

    def run(self, end: float) -> None:
        """Propose until a time of `time.monotonic`, measure what was proposed, and let the searches learn."""
        if not runs_here(self.measurer):
            for search in self.counts:
                search.measure_default()
        tried: dict[KernelSearch, list[Tried]] = {search: [] for search in self.counts}
        try:
            for number, outcome in self.measurer.measure(self._jobs(end)):
                search, made = self._asked[number]
                if made is None:
                    search.default = outcome
                else:
                    tried[search].append(search.note(made, outcome))
        finally:  # an interrupt ends the round, and its results count
            for search, found in tried.items():
                search.learn(found)

    def _jobs(self, end: float) -> Iterator[Job]:
        for search, count in self.counts.items():
            if search.default is None:
                self._asked.append((search, None))
                yield search.job(None)
            left = count
            while left > 0 and time.monotonic() < end and (found := search.propose(min(STEP, left))):
                for made in found:
                    self._asked.append((search, made))
                    features_text(search.task, made)  # records need them when no time is left for them
                    yield search.job(made.trace)
                left -= len(found)


__all__ = ["Round", "runs_here"]
