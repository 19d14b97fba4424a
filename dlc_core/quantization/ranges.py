"""Ranges of tensors on calibration data, and the part of a range that a byte represents."""

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
CANDIDATES = 64
"""The number of steps from the full range to an empty one, for the method "mse"."""


@dataclass
class Statistics:
    """The statistics of one tensor: its least and greatest element, and a histogram of the range."""

    low: float = 0.0
    high: float = 0.0
    counts: NDArray = field(default_factory=lambda: np.zeros(BINS, np.int64))

    def extend(self, array: NDArray) -> None:
        """Extend the range to an array's elements. The range always contains 0."""
        if array.size:
            least, greatest = float(array.min()), float(array.max())
            if not (np.isfinite(least) and np.isfinite(greatest)):
                raise UsageError(
                    "a tensor is not finite on the calibration data",
                    hint="leave out the inputs that overflow",
                )
            self.low, self.high = min(self.low, least), max(self.high, greatest)

    def count(self, array: NDArray) -> None:
        """Count an array's elements, all of which are in the range."""
        if self.high > self.low:
            self.counts += np.histogram(array, BINS, (self.low, self.high))[0]

    def range(self, method: str, percentile: float) -> tuple[float, float]:
        """The range to represent: all of it (minmax), that of most elements (percentile), or the range with
        the least mean squared error (mse).
        """
        total = int(self.counts.sum())
        if method == "minmax" or not total:
            return self.low, self.high
        if method == "percentile":
            return self._percentile(percentile / 100.0, total)
        candidates = [self._clipped(n / CANDIDATES) for n in range(CANDIDATES, CANDIDATES // 8, -1)]
        counts = self._without_zeros()
        best = min(candidates, key=lambda fraction: squared_error(counts, self.low, self.high, *fraction))
        edges = np.linspace(self.low, self.high, BINS + 1)
        return float(edges[best[0]]), float(edges[best[1]])

    def _without_zeros(self) -> NDArray:
        """The counts without those of 0, which is never rounded. After ReLU, most values may be 0."""
        bin_of_zero = min(BINS - 1, int(-self.low / (self.high - self.low) * BINS))
        counts: NDArray = self.counts.copy()
        counts[bin_of_zero] = min(
            counts[bin_of_zero], max(counts[max(0, bin_of_zero - 1)], counts[min(BINS - 1, bin_of_zero + 1)])
        )
        return counts

    def _percentile(self, fraction: float, total: int) -> tuple[float, float]:
        """The range without its ends, each of which holds (1 - fraction) / 2 of the elements."""
        running = np.cumsum(self.counts)
        rest = (1.0 - fraction) / 2 * total
        first = int(np.searchsorted(running, rest, "right"))
        last = int(np.searchsorted(running, total - rest, "left"))
        edges = np.linspace(self.low, self.high, BINS + 1)
        return min(0.0, float(edges[first])), max(0.0, float(edges[min(last + 1, BINS)]))

    def _clipped(self, fraction: float) -> tuple[int, int]:
        """The first bin, and the end of the bins, of a given fraction of the range around 0."""
        zero = -self.low / (self.high - self.low) * BINS
        return int(zero * (1 - fraction)), min(BINS, int(np.ceil(zero + (BINS - zero) * fraction)))


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
    runs: Sequence[Iterable[Sequence[NDArray]]], count: int, method: str, percentile: float
) -> list[tuple[float, float]]:
    """Ranges of `count` tensors.  `runs` are two iterables over the tensors' values for each item of data:
    the first gives the ranges; the second gives the histograms, unless the method is "minmax".
    """
    found = [Statistics() for _ in range(count)]
    for values in runs[0]:
        for statistics, array in zip(found, values, strict=True):
            statistics.extend(array)
    if method != "minmax":
        for values in runs[1]:
            for statistics, array in zip(found, values, strict=True):
                statistics.count(array)
    return [statistics.range(method, percentile) for statistics in found]


__all__ = ["METHODS", "Statistics", "ranges_of", "squared_error"]
