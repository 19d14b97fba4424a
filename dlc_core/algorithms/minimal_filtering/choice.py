"""The choice between a direct convolution and tiles of minimal filtering, by cycles and rounding."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import TypeVar

from dlc_core.algorithms.minimal_filtering.heuristics import FILTERING
from dlc_core.decisions import Decision, short_number
from dlc_core.diag import Span

T = TypeVar("T")


def choose_tile(
    decision: Decision,
    direct: float,
    costs: Mapping[T, float | None],
    growth: Callable[[T], float],
    text: Callable[[T], str] = str,
    *,
    where: object,
    spans: Iterable[Span],
) -> T | None:
    """Return the tile with the least cycles that is worth its rounding; None for the direct convolution.

    `direct` are the cycles of the direct convolution, `costs` those of tiles, with None for tiles that do not
    fit the machine.  `growth` is the rounding error of a tile relative to that of the sum in order. It takes
    a millisecond, so it is computed only for tiles that would be chosen.  The alternatives of the decision
    are the direct convolution, then tiles.
    """
    limit = FILTERING.gain * direct
    errors: dict[T, float] = {}

    @cache
    def is_close(tile: T) -> bool:
        errors[tile] = growth(tile)
        return errors[tile] <= FILTERING.max_growth

    fitting = {tile: cost for tile, cost in costs.items() if cost is not None}
    cheap = sorted((tile for tile in fitting if fitting[tile] <= limit), key=fitting.__getitem__)
    plain, tiled = decision.alternatives

    def refused(tile: T | None) -> str:
        if tile is None:
            return ""
        if errors.get(tile, 0.0) > FILTERING.max_growth:
            error = f"its rounding error is {errors[tile]:.3g} times that of a sum in order"
            return f"{error}, the bound is {FILTERING.max_growth:g}"
        cost = costs[tile]
        if cost is None:
            return "there are no matrices for such tiles, or L2 does not hold one"
        if cost > limit:
            return (
                f"{short_number(cost)} cycles are above {FILTERING.gain:g} of the direct convolution's "
                f"{short_number(direct)}: not worth the rounding"
            )
        return ""

    return decision.pick(
        next((tile for tile in cheap if is_close(tile)), None),
        lambda: [None, *(tile for tile in fitting if is_close(tile))],
        lambda tile: plain if tile is None else tiled,
        lambda tile: "" if tile is None else text(tile),
        where=where,
        cost=lambda tile: direct if tile is None else costs[tile],
        refused=refused,
        compared=lambda: [None, *costs],
        spans=spans,
    )


__all__ = ["choose_tile"]
