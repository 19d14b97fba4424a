"""The heuristics of Winograd convolutions: numbers of the cost model that no description gives.

"Fitted" means fitted to convolutions of residual networks on the development
machine; the measurements were not kept.  "Not measured" means that the history names no measurement.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from types import MappingProxyType

from dlc_core.heuristics import family
from dlc_core.support.record import record

Kind = tuple[int, int, int]
"""Rows and columns of a tile, and the stride."""


def _by_kind(values: Mapping[Kind, float]) -> Mapping[Kind, float]:
    kept: Mapping[Kind, float] = field(default_factory=lambda: MappingProxyType(dict(values)))
    return kept


@record(frozen=True)
class WinogradHeuristics:
    """The numbers of transforms, loads and barriers."""

    input_steps: Mapping[Kind, float] = _by_kind(
        {(2, 2, 1): 28.0, (4, 4, 1): 240.0, (2, 2, 2): 70.0}
        | {(4, 4, 2): 420.0, (2, 1, 1): 14.0, (4, 2, 1): 90.0}
    )
    """Cycles to transform the inputs of one tile, per vector of channels.  Fitted; about one instruction per
    cycle."""
    result_steps: Mapping[Kind, float] = _by_kind(
        {(2, 2, 1): 40.0, (4, 4, 1): 200.0, (2, 2, 2): 60.0}
        | {(4, 4, 2): 350.0, (2, 1, 1): 28.0, (4, 2, 1): 100.0}
    )
    """The same for the results of one tile.  Fitted."""
    exchanged_bytes_per_cycle: float = 16.0
    """Bytes per cycle that a core reads of data that other cores have just written, in separate parts.
    Measured as 16 and more; with 0.7, convolutions of 28 x 28 pixels took 10 to 20% longer."""
    input_bytes_per_cycle: float = 2.0
    """Bytes per cycle that a core reads of an input that other cores have written, if all cores read all of
    it.  Fitted."""
    exposed: float = 0.1
    """The fraction of the shorter of arithmetic and loads that does not overlap the longer one.  Fitted."""
    l2_fraction: float = 0.85
    """The fraction of L2 that is available.  Zen 4, halved: slower (conv 3x3 64 56 15%, inception block 6%);
    doubled: no kernel changes."""
    llc_fraction: float = 0.25
    """The fraction of the LLC that is available; other cores and the weights of other kernels use the rest.
    Halved and doubled: no kernel of the corpus changes."""
    barrier_cycles: float = 6000.0
    """Cycles that each thread waits at the three barriers between stages.  Not measured: no program of the
    corpus reads it on one thread."""


WINOGRAD = family("winograd", WinogradHeuristics())

__all__ = ["WINOGRAD", "WinogradHeuristics"]
