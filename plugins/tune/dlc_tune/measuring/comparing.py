"""The comparison of two runs: interleaved times, a confidence interval of their ratio, and their results.

A and B run alternately, A B B A A B ..., each pair after the other, so that both see the same frequency and
the same load of the machine, and neither always runs first. The ratio of a pair is the time of the candidate
over that of the default. The interval of the median of the ratios is one of order statistics: it holds for
every distribution of the noise. It is looked at after 8, 16, 32, 64 and 128 pairs, each time with a fifth of
the allowed error, and the comparison ends as soon as the interval is clear. See O. J. Dunn, Multiple
Comparisons Among Means (1961), for the division of the error.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from math import comb
from statistics import median

import ml_dtypes
import numpy as np

from dlc_core.ir.dtype import DType
from dlc_core.op.declare import NDArray
from dlc_core.support.record import record
from dlc_core.testing.cases import difference
from dlc_core.testing.schedules import TOLERANCES

LOOKS = (8, 16, 32, 64, 128)
"""The numbers of pairs after which the interval is looked at."""
ERROR = 0.05
"""The probability of all looks together that an interval does not contain the ratio."""
RESOLUTION = 0.005
"""The least half width of an interval: where the linker and the allocator place code and memory changes times
by this much, in all pairs of one comparison alike."""
PATIENCE = 5.0
"""Slow runs take this multiple of the time limit for the first look, if they must."""


@record(frozen=True)
class Ratios:
    """The times of both, and the median of their ratios with its interval."""

    candidate: tuple[float, ...]
    default: tuple[float, ...]
    ratio: float
    low: float
    high: float

    @property
    def noise(self) -> float:
        """The half width of an interval around the ratio that contains [low, high]."""
        return max(self.ratio - self.low, self.high - self.ratio, RESOLUTION)


def interleave(
    candidate: Callable[[], float],
    default: Callable[[], float],
    seconds: float = 2.0,
    clock: Callable[[], float] = time.perf_counter,
) -> Ratios:
    """Time both alternately until one is clearly faster, or for `seconds`.

    Both return the seconds of a call.
    """
    start = clock()
    ours: list[float] = []
    theirs: list[float] = []
    for pairs in LOOKS:
        limit = start + seconds * (PATIENCE if pairs == LOOKS[0] else 1.0)
        while len(ours) < pairs and (not ours or clock() < limit):
            if len(ours) % 2:
                theirs.append(default())
                ours.append(candidate())
            else:
                ours.append(candidate())
                theirs.append(default())
        found = ratios_of(ours, theirs)
        if len(ours) < pairs or found.ratio + found.noise < 1 or found.ratio - found.noise > 1:
            return found
    return found


def ratios_of(candidate: Sequence[float], default: Sequence[float]) -> Ratios:
    """The ratios of pairs of times, and the interval of one look."""
    ratios = sorted(ours / theirs for ours, theirs in zip(candidate, default, strict=True))
    middle = median(ratios)
    rank = interval_rank(len(ratios), ERROR / len(LOOKS))
    # Without an interval nothing is known: one that contains 1 and any ratio.
    low, high = (ratios[rank - 1], ratios[-rank]) if rank else (0.0, middle + 1.0)
    return Ratios(tuple(candidate), tuple(default), middle, low, high)


def interval_rank(count: int, error: float) -> int:
    """The rank k for which the k-th least and the k-th largest of `count` values contain the median, except
    with a probability of at most `error`; 0 if there are too few values.
    """
    rank, outside = 0, 0.0
    while rank < count // 2:
        outside += 2 * comb(count, rank) / 2**count
        if outside > error:
            break
        rank += 1
    return rank


def tolerances_for(arrays: Sequence[NDArray]) -> Mapping[str, tuple[float, float]]:
    """The tolerances of results by dtype: those of the kit for schedules, because these may sum in another
    order.

    Results of declared dtypes have the tolerance of the declaration, other narrow floats two units in the
    last place, and integers none.
    """
    found = dict(TOLERANCES)
    for each in arrays:
        dtype = DType.of(each.dtype)
        if dtype.decl is not None:
            found[dtype.name] = (dtype.decl.tolerance, dtype.decl.tolerance)
        elif dtype.is_float and dtype.name not in found:
            unit = 2 * float(ml_dtypes.finfo(dtype.numpy).eps)  # type: ignore[no-untyped-call]
            found[dtype.name] = (unit, unit)
    return found


def disagreement(found: Sequence[NDArray], expected: Sequence[NDArray]) -> str:
    """The difference of results beyond their tolerances; empty if they agree. NaN agrees with NaN."""
    arrays = [np.asarray(each) for each in expected]
    return difference([np.asarray(each) for each in found], arrays, tolerances_for(arrays)) or ""


__all__ = ["Ratios", "disagreement", "interleave", "interval_rank", "ratios_of", "tolerances_for"]
