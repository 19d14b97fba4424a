"""Runs of an artefact: its costs and its results.

    run = Run(path, job)
    costs = run.costs(Repeats())         seconds of a call, or costs by the measure of the target
    arrays = run.results()

The time of a call is that of its kernels: inputs and outputs are bound before. Each repeat times as many
calls as take about REPEAT_SECONDS, after one call that is not timed.

Caches are not flushed by default: a kernel of a model reads activations that the kernel before it has just
written, and weights that stay in the last-level cache if the model fits there. If the weights do not fit, a
single kernel is faster in repeated calls than in its model; `flush` makes each timed call start with cold
caches.
"""

from __future__ import annotations

import hashlib
import os
import platform
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path

import numpy as np

from dlc_core.driver import open as open_artefact
from dlc_core.op.declare import NDArray
from dlc_core.plugin.registry import registry
from dlc_core.runtime.call.bound import BoundCall
from dlc_core.runtime.machine.resources import cache_sizes
from dlc_core.runtime.measure.timing import time_calls
from dlc_tune.measuring.job import Job
from dlc_tune.measuring.kernel import inputs_of
from dlc_tune.measuring.noise import Repeats
from dlc_tune.measuring.vendor import Measure

REPEAT_SECONDS = 0.01
"""The time of the calls of one repeat, about."""
MAX_CALLS = 1 << 20
SECONDS = "seconds"
"""The unit of costs that the clock measures."""


class Run:
    """An artefact that is opened, with its inputs.

    `outputs` is the memory of the results if it is shared with another run, so that the two differ in
    nothing but their code. Raises DlcError if the artefact cannot be opened or does not fit its job.
    """

    def __init__(
        self, path: Path, job: Job, flush: bool = False, outputs: Sequence[NDArray] | None = None
    ) -> None:
        self.exe = open_artefact(path, num_threads=job.threads)
        self.inputs = inputs_of(job.func, job.inputs_seed, job.sizes)
        self._outputs = outputs
        self._flush = flush
        self.measure: Measure | None = registry().measures.get(self.exe.target.kind.name)

    @property
    def unit(self) -> str:
        return SECONDS if self.measure is None else self.measure.unit

    @property
    def where(self) -> str:
        """The machine and the device."""
        return f"{platform.node()} {self.exe.target.kind.device}".strip()

    @cached_property
    def call(self) -> BoundCall:
        """The call on fixed memory."""
        return self.exe.bind(self.inputs, self._outputs)

    @cached_property
    def number(self) -> int:
        """The number of calls of one repeat. The first use makes a call that is not timed."""
        if self._flush:
            self.call()
            return 1
        return calls_for(lambda number: time_calls(self.call, number), REPEAT_SECONDS)

    def sample(self, number: int | None = None) -> float:
        """The seconds of a call: the mean of `number` consecutive ones."""
        number = number or self.number
        if self._flush:
            flush_caches()
        return time_calls(self.call, number) / number

    def costs(self, repeats: Repeats, best: float | None = None) -> tuple[float, ...]:
        """The costs of a call in repeats, until there are enough of them."""
        if self.measure is not None:
            costs, self.__dict__["_found"] = self.measure.costs(self.exe, self.inputs, repeats.least)
            return costs
        found: list[float] = []
        number, end = self.number, time.perf_counter() + repeats.seconds
        while not repeats.is_enough(found, best) and (not found or time.perf_counter() < end):
            found.append(self.sample(number))
        return tuple(found)

    def results(self) -> tuple[NDArray, ...]:
        """The results of a call, in memory of their own."""
        if self.measure is not None:
            if "_found" not in self.__dict__:
                self.costs(Repeats())
            found: tuple[NDArray, ...] = self.__dict__["_found"]
            return found
        self.call()
        return tuple(each.copy() for each in self.call.outputs)


def calls_for(seconds_of: Callable[[int], float], wanted: float) -> int:
    """The number of calls that take about `wanted` seconds. `seconds_of` times a number of calls; its first
    call, which loads code and memory, does not count.
    """
    seconds_of(1)
    number = 1
    while True:
        taken = seconds_of(number)
        if taken >= 0.5 * wanted or number >= MAX_CALLS:
            return max(1, min(MAX_CALLS, round(number * wanted / max(taken, 1e-9))))
        number = min(MAX_CALLS, max(number + 1, min(16 * number, int(number * wanted / max(taken, 1e-9)))))


def digest(arrays: Sequence[NDArray]) -> str:
    """A hash of dtypes, shapes and bytes of results."""
    found = hashlib.sha256()
    for each in arrays:
        found.update(f"{each.dtype}{each.shape}".encode())
        found.update(np.ascontiguousarray(each).tobytes())
    return found.hexdigest()


def flush_caches() -> None:
    """Write memory of twice the size of the last-level cache."""
    global _evictor
    if _evictor is None:
        _evictor = np.zeros(2 * cache_sizes()[2], np.uint8)
    np.add(_evictor, 1, out=_evictor)


_evictor: NDArray | None = None


def pin(cores: Sequence[int]) -> None:
    """Let all threads of this process run on these cores only, where the system can pin threads."""
    if not cores or not hasattr(os, "sched_setaffinity"):
        return
    for thread in Path("/proc/self/task").iterdir():
        with suppress(ProcessLookupError):  # the thread has ended
            os.sched_setaffinity(int(thread.name), cores)


__all__ = ["REPEAT_SECONDS", "SECONDS", "Run", "calls_for", "digest", "flush_caches", "pin"]
