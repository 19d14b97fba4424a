"""What a matrix product costs by its definition and by Strassen's algorithm on one level or two, and tiles.

All figures are cycles of one core.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from types import MappingProxyType

from dlc_core.op.std.strassen_submatrices import PAIRS, PRODUCTS
from dlc_core.schedule.rules.cpu.core import CACHE_BYTES_PER_CYCLE, FLOAT, Core
from dlc_core.schedule.rules.cpu.register_tile import (
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
SHARE_BY_TILES = 0.75
"""Part of it that sums of rows and two panels of weights may take where a tile of rows goes through all
products before the next one: each reads all of the panel."""
COMBINED_CYCLES = 5.0
"""Cycles of each vector of the result in that order, in which its products stay in the nearest cache."""
RESULT_TRAFFIC = MappingProxyType({1: 3.0, 2: 5.0})
"""Elements that are moved for each one of the result, beyond what the product by its definition moves, on so
many levels."""
ROW_TRAFFIC = MappingProxyType({1: 0.5, 2: 3.0})
"""Those for each one of the left-hand side, of which every thread stores sums."""
NEAR_ROW_TRAFFIC = 0.25
"""Those on one level where the sums stay in the second cache."""
AGAIN = 0.125
"""Part of the reads of weights for each block of rows but the first that is not hidden behind arithmetic,
where they come from the last cache."""
MEMORY_SHARE = 0.28
"""Part of a product's cycles by its definition in which memory may give the weights: where it takes longer,
fewer multiplications save no time."""
LEAST_BLOCK = 48
"""Rows of a block from which tiles of a quarter of it are as good as those of more rows."""
OTHERS_BYTES_PER_CYCLE = 7.0
"""What a core reads of a left-hand side that other cores have written, where it makes sums of all of it."""
NEAR = 1 / 8
"""Part of the second cache that products may take to be summed at `NEAR_BYTES_PER_CYCLE`."""
NEAR_BYTES_PER_CYCLE = 14.0
LINE_CYCLES = 3.0
"""Cycles that a vector takes from the second cache where many are read, and are asked for ahead."""
UNASKED_CYCLES = 4.5
"""Those where they are not, as there is one tile only."""
TILE_CYCLES = 100.0
"""Cycles of a tile on two levels besides those of its steps, which are few, for each vector of its width."""
LOADS_BESIDE = 1 / 32
"""Part of the loads that is not hidden behind arithmetic."""
BETWEEN_TWICE = 1 + 4
"""Products of one outer product, and the quarters of all, in place of products of one level."""
STORED = 5 / 16
"""Part of the last cache that sums of the left-hand side on two levels may take, on all threads together."""
READ_TWICE = 8
"""Sixteenths of the right-hand side that the products of an outer one read, again and again."""
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
    by_tiles: bool = False
    """Whether a tile of rows goes through all products before the next one does."""


def direct_cycles(shape: Shape, core: Core) -> float:
    """Cycles of the product by its definition."""
    tile = choose(shape.rows, shape.columns, core.lanes, core.registers)
    vectors = -(-shape.columns // core.lanes)
    return core.products(shape.inner * domain_cycles(shape.rows, vectors, tile.rows, tile.vectors))


def waits_for_weights(shape: Shape, core: Core) -> bool:
    """Whether memory gives the weights hardly faster than the product by its definition uses them."""
    read = FLOAT * shape.inner * shape.columns / core.from_memory
    return read > MEMORY_SHARE * direct_cycles(shape, core)


@lru_cache(maxsize=1024)
def plan(shape: Shape, core: Core, levels: int = 1) -> Plan | None:
    """The cheapest tiles; None where the columns of a part are no whole vectors."""
    return min(plans(shape, core, levels), key=lambda found: found.cycles, default=None)


@lru_cache(maxsize=64)
def plans(shape: Shape, core: Core, levels: int = 1) -> tuple[Plan, ...]:
    """All tiles that caches have room for."""
    parts = 2**levels
    vectors, left = divmod(shape.columns // parts, core.lanes)
    if left or not vectors or (levels == 2 and shape.inner % parts):
        return ()
    rows, inner = -(-shape.rows // parts), shape.inner / parts
    stored = PRODUCTS**levels * rows * inner * FLOAT * core.threads
    if levels == 2 and stored > STORED * core.caches[-1]:
        return ()
    found = []
    for width in range(1, min(vectors, WIDEST) + 1):
        if vectors % width:
            continue
        panel = rows * width * core.lanes * FLOAT
        between = PRODUCTS * panel * (1 if levels == 1 else BETWEEN_TWICE)
        by_tiles = levels == 1 and _stays_near(rows, shape.inner, width, core)
        read = READ_TWICE * inner * width * core.lanes * FLOAT if levels == 2 else 0.0
        if max(0 if by_tiles else between, read) > SHARE * core.second_cache:
            continue
        combined = _combined(shape, between, core, levels, by_tiles)
        panels = vectors // width
        uneven = -(-panels // core.threads) * core.threads / panels
        for height in range(1, min(rows, core.registers - 2) + 1):
            if fits(height, width, core.registers):
                steps = panels * uneven * _column_cycles(rows, height, width, core, levels)
                cycles = PRODUCTS**levels * inner * steps + combined
                if levels == 2:
                    cycles += PRODUCTS**levels * panels * uneven * -(-rows // height) * width * TILE_CYCLES
                found.append(Plan(Tile(height, width), cycles, by_tiles))
    left = shape.rows * shape.inner * FLOAT
    near = levels == 1 and PRODUCTS / 4 * left <= SHARE_BY_TILES * core.second_cache
    sums = (NEAR_ROW_TRAFFIC if near else ROW_TRAFFIC[levels]) * left * core.threads / CACHE_BYTES_PER_CYCLE
    read = left * (core.threads - 1) / OTHERS_BYTES_PER_CYCLE
    return tuple(replace(one, cycles=one.cycles + sums + read) for one in found)


@lru_cache(maxsize=1024)
def plan_blocks(shape: Shape, core: Core) -> tuple[int, Plan] | None:
    """The cheapest number of rows to compute together on one level, of those that threads can be dealt, and
    what they cost together; None where there is none.
    """
    weights = FLOAT * shape.inner * shape.columns
    again = 0.0 if weights <= SHARE * core.second_cache else AGAIN * weights / CACHE_BYTES_PER_CYCLE
    best: tuple[int, Plan] | None = None
    for count in range(max(2, core.threads), shape.rows // LEAST_BLOCK + 1):
        rows, left = divmod(shape.rows, count)
        if left or rows % 2 or count % core.threads:
            continue
        one = plan(replace(shape, rows=rows), replace(core, threads=1))
        if one is None:
            continue
        cycles = count * one.cycles + (count - 1) * again
        if best is None or cycles < best[1].cycles:
            best = rows, replace(one, cycles=cycles)
    return best


def _stays_near(rows: int, inner: float, width: int, core: Core) -> bool:
    """Whether the second cache holds what all products of a panel on one level read, and the next panel."""
    sums = PRODUCTS * rows * inner / 2
    weights = 2 * inner * 2 * width * core.lanes
    return (sums + weights) * FLOAT <= SHARE_BY_TILES * core.second_cache


def _combined(shape: Shape, between: float, core: Core, levels: int, by_tiles: bool) -> float:
    """Cycles to keep products, of which those of a panel take so many bytes, and to sum them up."""
    if by_tiles:
        return COMBINED_CYCLES * shape.rows * shape.columns / core.lanes
    near = between <= NEAR * core.second_cache
    moved = RESULT_TRAFFIC[levels] * shape.rows * shape.columns * FLOAT
    return moved / (NEAR_BYTES_PER_CYCLE if near else CACHE_BYTES_PER_CYCLE)


def _column_cycles(rows: int, height: int, width: int, core: Core, levels: int) -> float:
    """Cycles of one reduction step of all tiles of a panel.

    On one level each tile adds weights while it reads them; on two, the first one does.
    """
    tiles = -(-rows // height)
    low, extra = divmod(rows, tiles)
    heights = [low + 1] * extra + [low] * (tiles - extra)
    if levels == 1:
        return sum(_step_cycles(tall, width, core) for tall in heights)
    steps = [_plain_cycles(tall, width, core) for tall in heights]
    of_pairs = max(steps[0], 4 * width * (LINE_CYCLES if tiles > 1 else UNASKED_CYCLES))
    return sum(steps) + (PAIRS / PRODUCTS) ** 2 * (of_pairs - steps[0])


def _plain_cycles(rows: int, vectors: int, core: Core) -> float:
    """Broadcasts are loads of one element, of which two begin in a cycle however wide vectors are."""
    arithmetic = core.products(rows * vectors / FMA_PER_CYCLE)
    loads = rows / LOADS_PER_CYCLE + core.products(vectors / LOADS_PER_CYCLE)
    return max(arithmetic, loads, FMA_LATENCY) + STEP_OVERHEAD


def _step_cycles(rows: int, vectors: int, core: Core) -> float:
    """Loads go to as many units as multiply-adds; weights are two vectors each, from the second cache."""
    arithmetic = core.products(rows * vectors / FMA_PER_CYCLE)
    loads = core.products((rows + 3 * vectors) / LOADS_PER_CYCLE)
    lines = 2 * vectors * LINE_CYCLES
    return max(arithmetic, loads, lines, FMA_LATENCY) + LOADS_BESIDE * min(arithmetic, loads) + STEP_OVERHEAD


__all__ = ["Plan", "Shape", "direct_cycles", "plan", "plan_blocks", "plans", "waits_for_weights"]
