"""The heuristics of attention: numbers that no description gives.

"Not measured" means that the history names no measurement.
"""

from __future__ import annotations

from dlc_core.heuristics import family
from dlc_core.support.record import record


@record(frozen=True)
class TiledHeuristics:
    """The numbers of cores."""

    forced_rows: tuple[int, ...] = (1, 2, 3, 4, 6)
    """The queries of a tile that are candidates if the decision is forced.  For tests only."""


@record(frozen=True)
class TwoPassHeuristics:
    """The numbers of groups of threads that compute the scores twice."""

    threads: int = 128
    """The maximum number of threads of a group.  Not measured."""
    max_results: int = 64
    """The maximum number of results of a thread, which are in registers.  Not measured."""
    rows_per_thread: int = 4
    """Queries of a tile per thread.  Not measured."""
    tiles: tuple[tuple[int, int], ...] = ((32, 64), (32, 32), (16, 32), (16, 16), (8, 16), (4, 8))
    """Queries and keys of a tile, the preferred first.  Not measured."""
    min_queries: int = 4
    """The fewest queries; with fewer, other schedules distribute the keys over groups.  Not measured."""


@record(frozen=True)
class OnlineHeuristics:
    """The numbers of groups with matrix units."""

    min_queries: int = 9
    """The fewest queries; with fewer, tiles would be mostly padding.  Not measured."""
    subgroups: tuple[int, ...] = (4, 2, 1)
    """Subgroups of a group, the preferred first.  Not measured."""
    panels: tuple[tuple[int, bool], ...] = (
        (64, True), (32, True), (64, False), (32, False), (16, True), (16, False),
    )  # fmt: skip
    """Keys of a panel, and whether panels are double-buffered, the preferred first.  Not measured."""


TILED = family("attention.tiled", TiledHeuristics())
TWO_PASS = family("attention.two_pass", TwoPassHeuristics())
ONLINE = family("attention.online", OnlineHeuristics())

__all__ = ["ONLINE", "TILED", "TWO_PASS", "OnlineHeuristics", "TiledHeuristics", "TwoPassHeuristics"]
