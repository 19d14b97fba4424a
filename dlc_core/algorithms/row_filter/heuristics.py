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
    """The fraction of L1 for the products of a strip.  Not measured."""
    l2_fraction: float = 0.9
    """The fraction of L2 for a tile with all weights.  Not measured."""
    max_checked_columns: int = 7
    """The maximum number of columns of results that are checked together for non-finite values.  Not
    measured.
    """


ROW_FILTER = family("row_filter", RowFilterHeuristics())

__all__ = ["ROW_FILTER", "RowFilterHeuristics"]
