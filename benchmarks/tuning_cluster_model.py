"""A discrete-event model of a tuner that measures on a cluster: where its throughput saturates, and why.

The parts that can be busy are

- the tuner: one process, which proposes candidates, submits jobs and takes results
- the scheduler: one process, which handles one message after the other
- the machines: each has one runner and some builders; `exclusive` machines build nothing while they run

A job is proposed, submitted, built, moved to its runner, run, and reported. Service times are drawn from
measured ones. Machines fail at random while they work and come back; their jobs start again. A tuner works in
generations (it waits for all jobs of a batch before it proposes the next) or streams (it replaces jobs in
small groups, as they end).
"""

from __future__ import annotations

import importlib
import random
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dlc_core.diag import UsageError

PARTS = ("tuner", "scheduler", "builders", "runners")
GROUPS = 8
"""A streaming tuner proposes as soon as this fraction of its jobs has ended."""


@dataclass(frozen=True)
class Costs:
    """Measured times in seconds, and sizes in bytes."""

    builds: tuple[float, ...]
    runs: tuple[float, ...]
    propose: float
    """For a candidate."""
    learn: float
    """For a proposal of any size: the cost model learns the results before it."""
    client: float
    """The tuner's work for a job: submit it and take its result."""
    schedule: float
    """The scheduler's work for a task; a job has two."""
    artefact: float = 100e3
    latency: float = 0.5e-3
    bandwidth: float = 1.25e9 / 10
    """Bytes per second of a worker's link: 1 Gbit/s."""

    @property
    def service(self) -> tuple[float, float]:
        """The mean seconds of a build and of a run."""
        return sum(self.builds) / len(self.builds), sum(self.runs) / len(self.runs)


@dataclass(frozen=True)
class Cluster:
    """The machines. They fail after `between_failures` seconds of work, on average, for `repair` seconds."""

    workers: int
    builders: int = 1
    exclusive: bool = True
    between_failures: float = float("inf")
    repair: float = 60.0

    def ideal(self, costs: Costs) -> float:
        """Trials per second if nothing but the machines took time."""
        build, run = costs.service
        return self.workers / (build + run if self.exclusive else max(build / self.builders, run))


@dataclass
class Result:
    """The result of a simulation: the time of all trials, the busy seconds of each part, the jobs that
    started again, and sums of which means are computed."""

    trials: int
    seconds: float = 0.0
    busy: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PARTS, 0.0))
    restarts: int = 0
    ended: int = 0
    times: float = 0.0
    area: float = 0.0
    """The integral of the number of jobs over time."""

    @property
    def throughput(self) -> float:
        """Trials per second."""
        return self.trials / self.seconds

    @property
    def in_system(self) -> float:
        """The mean number of jobs that are submitted and have not ended."""
        return self.area / self.seconds

    @property
    def time(self) -> float:
        """The mean seconds from the submission of a job to its result."""
        return self.times / self.trials

    def shares(self, cluster: Cluster) -> Mapping[str, float]:
        """The part of the time that the tuner, the scheduler and the machines are busy: the builders of these
        or their runners, whichever are busier.
        """
        busy = {name: seconds / self.seconds for name, seconds in self.busy.items()}
        builders, runners = busy.pop("builders"), busy.pop("runners")
        if cluster.exclusive:
            machines = (builders + runners) / cluster.workers
        else:
            machines = max(builders / cluster.builders, runners) / cluster.workers
        return {**busy, "machines": machines}


def simulate(
    costs: Costs, cluster: Cluster, batch: int, streaming: bool, trials: int, seed: int = 0
) -> Result:
    """Simulate a tuner with at most `batch` jobs under way. Raises UsageError without the package simpy."""
    try:
        simpy = importlib.import_module("simpy")
    except ImportError as error:
        raise UsageError("the model needs the package simpy", hint='pip install "dlc-core[bench]"') from error
    model = _Model(simpy, costs, cluster, Result(trials), random.Random(seed))
    driver = model.stream(batch) if streaming else model.generations(batch)
    model.env.run(model.env.process(driver))
    model.result.seconds = model.env.now
    return model.result


Events = Generator[Any, Any, None]


class _Model:
    def __init__(
        self, simpy: Any, costs: Costs, cluster: Cluster, result: Result, random_numbers: random.Random
    ) -> None:
        self.env = simpy.Environment()
        self.costs, self.cluster, self.result = costs, cluster, result
        self._random = random_numbers
        self._simpy = simpy
        self._tuner, self._scheduler = simpy.Resource(self.env), simpy.Resource(self.env)
        self._runners = simpy.Resource(self.env, cluster.workers)
        self._builders = self._runners
        if not cluster.exclusive:
            self._builders = simpy.Resource(self.env, cluster.workers * cluster.builders)
        self._finished = simpy.Store(self.env)
        self._count, self._since = 0, 0.0

    def generations(self, batch: int) -> Events:
        """The next batch is proposed when all jobs of the one before have ended."""
        left = self.result.trials
        while left:
            number = min(batch, left)
            left -= number
            yield from self._propose(number)
            for _ in range(number):
                yield self._finished.get()

    def stream(self, batch: int) -> Events:
        """Jobs are replaced when a group of them has ended."""
        group = max(1, batch // GROUPS)
        begun = min(batch, self.result.trials)
        yield from self._propose(begun)
        while self.result.ended < self.result.trials:
            number = min(group, self.result.trials - self.result.ended)
            for _ in range(number):
                yield self._finished.get()
            again = min(number, self.result.trials - begun)
            begun += again
            yield from self._propose(again)

    def _propose(self, number: int) -> Events:
        if number:
            yield from self._use(self._tuner, "tuner", self.costs.learn + number * self.costs.propose)
        for _ in range(number):
            self.env.process(self._job())

    def _job(self) -> Events:
        begin = self.env.now
        self._counted(1)
        yield from self._use(self._tuner, "tuner", self.costs.client / 2)
        while True:
            yield from self._use(self._scheduler, "scheduler", self.costs.schedule)
            if not (yield from self._work(self._builders, "builders", self.costs.builds)):
                continue
            yield from self._use(self._scheduler, "scheduler", self.costs.schedule)
            yield self.env.timeout(self.costs.latency + self.costs.artefact / self.costs.bandwidth)
            if (yield from self._work(self._runners, "runners", self.costs.runs)):
                break
        yield from self._use(self._tuner, "tuner", self.costs.client / 2)
        self._counted(-1)
        self.result.times += self.env.now - begin
        self.result.ended += 1
        self._finished.put(None)

    def _work(self, machines: Any, name: str, times: Sequence[float]) -> Generator[Any, Any, bool]:
        """Work on a machine for one of some times. False if the machine failed before the end."""
        seconds = self._random.choice(times)
        request = machines.request()
        yield request
        rate = 1 / self.cluster.between_failures
        alive = self._random.expovariate(rate) if rate else float("inf")
        yield self.env.timeout(min(seconds, alive))
        self.result.busy[name] += min(seconds, alive)
        if alive >= seconds:
            machines.release(request)
            return True
        self.result.restarts += 1
        self.env.process(self._repaired(machines, request))
        return False

    def _repaired(self, machines: Any, request: Any) -> Events:
        yield self.env.timeout(self.cluster.repair)
        machines.release(request)

    def _use(self, part: Any, name: str, seconds: float) -> Events:
        with part.request() as request:
            yield request
            yield self.env.timeout(seconds)
        self.result.busy[name] += seconds

    def _counted(self, change: int) -> None:
        self.result.area += self._count * (self.env.now - self._since)
        self._count, self._since = self._count + change, self.env.now


__all__ = ["Cluster", "Costs", "Result", "simulate"]
