"""Measuring on this machine, by builder and runner processes.

    with LocalMeasurer(builders=1, runners=1, timeout=10.0) as measurer:
        for number, outcome in measurer.measure(jobs):
            ...
        comparison = measurer.compare(job, default_job)

Builders compile, runners run; artefacts go from one to the other as files in a private folder. A job that
crashes, hangs or takes too much memory ends its process and no other job. Runners are pinned to the last
cores, builders to the others. If there are not enough cores for both, such as for kernels on all cores, no
kernel is built while another one is timed: kernels run when all are built.

Jobs may come from an iterator, such as one that proposes candidates. It is asked for the next job while
builders work, and never while a kernel is timed that needs all cores.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, wait
from dataclasses import replace
from pathlib import Path

from dlc_core.diag import UsageError
from dlc_tune.measuring.batch import Batch, Begun
from dlc_tune.measuring.closing import Closing
from dlc_tune.measuring.comparing import PATIENCE
from dlc_tune.measuring.cores import Cores, cores_of, default_memory
from dlc_tune.measuring.folders import locked_folder, remove_all_left, remove_folder
from dlc_tune.measuring.job import BUILD, OK, RUN, Comparison, Job, Outcome
from dlc_tune.measuring.noise import Repeats
from dlc_tune.measuring.process import POLL_SECONDS, Setup, Task, WorkerProcess
from dlc_tune.measuring.worker import Answer, build_task, compare_task, outcome_of, run_task
from dlc_tune.task import kernel_key

AHEAD = 2
"""The number of built artefacts that wait for each runner at most, if builders have cores of their own."""


class LocalMeasurer(Closing):
    """A measurer of this machine. One thread at a time uses it. It starts processes when it needs them.

    `builders` and `runners` are the numbers of processes. `timeout` limits the seconds of each build and each
    run, `memory_bytes` the memory of a process beyond what it has before; None is a share of the free memory.
    `flush` times kernels with cold caches. `compare_seconds` limits a comparison. `setup` is a function of a
    module that runs first in every process.
    """

    is_here = True
    """Its kernels run on this machine, so a model that this process runs shows their times, too."""

    def __init__(
        self,
        builders: int = 1,
        runners: int = 1,
        timeout: float = 30.0,
        memory_bytes: int | None = None,
        flush: bool = False,
        repeats: Repeats | None = None,
        compare_seconds: float = 2.0,
        setup: Setup | None = None,
    ) -> None:
        if builders < 1 or runners < 1 or timeout <= 0:
            raise UsageError(
                f"a measurer with {builders} builders, {runners} runners and a time limit of {timeout} s",
                hint="it has at least one of each, and some time",
            )
        self.timeout = timeout
        self.flush = flush
        self.repeats = repeats or Repeats()
        self.compare_seconds = compare_seconds
        self._memory = memory_bytes or default_memory(builders + runners)
        remove_all_left()
        self._folder = locked_folder("dlc-tune-")
        self._builders = [WorkerProcess(self._folder, setup) for _ in range(builders)]
        self._runners = [WorkerProcess(self._folder, setup) for _ in range(runners)]
        self._best: dict[object, float] = {}
        self._kinds: dict[object, int] = {}
        self._artefacts = 0
        self._finalizer = weakref.finalize(self, _end, [*self._builders, *self._runners], self._folder)

    def close(self) -> None:
        """End all processes at once, and remove their files."""
        self._finalizer()

    def measure(self, jobs: Iterable[Job]) -> Iterator[tuple[int, Outcome]]:
        """The outcome of each job with its index, in the order in which they end. The default schedule of a
        kernel runs before those after it. If the caller stops early or is interrupted, the processes that are
        at work end at once.
        """
        batch = Batch(iter(jobs))
        try:
            while True:
                self._begin_runs(batch)
                self._begin_builds(batch)
                is_asked = self._may_ask(batch) and batch.ask()
                if not batch.begun:
                    if is_asked or batch.built:
                        continue
                    return
                for each in _ended(batch.begun, 0.0 if is_asked else None):
                    batch.begun.remove(each)
                    found = each.process.end(each.task)
                    if isinstance(found, Task):
                        batch.begun.append(replace(each, task=found))
                    elif each.build is None and found.state == OK:
                        batch.add_built(each, found)
                    else:
                        each.artefact.unlink(missing_ok=True)
                        batch.has_ended(each.number)
                        yield each.number, self._outcome(batch.jobs[each.number], each.build, found)
        finally:
            for each in batch.begun:
                each.process.close()

    def compare(self, candidate: Job, default: Job) -> Comparison:
        """Run both alternately in one process, with both artefacts open, and compare times and results."""
        paths: list[Path] = []
        try:
            for job in (candidate, default):
                paths.append(self._new_artefact())
                built = self._builders[0].wait_for(self._build(self._builders[0], job, paths[-1]))
                if built.state != OK:
                    return Comparison(built.state, why=built.why)
            runner = self._runners[0]
            found = runner.answer(
                compare_task,
                (candidate, str(paths[0]), default, str(paths[1]), self.flush, self.compare_seconds),
                timeout=2 * self.timeout + PATIENCE * self.compare_seconds,
                fails_as=RUN,
                cores=self._cores(candidate).runner(0),
                memory=self._memory,
            )
        finally:
            for path in paths:
                path.unlink(missing_ok=True)
        comparison: Comparison = found.value if found.state == OK else Comparison(found.state, why=found.why)
        return comparison

    def _may_ask(self, batch: Batch) -> bool:
        """Whether the next job may be asked for: builders will need it, and no kernel is disturbed."""
        return len(batch.todo) < len(self._builders) and not self._one_runs_alone(batch)

    def _begin_runs(self, batch: Batch) -> None:
        while (each := batch.runnable()) and (runner := _free(self._runners, batch.begun)) is not None:
            job = batch.jobs[each.number]
            cores = self._cores(job)
            if not cores.are_apart and not batch.is_over and not batch.is_full:
                return
            if batch.begun and (not cores.are_apart or self._one_runs_alone(batch)):
                return
            batch.built.remove(each)
            task = runner.begin(
                run_task,
                (
                    job,
                    str(each.artefact),
                    self.flush,
                    self.repeats,
                    self._best.get(kind_of(job)),
                    self._results_of(job),
                ),
                timeout=self.timeout,
                fails_as=RUN,
                cores=cores.runner(self._runners.index(runner)),
                memory=self._memory,
            )
            batch.begun.append(replace(each, process=runner, task=task))

    def _begin_builds(self, batch: Batch) -> None:
        while batch.todo and not self._one_runs_alone(batch):
            alone = self._runs_alone(batch, batch.todo[0])
            if batch.is_full if alone else len(batch.built) >= AHEAD * len(self._runners):
                return
            builder = _free(self._builders, batch.begun)
            if builder is None:
                return
            number, path = batch.todo.popleft(), self._new_artefact()
            task = self._build(builder, batch.jobs[number], path)
            batch.begun.append(Begun(number, builder, task, path))

    def _build(self, builder: WorkerProcess, job: Job, path: Path) -> Task:
        return builder.begin(
            build_task,
            (job, str(path)),
            timeout=self.timeout,
            fails_as=BUILD,
            cores=self._cores(job).builders,
            memory=self._memory,
        )

    def _one_runs_alone(self, batch: Batch) -> bool:
        return any(each.build is not None and self._runs_alone(batch, each.number) for each in batch.begun)

    def _runs_alone(self, batch: Batch, number: int) -> bool:
        return not self._cores(batch.jobs[number]).are_apart

    def _cores(self, job: Job) -> Cores:
        return cores_of(job, len(self._runners))

    def _results_of(self, job: Job) -> str:
        """The file of the results of the default schedule of a kernel."""
        number = self._kinds.setdefault((kind_of(job), job.inputs_seed), len(self._kinds))
        return str(self._folder / f"{number}.results")

    def _new_artefact(self) -> Path:
        self._artefacts += 1
        return self._folder / f"{self._artefacts}.dlc"

    def _outcome(self, job: Job, build: Answer | None, found: Answer) -> Outcome:
        if build is None:
            return Outcome(found.state, why=found.why, build_seconds=found.seconds)
        outcome = outcome_of(build.seconds, found)
        if outcome.best is not None:
            kind = kind_of(job)
            self._best[kind] = min(outcome.best, self._best.get(kind, outcome.best))
        return outcome


def _free(processes: Sequence[WorkerProcess], begun: Sequence[Begun]) -> WorkerProcess | None:
    """A process that has no task."""
    busy = [each.process for each in begun]
    return next((each for each in processes if each not in busy), None)


def _ended(begun: Sequence[Begun], seconds: float | None = None) -> list[Begun]:
    """Those that have ended. Waits until there is one, or for `seconds`."""
    while True:
        wait(
            [each.task.future for each in begun],
            POLL_SECONDS if seconds is None else seconds,
            FIRST_COMPLETED,
        )
        found = [each for each in begun if each.task.future.done() or each.process.has_vanished(each.task)]
        if found or seconds is not None:
            return found


def kind_of(job: Job) -> object:
    """The kernel, the target, the sizes and the threads: costs of jobs that share them can be compared."""
    return kernel_key(job.func), job.target, tuple(sorted(job.sizes.items())), job.threads


def _end(processes: Sequence[WorkerProcess], folder: Path) -> None:
    for each in processes:
        each.close()
    remove_folder(folder)


__all__ = ["LocalMeasurer", "kind_of"]
