"""The heuristics of minimal filtering, for Winograd convolutions and row filters.

Each docstring gives the source of a number; "not measured" means that the history names no measurement.
"""

from __future__ import annotations

from dlc_core.heuristics import family
from dlc_core.support.record import record


@record(frozen=True)
class FilteringHeuristics:
    """The numbers of the choice, and of the measure of rounding errors."""

    gain: float = 0.9
    """The fraction of the direct convolution's cycles below which tiles are worth the rounding.  Zen 4,
    halved: slower (stem 7x7 /2 45%, residual block 26%, conv 3x3 /2 128 28 19%) and faster (transposed conv
    23%); doubled: no kernel changes."""
    max_growth: float = 3.0
    """The limit of the root mean square error, relative to that of the sum in order.  A promise of
    `docs/numerics.md`: change both together."""
    channels: int = 64
    """The maximum number of input channels for which the error is computed.  Halved and doubled: no kernel of
    the corpus changes.  Errors of filtering and of the sum in order grow equally with it."""
    outputs: int = 8
    """The maximum number of output channels for which the error is computed.  Zen 4, halved: equal; doubled:
    no kernel changes."""
    samples: int = 2
    """The number of random tiles of each kind of inputs.  Zen 4, halved: equal; doubled: no kernel changes.
    An error is a mean over all their results."""


FILTERING = family("minimal_filtering", FilteringHeuristics())

__all__ = ["FILTERING", "FilteringHeuristics"]
