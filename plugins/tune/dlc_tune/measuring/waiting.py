"""Cluster workers that wait instead of building and running: for tests, and to check models of clusters.

python -m dlc_tune.measuring.waiting ADDRESS NAME TARGET BUILD_SECONDS RUN_SECONDS
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from dlc_core.support.lazy import lazy
from dlc_tune.measuring.announced import Announced, announce
from dlc_tune.measuring.cluster_tasks import Built, dask_settings
from dlc_tune.measuring.job import OK, Comparison, Job, Outcome

if TYPE_CHECKING:
    import distributed
else:
    distributed = lazy("distributed")

DEADLY = "deadly"
"""The trace of a job whose run ends its worker."""


class WaitingBench:
    """Takes some seconds for a build and a run. The trace of a job is its cost, as text."""

    def __init__(self, name: str, announced: Announced, build_seconds: float, run_seconds: float) -> None:
        self.announced = announced
        self._name, self._build_seconds, self._run_seconds = name, build_seconds, run_seconds

    def build(self, job: Job) -> Built | Outcome:
        time.sleep(self._build_seconds)
        return Built((job.trace or "").encode(), self._build_seconds)

    def run(self, job: Job, built: Built, default: Built | None) -> Outcome:
        if built.artefact.decode() == DEADLY:
            signal.raise_signal(signal.SIGKILL)
        time.sleep(self._run_seconds)
        return Outcome(OK, (float(built.artefact),), where=self._name)

    def compare(self, jobs: tuple[Job, Job], built: tuple[Built, Built]) -> Comparison:
        candidate, default = (float(each.artefact) for each in built)
        return Comparison(OK, (candidate,), (default,), candidate / default, 0.0, same_results=True)


async def serve(address: str, name: str, bench: WaitingBench) -> None:
    """Work until the scheduler ends."""
    async with distributed.Worker(address, name=name, **dask_settings(bench)) as worker:
        await worker.finished()


def main(arguments: Sequence[str]) -> None:
    """The command."""
    address, name, target, *seconds = arguments
    build_seconds, run_seconds = map(float, seconds)
    bench = WaitingBench(name, announce([target], builders=1), build_seconds, run_seconds)
    asyncio.run(serve(address, name, bench))


if __name__ == "__main__":
    main(sys.argv[1:])

__all__ = ["DEADLY", "WaitingBench", "main", "serve"]
