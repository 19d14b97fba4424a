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
    shared_cache_ratio: int = 4
    """The bandwidth of the cache that units share, relative to that of memory.  Not measured: no program of
    the corpus reads it on one thread."""
    min_parallel: float = 2e-5
    """Seconds of a kernel below which it is expected to run on one thread.  Halved and doubled: no kernel of
    the corpus changes."""


@record(frozen=True)
class IssueHeuristics:
    """The numbers of the cycles in which a core issues instructions (`predict_cycles.py`), for cores that
    start several instructions per cycle.
    """

    overlap: float = 0.2
    """The part of the cycles of loads, stores, vector and scalar arithmetic that is added to the slowest of
    them.  Fitted on Zen 4 to 1317 kernels of the corpus; 0.1 and 0.3 are as good."""
    division_cycles: float = 2.5
    """Cycles of a division, or half those of a square root, by one vector unit, which does not pipeline it.
    Measured on Zen 4 for vectors of two units: 5 and 10."""
    library_steps: int = 70
    """Instructions of a sine, cosine, tangent or power.  Measured on Zen 4: 35 cycles for 16 elements."""
    integer_division_cycles: float = 9.0
    """Cycles of an integer division, for each lane.  Measured on Zen 4 with the other work of the loop."""
    multiplied_division_cycles: float = 2.5
    """Cycles of a division of a 64-bit integer by a constant that is no power of two, for each lane: it
    becomes products and shifts.  Measured on Zen 4: 3.2 with the other work of the loop."""
    scalar_cycles: float = 0.1
    """Cycles of a scalar integer instruction.  Measured on Zen 4 by kernels of the corpus: most of those that
    are counted become parts of addresses."""
    lane_cycles: float = 1.2
    """Cycles to load or store one lane of a vector that is not contiguous in memory.  Measured on Zen 4 by
    transposes of images with three channels."""
    forward_cycles: float = 12.0
    """Cycles until a load returns what an earlier iteration stored.  Measured on Zen 4 by scatters that add
    to rows of nodes: 21 per row with the other work."""
    index_cycles: float = 2.0
    """Cycles to test an index that is data, for each lane.  Measured on Zen 4 by gathers of the corpus, which
    take 4.5 to 7 cycles in all."""
    iteration_cycles: float = 0.3
    """Cycles of an iteration in addition to its body; short bodies are unrolled.  Measured on Zen 4 by slices
    with short rows."""
    loop_cycles: float = 2.0
    """Cycles to enter and to leave a loop.  Measured on Zen 4 by slices with short rows."""


ISSUE = family("issue", IssueHeuristics())

ROOFLINE = family("roofline", RooflineHeuristics())

__all__ = ["ISSUE", "ROOFLINE", "IssueHeuristics", "RooflineHeuristics"]
