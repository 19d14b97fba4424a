"""The processes of a cluster worker: builders, and one runner, used by the threads of the worker.

Kernels on all cores run alone: no kernel is built while one is timed. Otherwise runners and builders have
cores of their own.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path

from dlc_tune.measuring.announced import Announced
from dlc_tune.measuring.closing import Closing
from dlc_tune.measuring.cluster_tasks import Built
from dlc_tune.measuring.comparing import PATIENCE
from dlc_tune.measuring.cores import cores_of, default_memory
from dlc_tune.measuring.folders import locked_folder, remove_all_left, remove_folder
from dlc_tune.measuring.job import BUILD, OK, RUN, Comparison, Job, Outcome
from dlc_tune.measuring.local import kind_of
from dlc_tune.measuring.noise import Repeats
from dlc_tune.measuring.process import Setup, WorkerProcess
from dlc_tune.measuring.worker import build_task, compare_task, outcome_of, results_task, run_task

RESULTS = 32
"""The kernels whose results are kept."""


class LocalBench(Closing):
    """Builds and runs jobs on this machine for the announced targets. `timeout` limits the seconds of each
    build and each run, `compare_seconds` those of a comparison; `setup` runs first in each process. The
    methods block; several threads may call them.
    """

    def __init__(
        self,
        announced: Announced,
        timeout: float = 30.0,
        compare_seconds: float = 2.0,
        setup: Setup | None = None,
    ) -> None:
        self.announced = announced
        self._timeout, self._compare_seconds = timeout, compare_seconds
        remove_all_left()
        self.folder = locked_folder("dlc-bench-")
        self._processes = [WorkerProcess(self.folder, setup) for _ in range(announced.builders + 1)]
        self._memory = default_memory(len(self._processes))
        self._builders: queue.SimpleQueue[WorkerProcess] = queue.SimpleQueue()
        self._runner, *builders = self._processes
        for each in builders:
            self._builders.put(each)
        self._turns = Turns()
        self._numbers = count()
        self._best: dict[object, float] = {}
        self._results: dict[object, Path] = {}

    def stop(self) -> None:
        """End all processes at once. Calls that wait for one fail."""
        for each in self._processes:
            each.close(for_good=True)

    def close(self) -> None:
        """Stop, and remove all files."""
        self.stop()
        remove_folder(self.folder)

    def build(self, job: Job) -> Built | Outcome:
        """The artefact of a job, or the reason why there is none."""
        cores = cores_of(job, runners=1)
        with self._turns.shared(), self._builder() as builder, self._file() as path:
            found = builder.answer(
                build_task,
                (job, str(path)),
                timeout=self._timeout,
                fails_as=BUILD,
                cores=cores.builders,
                memory=self._memory,
            )
            if found.state != OK:
                return Outcome(found.state, why=found.why, build_seconds=found.seconds)
            return Built(path.read_bytes(), found.seconds)

    def run(self, job: Job, built: Built, default: Built | None) -> Outcome:
        """Measure an artefact. The state is "wrong" if its results differ from those of `default`."""
        cores, kind = cores_of(job, runners=1), kind_of(job)
        with self._run_turn(cores.are_apart), self._file(built.artefact) as path:
            expected = self._expected(job)
            if not (job.trace is None or default is None or expected.exists()):
                self._keep_results(job, default, expected)
            found = self._runner.answer(
                run_task,
                (job, str(path), False, Repeats(), self._best.get(kind), str(expected)),
                timeout=self._timeout,
                fails_as=RUN,
                cores=cores.runner(0),
                memory=self._memory,
            )
        outcome = outcome_of(built.seconds, found)
        if outcome.best is not None:
            self._best[kind] = min(outcome.best, self._best.get(kind, outcome.best))
        return outcome

    def _expected(self, job: Job) -> Path:
        """The file of the results of the default schedule of a job's kernel. The oldest files are removed."""
        kind = kind_of(job), job.inputs_seed, tuple(sorted(job.settings.items()))
        path = self._results.pop(kind, None) or self.folder / f"{next(self._numbers)}.results"
        self._results[kind] = path
        while len(self._results) > RESULTS:
            self._results.pop(next(iter(self._results))).unlink(missing_ok=True)
        return path

    def _keep_results(self, job: Job, default: Built, expected: Path) -> None:
        """Run the default schedule for its results. If that fails, nothing is compared now."""
        with self._file(default.artefact) as path:
            self._runner.answer(
                results_task,
                (replace(job, trace=None), str(path), str(expected)),
                timeout=self._timeout,
                fails_as=RUN,
                cores=cores_of(job, runners=1).runner(0),
                memory=self._memory,
            )

    def compare(self, jobs: tuple[Job, Job], built: tuple[Built, Built]) -> Comparison:
        """Compare two artefacts in one process."""
        cores = cores_of(jobs[0], runners=1)
        with (
            self._run_turn(cores.are_apart),
            self._file(built[0].artefact) as first,
            self._file(built[1].artefact) as second,
        ):
            found = self._runner.answer(
                compare_task,
                (jobs[0], str(first), jobs[1], str(second), False, self._compare_seconds),
                timeout=2 * self._timeout + PATIENCE * self._compare_seconds,
                fails_as=RUN,
                cores=cores.runner(0),
                memory=self._memory,
            )
        comparison: Comparison = found.value if found.state == OK else Comparison(found.state, why=found.why)
        return comparison

    def _run_turn(self, apart: bool) -> AbstractContextManager[None]:
        return self._turns.shared() if apart else self._turns.alone()

    @contextmanager
    def _builder(self) -> Iterator[WorkerProcess]:
        process = self._builders.get()
        try:
            yield process
        finally:
            self._builders.put(process)

    @contextmanager
    def _file(self, content: bytes | None = None) -> Iterator[Path]:
        """A file of the folder, which is removed at the end."""
        path = self.folder / f"{next(self._numbers)}.dlc"
        if content is not None:
            path.write_bytes(content)
        try:
            yield path
        finally:
            path.unlink(missing_ok=True)


class Turns:
    """Work that others may do at the same time, and work that is done alone, which does not wait for new work
    of others.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._shared = 0
        self._waiting = 0
        self._is_alone = False

    @contextmanager
    def shared(self) -> Iterator[None]:
        """Wait until nobody works alone or waits for it."""
        with self._changed:
            self._changed.wait_for(lambda: not (self._is_alone or self._waiting))
            self._shared += 1
        try:
            yield
        finally:
            with self._changed:
                self._shared -= 1
                self._changed.notify_all()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Wait until nobody works."""
        with self._changed:
            self._waiting += 1
            self._changed.wait_for(lambda: not (self._is_alone or self._shared))
            self._waiting -= 1
            self._is_alone = True
        try:
            yield
        finally:
            with self._changed:
                self._is_alone = False
                self._changed.notify_all()


__all__ = ["LocalBench", "Turns"]
