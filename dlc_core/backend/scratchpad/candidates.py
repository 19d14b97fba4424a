"""The schedules of a contraction that are worth a comparison: tiles of nearly equal size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

from dlc_core.backend.scratchpad.problem import BATCH, Axis, K, M, N, Problem
from dlc_core.support.record import record

LEFT, RIGHT = "left", "right"


@record(frozen=True)
class Tiling:
    """A schedule: the tile of each axis by its number, and the operand that stays on the chip, or ""."""

    tile: tuple[int, ...]
    keep: str = ""


def tilings(problem: Problem, deep: int, wide: int) -> Iterator[Tiling]:
    """Schedules for an array of `deep` x `wide` multipliers (K, N), of any need of memory."""
    options = [_options(axis, problem, deep, wide) for axis in problem.axes]
    for tile in product(*options):
        for keep in ("", LEFT, RIGHT) if problem.of(N) and problem.of(M) else ("",):
            yield Tiling(tile, keep)


def _options(axis: Axis, problem: Problem, deep: int, wide: int) -> list[int]:
    """The tiles of an axis that are worth a comparison: parts of nearly equal size."""
    if axis.extent == 1:
        return [1]
    if axis.role == BATCH:
        return [1]
    own = problem.of(axis.role)
    if axis.role == K:
        # One axis of K is divided into chunks, the longest; windows stay whole.
        longest = max(own, key=lambda a: a.extent)
        return _parts(axis.extent, deep, 8) if axis is longest else [axis.extent]
    last = axis is own[-1]
    if axis.role == N and len(own) == 1:
        return _parts(axis.extent, wide, 10)
    return _parts(axis.extent, 1, 4 if last and len(own) > 1 else 12)


def _parts(extent: int, unit: int, most: int) -> list[int]:
    """Tiles that divide an extent into parts of nearly equal size, multiples of `unit`."""
    counts = [
        n for n in (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 48, 64, 96, 128) if n <= extent
    ]
    found: list[int] = []
    for count in counts:
        size = min(extent, -(-extent // (count * unit)) * unit)
        if size not in found:
            found.append(size)
    if found[-1] > unit:
        found.append(min(unit, extent))
    return found if len(found) <= most else _spread(found, most)


def _spread(values: Sequence[int], most: int) -> list[int]:
    """Some of the values, among them the first and the last."""
    return list(dict.fromkeys(values[round(i * (len(values) - 1) / (most - 1))] for i in range(most)))


__all__ = ["LEFT", "RIGHT", "Tiling", "tilings"]
