"""The numbers by which minimal filtering is chosen, for Winograd convolutions and row filters alike.

They choose among right results.  Each says where it comes from; "not measured" means that the history names
no measurement.
"""

from __future__ import annotations

from dlc_core.heuristics import family
from dlc_core.support.record import record


@record(frozen=True)
class FilteringHeuristics:
    """The numbers of the choice, and of the measure of rounding errors."""

    gain: float = 0.9
    """Part of the direct convolution's cycles that tiles must stay below to be worth the rounding.  Not
    measured."""
    most_growth: float = 3.0
    """Root mean square errors that filtering may make for each one of the sum in order.  A promise of
    `docs/numerics.md`: do not raise it without that page."""
    channels: int = 64
    """Most input channels whose weights are looked at for the error.  Not measured; errors grow alike in
    filtering and in the sum in order."""
    outputs: int = 8
    """Most output channels that are looked at.  Not measured."""
    samples: int = 2
    """Random tiles with each kind of inputs.  Not measured; an error is a mean over all their results."""


FILTERING = family("minimal_filtering", FilteringHeuristics())

__all__ = ["FILTERING", "FilteringHeuristics"]
