"""The heuristics of row filters: numbers that no description gives.

"Not measured" means that the history names no measurement.
"""

from __future__ import annotations

from dlc_core.heuristics import family
from dlc_core.support.record import record


@record(frozen=True)
class RowFilterHeuristics:
    """The numbers of tiles and strips."""

    l1_fraction: float = 0.8
    """The fraction of L1 for the products of a strip.  Zen 4, halved: equal; doubled: faster (transposed conv
    33%)."""
    l2_fraction: float = 0.9
    """The fraction of L2 for a tile with all weights.  Halved and doubled: no kernel of the corpus
    changes."""
    max_checked_columns: int = 7
    """The maximum number of columns of results that are checked together for non-finite values.  Halved and
    doubled: equal (Zen 4)."""


ROW_FILTER = family("row_filter", RowFilterHeuristics())

__all__ = ["ROW_FILTER", "RowFilterHeuristics"]
