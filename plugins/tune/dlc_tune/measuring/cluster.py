"""Measuring on a cluster of Dask workers.

    with ClusterMeasurer("tcp://10.0.0.1:8786", "llvm -mcpu=znver4") as measurer:
        for number, outcome in measurer.measure(jobs):
            ...

`dask scheduler` starts the scheduler, `dlc worker tcp://10.0.0.1:8786` a worker on each machine. A job is two
tasks: its build goes to any worker with builders, its run to a worker that announced the target
(`announced.py`). The artefact goes from worker to worker. The kernel is a part of each task, compressed to a
few KB: as the result of another task it would bind all builds to the worker that has it.

Dask repeats the tasks of workers that vanish on others, and gives tasks to workers that join later. A job
that ends several workers has the state "crash". A process that reaches the scheduler can run code on all
workers: outside of one machine, use an address `tls://` and certificates (`security`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dlc_core.diag import RuntimeFailure, UsageError
from dlc_core.support.lazy import lazy
from dlc_core.target import Target
from dlc_core.tir.stmt import PrimFunc
from dlc_tune.measuring import cluster_tasks
from dlc_tune.measuring.announced import RUN, build_resource, compiler_parts
from dlc_tune.measuring.closing import Closing
from dlc_tune.measuring.cluster_connecting import connect, security_of
from dlc_tune.measuring.cluster_sites import Site, find_site
from dlc_tune.measuring.cluster_tasks import Rejected
from dlc_tune.measuring.futures import DISCONNECTED, Futures
from dlc_tune.measuring.job import BUILD, LOST, Comparison, Job, Outcome

if TYPE_CHECKING:
    import distributed
else:
    distributed = lazy("distributed")

KEPT = 4
"""The kernels whose default builds are kept for later jobs."""
POLL = 2.0
"""Seconds between two looks at the workers while tasks are under way."""


class ClusterMeasurer(Closing):
    """Measures on the workers of a Dask cluster.

    `cluster` is the address of its scheduler or a `distributed.Client`, which stays open. `targets` are
    checked at once; jobs may have others. `machine` is a part of the name of the machine to measure on, if
    different machines run a target. `wait` is how many seconds to wait for the first worker of a target, and
    `patience` how long its jobs wait if all its workers vanish, before they are lost. `security` is that of
    `distributed`.

    Raises UsageError without the package `distributed` or without a scheduler at the address.
    """

    def __init__(
        self,
        cluster: str | distributed.Client,
        *targets: str | Target,
        machine: str = "",
        wait: float = 0.0,
        patience: float = 60.0,
        security: distributed.Security | None = None,
    ) -> None:
        self._machine, self._wait, self._patience = machine, wait, patience
        self._sites: dict[str, Site] = {}
        self._pinned: set[str] = set()
        self._defaults: dict[object, distributed.Future] = {}
        self._address, self._security = cluster if isinstance(cluster, str) else None, security
        self._client = connect(cluster, security) if isinstance(cluster, str) else cluster
        try:
            for target in targets:
                self._site(str(target))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the connection. Workers and scheduler go on."""
        if self._address is not None:
            self._client.close()

    def measure(self, jobs: Iterable[Job]) -> Iterator[tuple[int, Outcome]]:
        """The outcome of each job with its index, in the order in which they end.

        Raises TargetError for a target that no worker runs.
        """
        kernels, given = Kernels(), list(jobs)
        for job in given:
            self._site(job.target)
        starts = [partial(self._run, kernels, job) for job in given]
        yield from self._results([job.target for job in given], starts)

    def compare(self, candidate: Job, default: Job) -> Comparison:
        """Run both alternately in one process of one worker, and compare their times and their results."""
        self._site(candidate.target)
        start = partial(self._compare, Kernels(), candidate, default)
        ((_, found),) = self._results([candidate.target], [start])
        return Comparison(found.state, why=found.why) if isinstance(found, Outcome) else found

    def _run(self, kernels: Kernels, job: Job) -> distributed.Future:
        site, packed = self._site(job.target), kernels.packed(job)
        default = self._default(job, packed)
        built = default if job.trace is None else self._build(job, packed)
        return self._submit(
            cluster_tasks.run_job, packed, job.trace, built, default, resources={RUN: 1, site.place.run: 1}
        )

    def _compare(self, kernels: Kernels, *jobs: Job) -> distributed.Future:
        site, packed = self._site(jobs[0].target), [kernels.packed(job) for job in jobs]
        built = [
            self._default(job, each) if job.trace is None else self._build(job, each)
            for job, each in zip(jobs, packed)
        ]
        return self._submit(cluster_tasks.compare_jobs, packed, built, resources={RUN: 1, site.place.run: 1})

    def _default(self, job: Job, packed: bytes) -> distributed.Future:
        """The build of the default schedule of a job's kernel, which is used by all jobs of the kernel: each
        worker compares the results of candidates with those of the default.
        """
        key = packed, job.target in self._pinned
        known = self._defaults.pop(key, None)
        if known is None or known.status not in ("pending", "finished"):
            known = self._build(replace(job, trace=None), packed)
        self._defaults[key] = known
        for old in list(self._defaults)[:-KEPT]:
            del self._defaults[old]
        return known

    def _build(self, job: Job, packed: bytes) -> distributed.Future:
        site = self._site(job.target)
        resource = site.place.build if job.target in self._pinned else build_resource(compiler_parts())
        return self._submit(cluster_tasks.build_job, packed, job.trace, site.meaning, resources={resource: 1})

    def _submit(self, function: Callable[..., Any], *args: Any, **options: Any) -> distributed.Future:
        try:
            return self._client.submit(function, *args, pure=False, **options)
        except (OSError, RuntimeError) as error:
            raise RuntimeFailure("the cluster takes no jobs", why=str(error)) from error

    def _results(
        self, targets: Sequence[str], starts: Sequence[Callable[[], distributed.Future]]
    ) -> Iterator[tuple[int, Any]]:
        """The results of tasks in the order in which they end; those that failed are Outcomes."""
        if self._client.status != "running" and not self._reopens():
            raise RuntimeFailure(
                "the scheduler of the cluster vanished",
                hint="start it, and tune again: what was measured is recorded",
            )
        futures, absence = Futures(self._client), Absence(self._patience)
        try:
            for number, start in enumerate(starts):
                futures.add(number, start())
            repeated: set[int] = set()
            while futures.numbers:
                broken = []
                for number, found in futures.ended(POLL):
                    if found is DISCONNECTED:
                        broken.append(number)
                    elif not isinstance(found, Rejected):
                        yield number, found
                    elif number in repeated:
                        yield number, Outcome(BUILD, why=found.why)
                    else:
                        self._pinned.add(targets[number])
                        repeated.add(number)
                        futures.add(number, starts[number]())
                if broken or self._client.status == "closed":
                    broken += futures.numbers
                    futures.cancel()
                    if not self._reopens():
                        yield from ((number, DISCONNECTED) for number in broken)
                        return
                    futures = Futures(self._client)
                    for number in broken:
                        futures.add(number, starts[number]())
                for target in absence.found({targets[n] for n in futures.numbers}, self._present):
                    for number in [n for n in futures.numbers if targets[n] == target]:
                        futures.drop(number)
                        yield number, Outcome(LOST, why=f"no worker of the cluster runs {target} any more")
        finally:
            if futures.numbers:  # the caller stopped early
                self._defaults.clear()
            futures.cancel()

    def _reopens(self) -> bool:
        """Connect again after the connection broke, by a new client, since the scheduler forgets the tasks of
        the old one. Returns whether the scheduler answers; a client of the caller is never replaced.
        """
        if self._address is None:
            return False
        self._defaults.clear()
        with suppress(Exception):  # a broken client may fail in any way as it closes
            self._client.close(timeout=1)
        try:
            self._client = connect(self._address, self._security)
        except UsageError:
            return False
        return True

    def _present(self, target: str) -> bool:
        """Whether a worker runs a target now."""
        resource = self._site(target).place.run
        workers = self._client.scheduler_info(n_workers=-1)["workers"].values()
        return any(resource in worker["resources"] for worker in workers)

    def _site(self, target: str) -> Site:
        if target not in self._sites:
            self._sites[target] = find_site(self._client, target, self._machine, self._wait)
        return self._sites[target]


class Kernels:
    """The packed kernels of some jobs. Jobs of one kernel share the work of packing it."""

    def __init__(self) -> None:
        self._known: dict[object, tuple[PrimFunc, bytes]] = {}

    def packed(self, job: Job) -> bytes:
        """The job without its trace."""
        others = (job.settings, job.sizes)
        key = (id(job.func), job.target, job.inputs_seed, job.threads, *(repr(dict(each)) for each in others))
        if key not in self._known:
            self._known[key] = job.func, cluster_tasks.pack(job)
        return self._known[key][1]


class Absence:
    """How long targets have had no worker. Looks at the workers at most every POLL seconds."""

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._since: dict[str, float] = {}
        self._looked = time.monotonic()

    def found(self, targets: Collection[str], present: Callable[[str], bool]) -> list[str]:
        """Those of the targets that have had no worker for longer than the patience."""
        now = time.monotonic()
        if now < self._looked + POLL:
            return []
        self._looked = now
        absent = [target for target in targets if not present(target)]
        self._since = {target: self._since.get(target, now) for target in absent}
        return [target for target, since in self._since.items() if now - since >= self._patience]


def measurer_for(
    address: str,
    *targets: str | Target,
    machine: str = "",
    wait: float = 0.0,
    patience: float = 60.0,
    tls_ca: Path | None = None,
    tls_cert: Path | None = None,
    tls_key: Path | None = None,
) -> ClusterMeasurer:
    """The measurer of the cluster whose scheduler has this address, such as "tcp://10.0.0.1:8786".

    An address "tls://..." needs the certificate of the authority, and a certificate and key of this process,
    here or in Dask's configuration (`distributed.comm.tls`). Other arguments and the errors are those of
    `ClusterMeasurer`.
    """
    security = security_of(address, tls_ca, tls_cert, tls_key)
    return ClusterMeasurer(
        address, *targets, machine=machine, wait=wait, patience=patience, security=security
    )


__all__ = ["ClusterMeasurer", "measurer_for"]
