"""The cost model of kernels: their work, the machine's limits, and the time that follows (a roofline).

    work = Work(flops=..., steps=..., functions=..., bytes=..., constants=...)
    Machine.of(target.describe()).estimate(work, threads=2, resident=...)  -> Estimate

The model is the roofline [1]: a kernel takes at least as long as its arithmetic at the peak of the vector
units, and as its bytes at the bandwidth of their level: a cache that holds them, or memory.  `limit` is that
time.  `seconds` is the expected time: the longer of the cycles in which the scheduled code is issued
(`predict_cycles`) and of the time of its traffic from L2 and further levels (`reuse.py`), and the fixed cost
of a call.  Where one of both is unknown, kernels are expected to attain the fraction `ROOFLINE.attained` of
the limit.

A machine with units that work at the same time (`Description.units`) has no caches in this model. Its limit
is the time of the busiest unit: for products, elementwise operations, or copies.

[1] Williams, Waterman, Patterson: Roofline, Communications of the ACM 52 (4), 2009.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any, TypeVar

from dlc_core.support.record import record
from dlc_core.target.description import Description
from dlc_core.target.heuristics import ROOFLINE
from dlc_core.target.reuse import Traffic
from dlc_core.target.units import LOAD, PRODUCT, VECTOR, Unit

_EXPONENTIAL = ("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sigmoid", "erf", "pow")
_CIRCULAR = ("sin", "cos", "tan", "asin", "acos", "atan", "atan2")
_HYPERBOLIC = ("sinh", "cosh", "tanh", "asinh", "acosh", "atanh")
CYCLES = "cycles"
"""The attribute of a scheduled kernel, and the key of its call's record, with the predicted cycles of its
code on one thread."""
SEGMENT = "segment"
"""The key of a kernel call's record with the segment of a host program that contains it."""
FUNCTIONS = frozenset({*_EXPONENTIAL, *_CIRCULAR, *_HYPERBOLIC})
"""Functions that are evaluated as polynomials."""


@record(frozen=True)
class Work:
    """The work of one run of a kernel; None if it depends on dims."""

    flops: int | None
    """Arithmetic operations on data."""
    steps: int | None
    """The same with a multiplication and its addition as one, without `functions`."""
    functions: int | None
    """Evaluations of the functions in FUNCTIONS."""
    bytes: int | None
    """The bytes of inputs, outputs and constants, each counted once."""
    constants: int | None
    """The part of `bytes` that belongs to constants of the model."""
    gathers: int | None = 0
    """Loads and stores at addresses that are data and differ along the innermost axis, so that no vector load
    serves them."""
    multiply_adds: int | None = 0
    """Products that are added to a running sum, as in contractions. Padding counts."""

    @staticmethod
    def of_record(data: Mapping[str, Any]) -> Work:
        """The work that `record` returned, among other data; what is missing is unknown."""
        return Work(*(data.get(one.name) for one in fields(Work)))

    @staticmethod
    def total(parts: Iterable[Work]) -> Work:
        """The sum of several works. A field is None if one of its terms is."""
        listed = list(parts)
        return Work(*(known_sum(getattr(one, each.name) for one in listed) for each in fields(Work)))

    def record(self) -> dict[str, Any]:
        """As JSON data."""
        return asdict(self)

    @property
    def intensity(self) -> float | None:
        """Operations per byte."""
        return None if self.flops is None or not self.bytes else self.flops / self.bytes


Number = TypeVar("Number", int, float)


def known_sum(terms: Iterable[Number | None]) -> Number | None:
    """The sum of some numbers; None if one of them is."""
    listed = list(terms)
    known = [term for term in listed if term is not None]
    return sum(known) if len(known) == len(listed) else None


@record(frozen=True)
class Estimate:
    """The time of a kernel: `limit` is the shortest time that the machine allows, `seconds` is the expected
    time."""

    seconds: float
    limit: float
    bound: str
    """The limiting resource: `compute`, a cache (`L1`, `L2`, …; `cache` if units share one), `memory`, or the
    name of a unit."""


@record(frozen=True)
class Machine:
    """The limits of a machine, of one core unless stated otherwise."""

    flops: float
    """Operations a second in float32: a fused multiply-add is two."""
    bandwidths: tuple[float, ...]
    """Bytes a second from each cache, L1 first, and from memory."""
    caches: tuple[int, ...]
    """Bytes of each cache."""
    shared_bandwidth: float
    """Bytes a second that all cores together get from memory."""
    measured: bool = False
    """Whether the figures were measured rather than taken from a description."""
    fork_seconds: float = 0.0
    """Seconds to run a parallel loop on several threads, in addition to its work."""
    call_seconds: float = 0.0
    """Seconds of a kernel call or launch, in addition to its work."""
    frequency: float = 3e9
    """Cycles a second, for predictions in cycles."""
    launches: int = 0
    """The number of units on which every kernel is launched; 0 if threads of the host run it."""
    units: tuple[Unit, ...] = ()
    """Units with queues of their own, which work at the same time."""

    @staticmethod
    def of(description: Description) -> Machine:
        """The limits that a description implies."""
        if description.thread_axes and not description.vector_bits:
            return Machine._of_units(description)
        lanes = description.lanes(32)
        steps = lanes * description.vector_units * description.frequency
        return Machine(
            (2 if description.fma else 1) * steps,
            tuple(rate * description.frequency for rate in description.bytes_per_cycle),
            description.caches,
            description.memory_bandwidth * max(1, description.cores) ** description.memory_scaling,
            fork_seconds=description.fork_cycles / description.frequency,
            call_seconds=description.call_seconds,
            frequency=description.frequency,
            units=description.units,
        )

    @staticmethod
    def _of_units(description: Description) -> Machine:
        """The costs on machines that launch groups of threads. Data that one launch leaves in a unit's cache
        is not available to the unit that reads it in the next launch. This does not apply if threads have
        vectors, because the units are then CPU cores.
        """
        units, memory = max(1, description.cores), description.memory_bandwidth
        flops = (2 if description.fma else 1) * description.vector_units * description.frequency
        rates = (ROOFLINE.shared_cache_ratio * memory, memory)
        return Machine(
            flops,
            rates,
            description.caches[-1:] or (0,),
            units * memory,
            call_seconds=description.launch_seconds,
            frequency=description.frequency,
            launches=units,
        )

    def estimate(
        self,
        work: Work,
        *,
        threads: int = 1,
        resident: int = 0,
        cycles: float = 0.0,
        traffic: Sequence[Traffic] = (),
    ) -> Estimate | None:
        """The time of a kernel on `threads` threads; None if its work is symbolic.

        `cycles` are those of its code on one thread, with all data in L1; 0 if they are not known. `traffic`
        is what it reads and writes; empty if it is not known. `resident` is the number of bytes that are read
        between two runs. For the limit, constants are in the fastest cache that holds that many bytes, and
        other data is in the fastest cache that it fits.
        """
        if work.steps is None or work.functions is None or work.bytes is None or work.constants is None:
            return None
        if self.units:
            times = self._unit_times(work)
            expected = cycles / self.frequency or max(times.values()) / ROOFLINE.attained
            return _estimate(times, expected + self.call_seconds)
        if self.launches:
            times = self._times(work, resident, self.launches)
            return _estimate(times, max(times.values()) / ROOFLINE.attained + self.call_seconds)
        one = self._times(work, resident, 1)
        team = 1 if max(one.values()) < ROOFLINE.min_parallel else threads
        times = one if team == 1 else self._times(work, resident, team)
        memory = self._memory_seconds(traffic, team)
        expected = max(cycles / self.frequency / team, memory)
        if not cycles or not traffic:
            expected = max(expected, max(times.values()) / ROOFLINE.attained)
        return _estimate(times, expected + self.call_seconds + (self.fork_seconds if team > 1 else 0.0))

    def _unit_times(self, work: Work) -> dict[str, float]:
        """The busy time of each unit. All bytes pass the unit that loads; without a unit for products or
        elementwise operations, the time of these is not known and counts as that of one step per cycle.
        """
        products = work.multiply_adds or 0
        steps = max(0, (work.steps or 0) - products) + ROOFLINE.function_steps * (work.functions or 0)
        times: dict[str, float] = {}
        for kind, amount in ((PRODUCT, products), (VECTOR, steps), (LOAD, work.bytes or 0)):
            unit = next((one for one in self.units if kind in one.works), None)
            rate = 1.0 if unit is None else math.prod(unit.shape) if kind == PRODUCT else unit.rate
            name = "compute" if unit is None else unit.name
            times[name] = times.get(name, 0.0) + amount / (rate * self.frequency)
        return times

    def _memory_seconds(self, traffic: Sequence[Traffic], threads: int) -> float:
        """The time of traffic beyond L1, on so many threads."""
        total = 0.0
        for one in traffic:
            held = one.held(self.caches[0]) if self.caches else 0.0
            for level in range(1, len(self.bandwidths)):
                nearer, held = held, one.held(self.caches[level]) if level < len(self.caches) else 1.0
                total += one.bytes * (held - nearer) / self._rate(level, threads)
        return total

    def _rate(self, level: int, threads: int) -> float:
        """The bytes a second that so many threads read from a level."""
        rate = self.bandwidths[level] * threads
        return min(rate, self.shared_bandwidth) if level == len(self.caches) else rate

    def _times(self, work: Work, resident: int, threads: int) -> dict[str, float]:
        steps = (work.steps or 0) + ROOFLINE.function_steps * (work.functions or 0)
        times = {"compute": steps / (self.flops / 2 * threads)}
        constants = work.constants or 0
        for size, held in ((constants, max(resident, constants)), *self._rest(work)):
            level = next((i for i, cache in enumerate(self.caches) if held <= cache), len(self.caches))
            name = self.level_name(level)
            times[name] = times.get(name, 0.0) + size / self._rate(level, threads)
        return times

    @property
    def executor(self) -> str:
        """The executor of kernels: a `thread` of the host, or a `unit` on which they are launched."""
        return "unit" if self.launches else "thread"

    def level_name(self, level: int) -> str:
        """The name of a cache level, or of memory."""
        if level == len(self.caches):
            return "memory"
        return "cache" if self.launches else f"L{level + 1}"

    @staticmethod
    def _rest(work: Work) -> list[tuple[int, int]]:
        """The bytes that are not constants, and the cache size that holds them."""
        rest = (work.bytes or 0) - (work.constants or 0)
        return [(rest, work.bytes or 0)]


def _estimate(times: Mapping[str, float], seconds: float) -> Estimate:
    bound = max(times, key=lambda name: times[name])
    return Estimate(seconds, times[bound], bound)


__all__ = ["CYCLES", "FUNCTIONS", "SEGMENT", "Estimate", "Machine", "Work", "known_sum"]
