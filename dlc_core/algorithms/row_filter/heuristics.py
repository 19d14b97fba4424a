"""The numbers by which row filters choose, which no description gives.

They choose among right results; "not measured" means that the history names no measurement.
"""

from __future__ import annotations

from dlc_core.heuristics import family
from dlc_core.support.record import record


@record(frozen=True)
class RowFilterHeuristics:
    """The numbers of tiles and strips."""

    near_share: float = 0.8
    """The share of L1 for the products of a strip.  Not measured."""
    far_share: float = 0.9
    """The share of L2 for a tile with all weights.  Not measured."""
    checked: int = 7
    """Most columns of results that are checked together for being finite.  Not measured."""


ROW_FILTER = family("row_filter", RowFilterHeuristics())

__all__ = ["ROW_FILTER", "RowFilterHeuristics"]
