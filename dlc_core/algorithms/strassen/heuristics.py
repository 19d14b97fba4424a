"""The heuristics of Strassen's algorithm: numbers of the cost model that no description gives.

"Fitted" means fitted to products of the development machine, whose figures
were not kept.  "Not measured" means that the history names no measurement.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from types import MappingProxyType

from dlc_core.heuristics import family
from dlc_core.support.record import record


@record(frozen=True)
class StrassenHeuristics:
    """The numbers of plans, and of the choice between these and the plain GEMM."""

    gain: tuple[tuple[float, float], tuple[float, float]] = ((0.96, 0.985), (0.96, 0.96))
    """The fraction of the cost with one level fewer below which a level is worth the rounding: for each
    level, on cores that start one multiply-add per cycle, and on cores that start several.  Zen 4, halved:
    equal; doubled: no kernel changes."""
    blocks: tuple[int, ...] = (64, 128, 256)
    """Candidates for the rows per block if the number of rows is symbolic, in the order of preference.  The
    rows of the tail are computed by a plain GEMM.  Zen 4, halved: equal; doubled: slower (gemm nx512x512
    7%)."""
    parts: int = 8
    """The number of candidates for the columns that use the algorithm.  A bound of the search."""
    scaled_reads: int = 1
    """How often scaling moves an element of the left-hand side to or from the LLC.  By counting."""
    scaled_results: int = 2
    """The same for an element of the result.  By counting."""
    l2_fraction: float = 0.5
    """The fraction of L2 that the products of a panel may take.  Halved and doubled: no kernel of the corpus
    changes."""
    l2_fraction_by_tiles: float = 0.75
    """The fraction of L2 for row sums and two panels of weights, if all products of a row tile come before
    the next tile: each tile then reads the whole panel.  Zen 4, halved: equal; doubled: no kernel changes."""
    combined_cycles: float = 5.0
    """Cycles per vector of the result with this loop order, in which the products stay in L1.  Fitted."""
    result_traffic: Mapping[int, float] = field(default_factory=lambda: MappingProxyType({1: 3.0, 2: 5.0}))
    """Elements moved per element of the result, in addition to those of a plain GEMM, by number of levels.
    Fitted."""
    row_traffic: Mapping[int, float] = field(default_factory=lambda: MappingProxyType({1: 0.5, 2: 3.0}))
    """Elements moved per element of the left-hand side, whose sums every thread stores, by number of levels.
    Fitted."""
    l2_row_traffic: float = 0.25
    """The same on one level if the sums stay in L2.  Fitted."""
    exposed_reload: float = 0.125
    """The fraction of weight reads per further block of rows that arithmetic does not hide, if they come from
    the LLC.  Fitted."""
    memory_fraction: float = 0.34
    """The fraction of a plain GEMM's cycles that loading the weights from memory may take.  Beyond it the
    GEMM is memory-bound, and fewer multiplications save no time.  Halved and doubled: no kernel of the corpus
    changes."""
    min_block: int = 48
    """The rows of a block from which tiles of its submatrices are efficient.  Halved and doubled: no kernel
    of the corpus changes."""
    remote_bytes_per_cycle: float = 7.0
    """Bytes per cycle that a core reads of a left-hand side which other cores have written.  Fitted."""
    l2_sum_fraction: float = 1 / 8
    """The fraction of L2 that products may take to be summed at `l2_sum_bytes_per_cycle`.  Halved and
    doubled: no kernel of the corpus changes."""
    llc_bytes_per_cycle: float = 8.0
    """Bytes per cycle of operands and sums beyond L2, at most the bandwidth of the LLC.  Reads beside writes
    get half of it.  Zen 4, not measured alone."""
    l2_sum_bytes_per_cycle: float = 14.0
    """Bytes per cycle with which products are summed in L2.  Fitted."""
    line_cycles: float = 3.0
    """Cycles per vector that is loaded from L2, with many loads and prefetch.  Fitted."""
    unprefetched_line_cycles: float = 4.5
    """The same without prefetch, because there is only one tile.  Fitted."""
    tile_cycles: float = 100.0
    """Overhead of a tile on two levels, in cycles per vector of its width.  Fitted."""
    exposed_loads: float = 1 / 32
    """The fraction of loads that arithmetic does not hide.  Fitted."""
    two_level_values: int = 1 + 4
    """Values between stages on two levels, relative to the products of one level: products and submatrices.
    By counting."""
    llc_sum_fraction: float = 5 / 16
    """The fraction of the LLC that sums of the left-hand side may take on two levels, for all threads
    together.  Halved and doubled: no kernel of the corpus changes."""
    two_level_reads: int = 8
    """Second-level submatrices of the right-hand side that the products of one outer product read repeatedly.
    By counting."""
    max_vectors: int = 8
    """The largest width of a tile in vectors, a bound of the search."""


STRASSEN = family("strassen", StrassenHeuristics())

__all__ = ["STRASSEN", "StrassenHeuristics"]
