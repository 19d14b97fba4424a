"""Time measurements of repeated calls, with the spread of the times.

spread = measure(lambda: exe(x), seconds=1.0)          milliseconds of single calls, as users see them
timing = exe.time_evaluator(number=10, repeat=5)(x)    seconds of a call without its checks
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from dlc_core.diag import UsageError

MIN_RUNS = 5
MAX_CALLS = 1 << 32
"""The number of calls per repeat that `min_repeat_ms` does not exceed."""


@dataclass(frozen=True)
class Spread:
    """The milliseconds of a call: median, 10th and 90th percentile, minimum, maximum."""

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
    low, middle, high = (float(each) for each in np.quantile(times, (0.1, 0.5, 0.9)))
    return Spread(middle, low, high, min(times), max(times), len(times))


def time_calls(call: Callable[[], object], number: int = 1) -> float:
    """The seconds of `number` consecutive calls."""
    calls = range(number)
    start = time.perf_counter()
    for _ in calls:
        call()
    return time.perf_counter() - start


def measure(
    call: Callable[[], object], *, repeat: int | None = None, warmup: int = 2, seconds: float = 1.0
) -> Spread:
    """Time a call `repeat` times, or for about `seconds` and at least MIN_RUNS times."""
    time_calls(call, warmup)
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < repeat if repeat is not None else len(times) < MIN_RUNS or time.perf_counter() < end:
        times.append(time_calls(call))
    return spread_of(times)


@dataclass(frozen=True)
class Timing:
    """The seconds of one call. `results` has the mean of the `number` calls of each repeat."""

    results: tuple[float, ...]
    number: int

    @property
    def mean(self) -> float:
        return float(np.mean(self.results))

    @property
    def median(self) -> float:
        return float(np.median(self.results))

    @property
    def min(self) -> float:
        return min(self.results)

    @property
    def max(self) -> float:
        return max(self.results)

    @property
    def std(self) -> float:
        """Standard deviation of the repeats."""
        return float(np.std(self.results))

    def __str__(self) -> str:
        unit, scale = next((u, s) for u, s in _UNITS if self.median * s >= 1 or u == _UNITS[-1][0])
        figures = ", ".join(
            f"{name} {getattr(self, name) * scale:.4g}" for name in ("median", "mean", "min", "std")
        )
        return f"{figures} {unit} ({len(self.results)} x {self.number} calls)"


_UNITS = (("s", 1.0), ("ms", 1e3), ("us", 1e6), ("ns", 1e9))


class TimeEvaluator:
    """Times calls on fixed memory: `evaluator(*arrays)` returns a Timing. `exe.time_evaluator` creates it."""

    def __init__(
        self,
        bind: Callable[[Sequence[Any]], Callable[[], object]],
        number: int,
        repeat: int,
        min_repeat_ms: float,
        warmup: int,
    ) -> None:
        if number < 1 or repeat < 1 or warmup < 0 or min_repeat_ms < 0:
            raise UsageError(
                f"a time evaluator of number={number}, repeat={repeat}, min_repeat_ms={min_repeat_ms}, "
                f"warmup={warmup}",
                hint="number and repeat are at least 1, the others at least 0",
            )
        self._bind = bind
        self.number = number
        self.repeat = repeat
        self.min_repeat_ms = min_repeat_ms
        self.warmup = warmup

    def __call__(self, *arrays: Any) -> Timing:
        """Bind the inputs, warm up and measure. Raises UsageError for invalid inputs."""
        call = self._bind(arrays)
        time_calls(call, self.warmup)
        number = self.number
        results: list[float] = []
        while len(results) < self.repeat:
            seconds = time_calls(call, number)
            min_seconds = self.min_repeat_ms / 1e3
            if seconds < min_seconds and number < MAX_CALLS:
                # The repeat is too short. Increase the number of calls, and begin again, so that all repeats
                # have the same number.
                results.clear()
                estimate = int(1.2 * number * min_seconds / max(seconds, 1e-9))
                number = max(number + 1, min(estimate, 16 * number))
                continue
            results.append(seconds / number)
        return Timing(tuple(results), number)


__all__ = ["Spread", "TimeEvaluator", "Timing", "measure", "spread_of", "time_calls"]
