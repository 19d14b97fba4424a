"""Register tiles of a block: which fit the registers, and how many cycles they are predicted to take.

A tile has `vectors` vectors along one spatial axis, and some iterations of up to two other axes. One step of
the reduction multiplies each accumulator once. It loads an operand once for each combination of the tile's
iterations that the operand depends on. The cost of a step is that of the busiest unit: multiply-adds, loads,
or the latency of an accumulator's chain.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

from dlc_core.schedule.rules.analysis import extent_of
from dlc_core.support.record import record
from dlc_core.target.description import Description
from dlc_core.tir.stmt import IterVar
from dlc_tune.spaces.sketches.access import Access, Operand

MAX_COUNT = 32
"""The most iterations of an axis in a tile."""
WASTE = 1.15
"""The share by which whole tiles may exceed an extent that they do not divide."""


@record(frozen=True)
class Registers:
    """The register tiles of a block on a machine.

    `vector` is the axis of vectors, None without vectors; `contiguous` are the operands that a vector load
    reads along it.
    """

    access: Access
    description: Description
    vector: IterVar
    lanes: int
    contiguous: tuple[Operand, ...]

    def length(self, axis: IterVar) -> int:
        """The extent of an axis, in vectors along the axis of vectors."""
        extent = extent_of(axis) or 1
        return -(-extent // self.lanes) if axis is self.vector else extent

    def counts(self, axis: IterVar) -> list[int]:
        """The iterations (or vectors) of an axis of a tile: divisors, and others of little waste."""
        extent = self.length(axis)
        limit = min(extent, MAX_COUNT, self.description.usable_registers)
        divisors = [n for n in range(1, limit + 1) if extent % n == 0]
        if (extent > limit and divisors[-1] * 2 <= limit) or axis is self.vector:
            near = (n for n in range(1, limit + 1) if -(-extent // n) * n <= WASTE * extent)
            return sorted({*divisors, *near})
        return divisors

    def fits(self, tile: Mapping[IterVar, int]) -> bool:
        """Whether the accumulators, the vectors of one step and one broadcast fit in the registers."""
        vectors = (o for o in self.access.operands if o.uses(self.vector))
        held = min((_product(tile, o) for o in vectors), default=1)
        return math.prod(tile.values()) + held + 1 <= self.description.usable_registers or all(
            n == 1 for n in tile.values()
        )

    def cycles(self, tile: Mapping[IterVar, int]) -> float:
        """The predicted cycles of the reduction steps of all tiles, relative to other tiles."""
        facts = self.description
        loads = 0.0
        for operand in self.access.operands:
            count = _product(tile, operand)
            gathers = operand.uses(self.vector) and operand not in self.contiguous
            loads += count * (self.lanes if gathers else 1)
        width = facts.vector_units / facts.fma_per_cycle  # of a register, in units
        step = max(
            math.prod(tile.values()) / facts.vector_units,
            loads / max(1.0, facts.loads_per_cycle * width),
            facts.fma_latency,
        )
        tiles = math.prod(-(-self.length(a) // tile.get(a, 1)) for a in self.access.tileable)
        return tiles * (step + 1)

    def tiles(self, fixed: Mapping[IterVar, int], free: Sequence[IterVar]) -> Iterator[dict[IterVar, int]]:
        """All tiles that fit, with the given counts of some axes and any counts of at most two others."""
        yield dict(fixed)
        for number in range(1, 1 + min(len(free), 3 - min(len(fixed), 2))):
            for axes in combinations(free, number):
                yield from self._grown(dict(fixed), axes)

    def _grown(self, tile: dict[IterVar, int], axes: Sequence[IterVar]) -> Iterator[dict[IterVar, int]]:
        if not axes:
            yield tile
            return
        for count in self.counts(axes[0]):
            larger = {**tile, axes[0]: count}
            if self.fits(larger):
                yield from self._grown(larger, axes[1:])

    def best(self, fixed: Mapping[IterVar, int], free: Sequence[IterVar]) -> dict[IterVar, int]:
        """The tile of the fewest predicted cycles; of equal ones, that with the fewest accumulators."""
        return min(self.tiles(fixed, free), key=lambda tile: (self.cycles(tile), math.prod(tile.values())))


def _product(tile: Mapping[IterVar, int], operand: Operand) -> int:
    return math.prod(count for axis, count in tile.items() if operand.uses(axis))


__all__ = ["Registers"]
