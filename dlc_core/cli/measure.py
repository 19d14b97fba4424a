"""Measuring calls: repeated, with the spread of the times."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from statistics import median, quantiles

LEAST_RUNS = 5


@dataclass(frozen=True)
class Spread:
    """Milliseconds of a call: the median, the span from the 10th to the 90th percentile, the least."""

    median: float
    p10: float
    p90: float
    min: float
    max: float
    runs: int

    def __str__(self) -> str:
        return f"{self.median:.3f} ms (p10 {self.p10:.3f}, p90 {self.p90:.3f}, {self.runs} runs)"

    def record(self) -> dict[str, float]:
        return asdict(self)


def spread_of(seconds: list[float]) -> Spread:
    """The spread of measured times."""
    times = [1e3 * each for each in seconds]
    tenths = quantiles(times, n=10, method="inclusive") if len(times) > 1 else times * 9
    return Spread(median(times), tenths[0], tenths[-1], min(times), max(times), len(times))


def measure(
    call: Callable[[], object], *, repeat: int | None = None, warmup: int = 2, seconds: float = 1.0
) -> Spread:
    """Time a call `repeat` times, or for about `seconds` and at least a few times."""
    for _ in range(warmup):
        call()
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < repeat if repeat is not None else len(times) < LEAST_RUNS or time.perf_counter() < end:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return spread_of(times)
