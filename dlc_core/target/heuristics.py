"""The numbers of the roofline model that no description gives; see `dlc_core.heuristics`."""

from __future__ import annotations

from dlc_core.heuristics import family
from dlc_core.support.record import record


@record(frozen=True)
class RooflineHeuristics:
    """The numbers of expected times (`cost.py`)."""

    function_steps: int = 20
    """Instructions of a function that is evaluated as a polynomial.  By counting, an average."""
    attained: float = 0.85
    """Part of a limit that good kernels reach.  Not measured."""
    near_share: int = 4
    """Bytes that units get from the cache that they share, for each that they get from memory.  Not
    measured."""
    least_parallel: float = 2e-5
    """Seconds of a kernel below which it is expected to run on one thread.  Not measured."""


ROOFLINE = family("roofline", RooflineHeuristics())

__all__ = ["ROOFLINE", "RooflineHeuristics"]
