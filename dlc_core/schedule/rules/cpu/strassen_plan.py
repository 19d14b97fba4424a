"""What a matrix product costs by its definition and by Strassen's algorithm, and the tiles of the latter.

All figures are cycles of one core.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from dlc_core.op.std.strassen import PRODUCTS
from dlc_core.schedule.rules.cpu.core import CACHE_BYTES_PER_CYCLE, FLOAT, Core
from dlc_core.schedule.rules.cpu.tile import (
    FMA_LATENCY,
    FMA_PER_CYCLE,
    LOADS_PER_CYCLE,
    STEP_OVERHEAD,
    Tile,
    choose,
    domain_cycles,
    fits,
)

SHARE = 0.5
"""Part of the second cache that the products of a panel may take."""
RESULT_TRAFFIC = 3.0
"""Elements that are moved for each one of the result, beyond what the product by its definition moves."""
ROW_TRAFFIC = 1.0
"""Those for each one of the left-hand side, of which every thread stores sums."""
LOADS_BESIDE = 1 / 32
"""Part of the loads that is not hidden behind arithmetic."""
WIDEST = 8
"""Most vectors of a tile."""


@dataclass(frozen=True)
class Shape:
    """A product of [rows, inner] and [inner, columns]."""

    rows: int
    inner: int
    columns: int

    @property
    def half(self) -> int:
        """Rows of a quarter."""
        return -(-self.rows // 2)


@dataclass(frozen=True)
class Plan:
    """Register tiles of the seven products, and the cycles on all threads together."""

    tile: Tile
    cycles: float


def direct_cycles(shape: Shape, core: Core) -> float:
    """Cycles of the product by its definition."""
    tile = choose(shape.rows, shape.columns, core.lanes, core.registers)
    vectors = -(-shape.columns // core.lanes)
    return core.products(shape.inner * domain_cycles(shape.rows, vectors, tile.rows, tile.vectors))


@lru_cache(maxsize=1024)
def plan(shape: Shape, core: Core) -> Plan | None:
    """The cheapest tiles; None where the columns of a quarter are no whole vectors."""
    vectors, left = divmod(shape.columns // 2, core.lanes)
    if left or not vectors:
        return None
    best: Plan | None = None
    for width in range(1, min(vectors, WIDEST) + 1):
        between = PRODUCTS * shape.half * width * core.lanes * FLOAT
        if vectors % width or between > SHARE * core.second_cache:
            continue
        panels = vectors // width
        uneven = -(-panels // core.threads) * core.threads / panels
        for height in range(1, min(shape.half, core.registers - 2) + 1):
            if fits(height, width, core.registers):
                steps = panels * _column_cycles(shape.half, height, width, core) * uneven
                found = Plan(Tile(height, width), PRODUCTS * shape.inner / 2 * steps)
                if best is None or found.cycles < best.cycles:
                    best = found
    if best is None:
        return None
    sums = ROW_TRAFFIC * shape.rows * shape.inner * core.threads
    moved = RESULT_TRAFFIC * shape.rows * shape.columns + sums
    return Plan(best.tile, best.cycles + moved * FLOAT / CACHE_BYTES_PER_CYCLE)


def _column_cycles(rows: int, height: int, width: int, core: Core) -> float:
    """Cycles of one reduction step of all tiles of a panel: weights are added while they are read."""
    tiles = -(-rows // height)
    low, extra = divmod(rows, tiles)
    return sum(
        count * _step_cycles(tall, width, core)
        for count, tall in ((extra, low + 1), (tiles - extra, low))
        if count
    )


def _step_cycles(rows: int, vectors: int, core: Core) -> float:
    """Loads go to as many units as multiply-adds; weights are two vectors each, from the second cache."""
    arithmetic = core.products(rows * vectors / FMA_PER_CYCLE)
    loads = core.products((rows + 3 * vectors) / LOADS_PER_CYCLE)
    return max(arithmetic, loads, FMA_LATENCY) + LOADS_BESIDE * min(arithmetic, loads) + STEP_OVERHEAD


__all__ = ["Plan", "Shape", "direct_cycles", "plan"]
