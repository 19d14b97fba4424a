"""The measured costs of the model of a cluster, and real runs to compare the model with.

The overheads of the scheduler and of the client are processor times, which a busy machine does not change
much. Builds and runs are those of a real worker.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from dlc_tune.choices import defaults
from dlc_tune.measuring.cluster import ClusterMeasurer
from dlc_tune.measuring.cluster_connecting import require_distributed
from dlc_tune.measuring.job import OK, Job, Outcome
from dlc_tune.space import Candidate, candidate
from dlc_tune.strategy import Tried
from dlc_tune.task import Task

import dlc_core as dlc
from benchmarks.tuning_cluster_model import Costs
from dlc_core.diag import UsageError
from dlc_core.plugin.registry import registry
from dlc_core.testing.networks import cifar
from dlc_core.tir.stmt import PrimFunc

TARGET = "llvm -num-threads=1"
BATCH = 16
"""The candidates of a proposal whose time is measured."""
READY_SECONDS = 120.0


@contextmanager
def cluster(workers: Sequence[Sequence[str]]) -> Iterator[tuple[ClusterMeasurer, Any]]:
    """A measurer of a local scheduler with workers, and the scheduler's process. A worker is the rest of the
    command line of Python after the address, which stands for ADDRESS in it.
    """
    require_distributed()
    import psutil

    with TemporaryDirectory() as folder, ExitStack() as stack:
        file = Path(folder, "scheduler.json")
        command = ["-m", "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0", "--no-show"]
        scheduler = _started(
            stack,
            [*command, "--no-dashboard", "--dashboard-address", "127.0.0.1:0", "--scheduler-file", str(file)],
        )
        end = time.monotonic() + READY_SECONDS
        while not file.exists():
            if scheduler.poll() is not None or time.monotonic() > end:
                raise UsageError("the Dask scheduler does not start", hint="pip install distributed")
            time.sleep(0.05)
        with require_distributed().Client(scheduler_file=str(file), set_as_default=False) as client:
            address = client.scheduler.address
            for worker in workers:
                _started(stack, [address if part == "ADDRESS" else part for part in worker])
            client.wait_for_workers(len(workers), timeout=READY_SECONDS)
            yield ClusterMeasurer(client, TARGET, wait=READY_SECONDS), psutil.Process(scheduler.pid)


def _started(stack: ExitStack, arguments: Sequence[str]) -> subprocess.Popen[bytes]:
    process = subprocess.Popen([sys.executable, *arguments], stderr=subprocess.DEVNULL)
    stack.callback(process.wait)
    stack.callback(process.kill)
    return process


def waiting_worker(number: int, build: float, run: float) -> list[str]:
    """A worker that waits instead of building and running."""
    return ["-m", "dlc_tune.measuring.waiting", "ADDRESS", str(number), TARGET, str(build), str(run)]


def real_worker() -> list[str]:
    """A worker that builds and runs."""
    return ["-m", "dlc_core", "worker", "ADDRESS", "--target", TARGET]


def kernels() -> list[PrimFunc]:
    """The kernels of a small convolutional network, before they are scheduled."""
    found: list[PrimFunc] = []

    def tuner(func: PrimFunc, target: dlc.Target) -> None:
        found.append(func)

    with dlc.PassContext(tuner=tuner):
        dlc.compile(cifar(), TARGET, cache=False)
    return found


def jobs(count: int) -> list[Job]:
    """Jobs of these kernels as the rules schedule them, with different inputs."""
    found = kernels()
    return [Job(found[number % len(found)], TARGET, inputs_seed=number) for number in range(count)]


def waiting_jobs(count: int) -> list[Job]:
    """Jobs for waiting workers: one kernel with traces of the usual size."""
    func = max(kernels(), key=lambda each: len(each.buffers))
    text = candidate_text(func)
    return [Job(func, TARGET, trace=f"{number}{' ' * len(text)}") for number in range(count)]


def candidate_text(func: PrimFunc) -> str:
    """The trace of the default candidate of a kernel, as JSON."""
    task = Task(func, dlc.Target(TARGET))
    made = candidate(registry().search_spaces["decisions"], task, defaults)
    return made.trace.to_json() if isinstance(made, Candidate) else ""


def overheads(count: int) -> tuple[float, float]:
    """The processor seconds of the client for a job, and of the scheduler for a task."""
    with cluster([waiting_worker(0, 0.0, 0.0)]) as (measurer, scheduler):
        list(measurer.measure(waiting_jobs(32)))
        given = waiting_jobs(count)
        before, ours = scheduler.cpu_times(), time.process_time()
        list(measurer.measure(given))
        ours, after = time.process_time() - ours, scheduler.cpu_times()
    theirs = after.user + after.system - before.user - before.system
    return ours / count, theirs / (2 * count)


def service_times(count: int, workers: int = 1) -> tuple[list[Outcome], float]:
    """The outcomes of real jobs on real workers, and the trials per second of them together."""
    with cluster([real_worker()] * workers) as (measurer, _):
        given = jobs(count)
        warm = [replace(each, inputs_seed=1 << 20) for each in given[: 4 * workers]]
        list(measurer.measure(warm))
        begin = time.perf_counter()
        outcomes = [outcome for _, outcome in measurer.measure(given)]
        taken = time.perf_counter() - begin
    return [outcome for outcome in outcomes if outcome.state == OK], len(outcomes) / taken


def waiting_throughput(workers: int, build: float, run: float, count: int) -> float:
    """The trials per second of workers that wait, with all jobs submitted at once."""
    with cluster([waiting_worker(n, build, run) for n in range(workers)]) as (measurer, _):
        list(measurer.measure(waiting_jobs(2 * workers)))
        given = waiting_jobs(count)
        begin = time.perf_counter()
        list(measurer.measure(given))
        return count / (time.perf_counter() - begin)


def proposals(rounds: int = 3) -> tuple[float, float]:
    """The processor seconds of the evolutionary strategy for a candidate, and for the learning of a batch."""
    func = max(kernels(), key=lambda each: len(each.buffers))
    task, known = Task(func, dlc.Target(TARGET)), registry()
    strategy = known.search_strategies["evolutionary"]
    search = strategy.start(task, known.search_spaces["mutations"], 0)
    asked = asking = learning = 0.0
    for number in range(rounds + 1):
        begin = time.process_time()
        found = search.ask(BATCH)
        middle = time.process_time()
        search.tell([Tried(each, 1e-3 + len(each.trace.as_python()) * 1e-6) for each in found])
        if number:  # the first round imports the ranker
            asking += middle - begin
            learning += time.process_time() - middle
            asked += len(found)
    return asking / max(asked, 1), learning / rounds


def measured(count: int) -> Costs:
    """All costs of this machine, from `count` real jobs."""
    client, schedule = overheads(10 * count)
    propose, learn = proposals()
    outcomes, _ = service_times(count)
    return Costs(
        tuple(each.build_seconds for each in outcomes),
        tuple(each.run_seconds for each in outcomes),
        propose,
        learn,
        client,
        schedule,
    )


__all__ = [
    "cluster",
    "measured",
    "overheads",
    "proposals",
    "service_times",
    "waiting_throughput",
]
