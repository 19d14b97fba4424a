"""The comparison of two runs: interleaved times, a confidence interval of their ratio, and their results.

Both are timed in rounds. In each round both artefacts are opened again, and A and B run alternately,
A B B A, so that both see the same frequency and load of the machine, and neither always runs first. The ratio
of a round is the median of the ratios of its pairs, candidate over default. Pairs of one round are not
independent: code and memory that happen to be in an unlucky place make all of them slower. So the interval is
one of rounds. It is the interval of order statistics for the median, which holds for every distribution of
the noise. It is looked at after 8, 12, 16, 24 and 32 rounds, each time with a fifth of the allowed error
(O. J. Dunn, Multiple Comparisons Among Means, 1961). The comparison ends as soon as the candidate is surely
faster, or surely not faster by 1%.
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

LOOKS = (8, 12, 16, 24, 32)
"""The numbers of rounds after which the interval is looked at."""
PAIRS = 4
"""The pairs of a round of short runs."""
ERROR = 0.05
"""The probability of all looks together that an interval does not contain the ratio."""
RESOLUTION = 0.005
"""The least half width of an interval: smaller differences may be due to the order of loading."""
WORTHWHILE = 0.01
"""The comparison ends when the gain is surely less than this part of the time."""
PATIENCE = 5.0
"""The first look may take this multiple of the time limit, if runs are slow."""

Sample = Callable[[], float]
"""Times a run, in seconds."""


@record(frozen=True)
class Ratios:
    """The times of both, and the median of the ratios of rounds with its interval."""

    candidate: tuple[float, ...]
    default: tuple[float, ...]
    ratio: float
    low: float
    high: float
    resolution: float = RESOLUTION

    @property
    def noise(self) -> float:
        """The half width of an interval around the ratio that contains [low, high]."""
        return max(self.ratio - self.low, self.high - self.ratio, self.resolution)

    @property
    def is_faster(self) -> bool:
        """Whether the candidate is surely faster."""
        return self.ratio + self.noise < 1

    @property
    def is_clear(self) -> bool:
        """Whether the candidate is surely faster, or surely not faster by WORTHWHILE."""
        return self.is_faster or self.ratio - self.noise > 1 - WORTHWHILE


def in_rounds(
    add: Callable[[int], object],
    is_clear: Callable[[], bool],
    seconds: float,
    clock: Callable[[], float] = time.perf_counter,
) -> None:
    """Call `add` with the numbers of rounds until `is_clear` says so at a look, or for `seconds`."""
    start, done = clock(), 0
    for look in LOOKS:
        limit = start + seconds * (PATIENCE if look == LOOKS[0] else 1.0)
        while done < look and (not done or clock() < limit):
            add(done)
            done += 1
        if done < look or is_clear():
            return


def interleave(
    begin: Callable[[], tuple[Sample, Sample]],
    pairs: int = PAIRS,
    seconds: float = 2.0,
    clock: Callable[[], float] = time.perf_counter,
) -> Ratios:
    """Compare in rounds until the result is clear, or for `seconds`.

    `begin` begins a round and returns what times the candidate and the default in it.
    """
    ours: list[float] = []
    theirs: list[float] = []
    rounds: list[float] = []

    def add(done: int) -> None:
        candidate, default = begin()
        for number in range(done, done + pairs):
            if number % 2:
                theirs.append(default())
                ours.append(candidate())
            else:
                ours.append(candidate())
                theirs.append(default())
        last = zip(ours[-pairs:], theirs[-pairs:], strict=True)
        rounds.append(median(one / other for one, other in last))

    in_rounds(add, lambda: interval(ours, theirs, rounds).is_clear, seconds, clock)
    return interval(ours, theirs, rounds)


def interval(candidate: Sequence[float], default: Sequence[float], rounds: Sequence[float]) -> Ratios:
    """The median of the ratios of rounds, and its interval for one look."""
    middle = median(rounds) if rounds else 1.0
    ratios = sorted(rounds)
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


def disagreement(found: Sequence[NDArray], expected: Sequence[NDArray], layers: float = 1.0) -> str:
    """The difference of results beyond their tolerances; empty if they agree. NaN agrees with NaN.

    An element may differ by its dtype's tolerance of itself, and of the largest finite element of its result,
    if that is above one: sums in another order have errors of the size of their largest terms. `layers`
    multiplies the tolerances of floats for results that many kernels compute one after the other.
    """
    arrays = [np.asarray(each) for each in expected]
    given = [np.asarray(each) for each in found]
    if len(given) != len(arrays):
        return difference(given, arrays, {}) or ""
    for position, (have, want) in enumerate(zip(given, arrays, strict=True)):
        scale = max(1.0, _largest(want))
        allowed = {
            name: (layers * relative, layers * absolute * scale)
            for name, (relative, absolute) in tolerances_for([want]).items()
        }
        why = difference([have], [want], allowed)
        if why is not None:
            return f"result {position}: {why}" if len(arrays) > 1 else why
    return ""


def _largest(array: NDArray) -> float:
    """The largest magnitude of finite floats; 0 for other arrays."""
    if not DType.of(array.dtype).is_float:
        return 0.0
    finite = np.abs(array.astype(np.float64))
    finite = finite[np.isfinite(finite)]
    return float(finite.max()) if finite.size else 0.0


__all__ = [
    "PAIRS",
    "PATIENCE",
    "Ratios",
    "Sample",
    "disagreement",
    "in_rounds",
    "interleave",
    "interval",
    "interval_rank",
    "tolerances_for",
]
