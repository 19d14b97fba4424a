"""Ranges of tensors on calibration data, and the part of a range that the 256 values of a byte should
cover."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dlc_core.diag import UsageError

NDArray = np.ndarray[Any, Any]
METHODS = ("minmax", "percentile", "mse")
BINS = 2048
LEVELS = 256
SHARES = 64
"""Ranges that are tried between the whole one and nothing."""


@dataclass
class Seen:
    """The statistics of one tensor: its least and greatest element, and a histogram of the range."""

    low: float = 0.0
    high: float = 0.0
    counts: NDArray = field(default_factory=lambda: np.zeros(BINS, np.int64))

    def widen(self, array: NDArray) -> None:
        """Take an array's elements into the range, which always has 0."""
        if array.size:
            least, greatest = float(array.min()), float(array.max())
            if not (np.isfinite(least) and np.isfinite(greatest)):
                raise UsageError(
                    "a tensor is not finite on the calibration data", hint="leave out what overflows"
                )
            self.low, self.high = min(self.low, least), max(self.high, greatest)

    def count(self, array: NDArray) -> None:
        """Count an array's elements, all of which are in the range."""
        if self.high > self.low:
            self.counts += np.histogram(array, BINS, (self.low, self.high))[0]

    def range(self, method: str, percentile: float) -> tuple[float, float]:
        """The range to cover: all of it (minmax), a part of the elements (percentile), or that with the least
        mean squared error (mse)."""
        total = int(self.counts.sum())
        if method == "minmax" or not total:
            return self.low, self.high
        if method == "percentile":
            return self._holding(percentile / 100.0, total)
        shares = [self._clipped(n / SHARES) for n in range(SHARES, SHARES // 8, -1)]
        counts = self._without_zeros()
        best = min(shares, key=lambda share: squared_error(counts, self.low, self.high, *share))
        edges = np.linspace(self.low, self.high, BINS + 1)
        return float(edges[best[0]]), float(edges[best[1]])

    def _without_zeros(self) -> NDArray:
        """The counts without those of 0, which is never rounded. After ReLU, most values may be 0."""
        place = min(BINS - 1, int(-self.low / (self.high - self.low) * BINS))
        counts: NDArray = self.counts.copy()
        counts[place] = min(counts[place], max(counts[max(0, place - 1)], counts[min(BINS - 1, place + 1)]))
        return counts

    def _holding(self, part: float, total: int) -> tuple[float, float]:
        """The range without the rarest ends, which hold 1 - part of the elements, half of them each."""
        running = np.cumsum(self.counts)
        rest = (1.0 - part) / 2 * total
        first = int(np.searchsorted(running, rest, "right"))
        last = int(np.searchsorted(running, total - rest, "left"))
        edges = np.linspace(self.low, self.high, BINS + 1)
        return min(0.0, float(edges[first])), max(0.0, float(edges[min(last + 1, BINS)]))

    def _clipped(self, share: float) -> tuple[int, int]:
        """The first bin and the end of the bins in a given share of the range around 0."""
        zero = -self.low / (self.high - self.low) * BINS
        return int(zero * (1 - share)), min(BINS, int(np.ceil(zero + (BINS - zero) * share)))


def squared_error(counts: NDArray, low: float, high: float, first: int, end: int) -> float:
    """The sum of squared errors of elements in bins from low to high, rounded to 256 levels between two bins.

    Inside the range, errors are assumed to be uniform over a level. Values outside are clamped to the ends.
    """
    edges = np.linspace(low, high, BINS + 1)
    centres = (edges[:-1] + edges[1:]) / 2
    level = (edges[end] - edges[first]) / (LEVELS - 1)
    below, above = edges[first] - centres[:first], centres[end:] - edges[end]
    outside = np.sum(counts[:first] * below**2) + np.sum(counts[end:] * above**2)
    return float(np.sum(counts[first:end]) * level**2 / 12 + outside)


def ranges_of(
    runs: Sequence[Iterable[Sequence[NDArray]]], number: int, method: str, percentile: float
) -> list[tuple[float, float]]:
    """Ranges of `number` tensors.  `runs` gives their values for each item of data, once to see how far they
    reach, and, where the method asks for it, again to count them."""
    found = [Seen() for _ in range(number)]
    for values in runs[0]:
        for seen, array in zip(found, values, strict=True):
            seen.widen(array)
    if method != "minmax":
        for values in runs[1]:
            for seen, array in zip(found, values, strict=True):
                seen.count(array)
    return [seen.range(method, percentile) for seen in found]


__all__ = ["METHODS", "Seen", "ranges_of", "squared_error"]
