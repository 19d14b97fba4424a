"""The numbers of the roofline model that no description gives; see `dlc_core.heuristics`."""

from __future__ import annotations

from dlc_core.heuristics import family
from dlc_core.support.record import record


@record(frozen=True)
class RooflineHeuristics:
    """The numbers of expected times (`cost.py`)."""

    function_steps: int = 20
    """Instructions of a function that is evaluated as a polynomial.  By counting, an average."""
    attained: float = 0.9
    """The fraction of a limit that good kernels attain.  Zen 4: half of the GEMMs of the corpus attain more
    than 0.98, of the elementwise kernels 0.9.  Halved and doubled: no kernel of the corpus changes."""
    gather_cycles: float = 5.0
    """Cycles of an access at an address that is data.  Measured on Zen 4: 4.5 to 7, with the index test."""
    reduction_cycles: float = 50.0
    """Cycles for which a reduction along a row waits for its last operations.  Measured on Zen 4, layer norm:
    24 for rows of 96 elements, 53 for 384, 110 for 768."""
    shared_cache_ratio: int = 4
    """The bandwidth of the cache that units share, relative to that of memory.  Not measured: no program of
    the corpus reads it on one thread."""
    min_parallel: float = 2e-5
    """Seconds of a kernel below which it is expected to run on one thread.  Halved and doubled: no kernel of
    the corpus changes."""


ROOFLINE = family("roofline", RooflineHeuristics())

__all__ = ["ROOFLINE", "RooflineHeuristics"]
