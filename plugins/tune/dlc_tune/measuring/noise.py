"""How noisy a machine is, how often a run is repeated, and when it is not worth repeating."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from dlc_core.support.record import record

HOPELESS = 2.0
"""A candidate whose first repeat takes this multiple of the best time is not repeated."""


@record(frozen=True)
class Repeats:
    """When the repeats of a measurement end.

    Disturbances make runs longer, never shorter, so the least of the repeats is the estimate. It is taken as
    found when two repeats agree within `agree`. There are at least `least` and at most `most` repeats, and no
    more than `seconds` of them.
    """

    least: int = 5
    most: int = 40
    agree: float = 0.01
    seconds: float = 1.0

    def is_enough(self, costs: Sequence[float], best: float | None = None) -> bool:
        """Whether these costs need no further repeat. `best` is the least cost of other candidates."""
        if not costs:
            return False
        if best is not None and costs[0] > HOPELESS * best:
            return True
        if len(costs) < self.least:
            return False
        first, second = sorted(costs)[:2] if len(costs) > 1 else (costs[0], costs[0])
        return len(costs) >= self.most or second <= first * (1 + self.agree)


def noise_of(costs: Sequence[float]) -> float:
    """The noise of repeats of one run: the median of their distances from the least, relative to it.

    0 for a single repeat or a deterministic cost.
    """
    least = min(costs, default=0.0)
    return median(each - least for each in costs) / least if least > 0 else 0.0


__all__ = ["HOPELESS", "Repeats", "noise_of"]
