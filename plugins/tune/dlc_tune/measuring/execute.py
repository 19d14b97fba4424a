"""Runs of an artefact: its costs and its results.

    run = Run(path, job)
    costs = run.costs(Repeats())         seconds of a call, or costs by the measure of the target
    arrays = run.results()

The time of a call is that of its kernels. Devices with memory of their own time kernels themselves, if they
can. On the others inputs and outputs are bound before. Each repeat times as many calls as take about a
millisecond. That is less than a time slice of the system, so most repeats are not interrupted on a busy
machine; one that was is repeated. All runs of a kernel have their inputs and outputs at the same distances
from each other, because stores and loads of addresses that differ by a multiple of 4096 bytes disturb each
other: the same code may take a third longer.

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
from functools import cached_property, partial
from pathlib import Path

import numpy as np

try:
    import resource
except ImportError:  # not on Windows
    resource = None  # type: ignore[assignment]

from dlc_core.driver import open as open_artefact
from dlc_core.op.declare import NDArray
from dlc_core.runtime.call.bound import BoundCall
from dlc_core.runtime.device import shares_memory
from dlc_core.runtime.executable import Executable
from dlc_core.runtime.machine.resources import cache_sizes
from dlc_core.runtime.measure.profile import COUNTER, DEVICE
from dlc_core.runtime.measure.timing import time_calls
from dlc_tune.measuring.job import Job
from dlc_tune.measuring.kernel import inputs_of
from dlc_tune.measuring.noise import Repeats
from dlc_tune.measuring.vendor import Measure, measure_of

REPEAT_SECONDS = 0.001
"""The time of the calls of one repeat, about."""
DEVICE_REPEAT_SECONDS = 0.02
"""The same for devices that time their kernels."""
TRIES = 4
"""How often a repeat that the system interrupts is timed again."""
LINE, PAGE, STAGGER = 64, 4096, 320
"""Bytes of a cache line, of a page, and by which starts of arrays differ in pages."""
MAX_CALLS = 1 << 20
SECONDS = "seconds"
"""The unit of costs that the clock measures."""


class Run:
    """An artefact that is opened, with its inputs.

    `beside` is a run of the same kernel, from which it takes the memory of inputs and outputs, so that the
    two differ in nothing but their code and its own memory. Raises DlcError if the artefact cannot be opened
    or does not fit its job.
    """

    def __init__(self, path: Path, job: Job, flush: bool = False, beside: Run | None = None) -> None:
        self.exe = open_artefact(path, num_threads=job.threads)
        self.measure: Measure | None = measure_of(self.exe.target)
        self._path = path
        self._job = job
        self._flush = flush
        self._beside = beside

    def again(self) -> Run:
        """The artefact opened once more, with the same memory of inputs and outputs."""
        return type(self)(self._path, self._job, self._flush, self._beside or self)

    @property
    def unit(self) -> str:
        return SECONDS if self.measure is None else self.measure.unit

    @property
    def where(self) -> str:
        """The machine and the device."""
        return f"{platform.node()} {self.exe.target.kind.device}".strip()

    @cached_property
    def inputs(self) -> list[NDArray]:
        if self._beside is not None:
            return self._beside.inputs
        return inputs_of(self._job.func, self._job.inputs_seed, self._job.sizes)

    @cached_property
    def call(self) -> BoundCall:
        """The call on fixed memory."""
        if self._beside is not None:
            return self.exe.bind(self._beside.call.inputs, self._beside.call.outputs)
        # The first call only tells the shapes of the outputs.
        outputs = self.exe.bind(self.inputs).outputs
        placed = side_by_side([*self.inputs, *outputs])
        return self.exe.bind(placed[: len(self.inputs)], placed[len(self.inputs) :])

    @cached_property
    def number(self) -> int:
        """The number of calls of one repeat. The first use makes a call that is not timed."""
        if self._flush:
            self.call()
            return 1
        if self._has_device_clock:
            # The time of calls around the kernels counts here: copies may take a thousand times as long.
            wanted = DEVICE_REPEAT_SECONDS
            return calls_for(lambda number: time_calls(partial(self._seconds, number)), wanted)
        return calls_for(self._seconds, REPEAT_SECONDS)

    def sample(self, number: int | None = None) -> float:
        """The seconds of a call: the mean of `number` consecutive ones."""
        number = number or self.number
        if self._has_device_clock:  # interruptions of this process do not matter
            return self._seconds(number) / number
        return sample(self._seconds, number, flush_caches if self._flush else None)

    @cached_property
    def _has_device_clock(self) -> bool:
        """Whether a device with memory of its own times its kernels. Copies from and to the host, which calls
        contain, are no part of a kernel.
        """
        return not shares_memory(self.exe.device) and device_seconds(self.exe, self.inputs, 1) is not None

    def _seconds(self, number: int) -> float:
        """The seconds of `number` calls."""
        if self._has_device_clock:
            return device_seconds(self.exe, self.call.inputs, number) or 0.0
        return time_calls(self.call, number)

    def costs(self, repeats: Repeats, best: float | None = None) -> tuple[float, ...]:
        """The costs of a call in repeats, until there are enough of them."""
        if self.measure is not None:
            return self._measured(repeats.least)[0]
        found: list[float] = []
        number, end = self.number, time.perf_counter() + repeats.seconds
        while not repeats.is_enough(found, best) and (not found or time.perf_counter() < end):
            found.append(self.sample(number))
        return tuple(found)

    def results(self) -> tuple[NDArray, ...]:
        """The results of a call, in memory of their own."""
        if self.measure is not None:
            return self._measured(1)[1]
        self.call()
        return tuple(each.copy() for each in self.call.outputs)

    def cost(self) -> float:
        """The cost of a run, by the measure of the target."""
        return self._measured(1)[0][0]

    _last: tuple[tuple[float, ...], tuple[NDArray, ...]] | None = None

    def _measured(self, repeat: int) -> tuple[tuple[float, ...], tuple[NDArray, ...]]:
        """Costs and results by the measure of the target, once if it is deterministic."""
        assert self.measure is not None
        if self._last is not None and self.measure.deterministic:
            return self._last
        self._last = self.measure.costs(self.exe, self.inputs, repeat)
        return self._last


def device_seconds(exe: Executable, inputs: Sequence[NDArray], number: int) -> float | None:
    """The seconds of the kernels of `number` calls by the clock or the counter of the device; None if it has
    none.
    """
    rows = exe.profile(inputs, runs=number, warmup=0).rows
    if not rows or any(row.measured not in (DEVICE, COUNTER) for row in rows):
        return None
    return number * sum(row.milliseconds for row in rows) / 1e3


def calls_for(seconds_of: Callable[[int], float], wanted: float) -> int:
    """The number of calls that take about `wanted` seconds. `seconds_of` times a number of calls; its first
    call, which loads code and memory, does not count.
    """
    seconds_of(1)
    number = 1
    while True:
        taken = max(1e-9, min(seconds_of(number), seconds_of(number)))
        if taken >= 0.5 * wanted or number >= MAX_CALLS:
            return max(1, min(MAX_CALLS, round(number * wanted / taken)))
        number = min(MAX_CALLS, max(number + 1, min(16 * number, int(number * wanted / taken))))


def sample(
    seconds_of: Callable[[int], float], number: int, before: Callable[[], object] | None = None
) -> float:
    """The mean seconds of `number` consecutive calls, which `seconds_of` times, after a call of `before`.

    If the system interrupts them, they are timed again, at most TRIES times, and the least mean counts.
    """
    found = []
    for _ in range(TRIES):
        if before is not None:
            before()
        had = interruptions()
        found.append(seconds_of(number) / number)
        if interruptions() == had:
            return found[-1]
    return min(found)


def interruptions() -> int:
    """How often the system has taken a core from this process; 0 where it does not tell."""
    return 0 if resource is None else resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


def side_by_side(arrays: Sequence[NDArray]) -> list[NDArray]:
    """Copies of arrays in one piece of memory, whose addresses differ by no multiple of a page."""
    starts, end = [], 0
    for number, each in enumerate(arrays):
        starts.append(end + number * STAGGER)
        end += -(-each.nbytes // LINE) * LINE
    memory = np.zeros(end + len(arrays) * STAGGER + PAGE, np.uint8)
    first = -memory.ctypes.data % PAGE
    found = []
    for start, each in zip(starts, arrays, strict=True):
        part = memory[first + start : first + start + each.nbytes].view(each.dtype).reshape(each.shape)
        part[...] = each
        found.append(part)
    return found


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


__all__ = ["REPEAT_SECONDS", "SECONDS", "Run", "calls_for", "digest", "flush_caches", "pin", "sample"]
