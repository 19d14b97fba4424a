"""Cost model of Strassen's algorithm: plain GEMM against one level or two, and their register tiles.

All figures are cycles of one core. The constants are fitted; they decide only which correct plan is used.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from types import MappingProxyType

from dlc_core.algorithms.strassen.submatrices import PAIRS, PRODUCTS
from dlc_core.schedule.rules.cpu.core import FLOAT, Core
from dlc_core.schedule.rules.cpu.heuristics import GEMM
from dlc_core.schedule.rules.cpu.register_tile import (
    Tile,
    choose,
    domain_cycles,
    fits,
)

SHARE = 0.5
"""The share of L2 that the products of a panel may take."""
SHARE_BY_TILES = 0.75
"""The share of L2 for row sums and two panels of weights, if all products of a row tile come before the next
tile.

Each tile then reads the whole panel.
"""
COMBINED_CYCLES = 5.0
"""Cycles per vector of the result with this loop order, in which the products stay in L1."""
RESULT_TRAFFIC = MappingProxyType({1: 3.0, 2: 5.0})
"""Elements moved per element of the result, in addition to those of a plain GEMM, by number of levels."""
ROW_TRAFFIC = MappingProxyType({1: 0.5, 2: 3.0})
"""Elements moved per element of the left-hand side, whose sums every thread stores, by number of levels."""
NEAR_ROW_TRAFFIC = 0.25
"""The same on one level if the sums stay in L2."""
AGAIN = 0.125
"""The share of weight reads per further block of rows that arithmetic does not hide, if they come from the
LLC.
"""
MEMORY_SHARE = 0.28
"""The share of a plain GEMM's cycles that loading the weights from memory may take.

Beyond it the GEMM is memory-bound, and fewer multiplications save no time.
"""
LEAST_BLOCK = 48
"""The rows of a block from which tiles of its submatrices are efficient."""
OTHERS_BYTES_PER_CYCLE = 7.0
"""Bytes per cycle that a core reads of a left-hand side which other cores have written."""
NEAR = 1 / 8
"""The share of L2 that products may take to be summed at `NEAR_BYTES_PER_CYCLE`."""
NEAR_BYTES_PER_CYCLE = 14.0
LINE_CYCLES = 3.0
"""Cycles per vector that is loaded from L2, with many loads and prefetch."""
UNASKED_CYCLES = 4.5
"""The same without prefetch, because there is only one tile."""
TILE_CYCLES = 100.0
"""Overhead of a tile on two levels, in cycles per vector of its width."""
LOADS_BESIDE = 1 / 32
"""The share of loads that arithmetic does not hide."""
BETWEEN_TWICE = 1 + 4
"""Values between stages on two levels, relative to the products of one level: products and submatrices."""
STORED = 5 / 16
"""The share of the LLC that sums of the left-hand side may take on two levels, for all threads together."""
READ_TWICE = 8
"""Second-level submatrices of the right-hand side that the products of one outer product read repeatedly."""
WIDEST = 8
"""The largest width of a tile in vectors."""


@dataclass(frozen=True)
class Shape:
    """The sizes of a GEMM [rows, inner] × [inner, columns]."""

    rows: int
    inner: int
    columns: int

    @property
    def half(self) -> int:
        """Rows of a submatrix."""
        return -(-self.rows // 2)


@dataclass(frozen=True)
class Plan:
    """The register tile of the products, and the cycles on all threads together."""

    tile: Tile
    cycles: float
    by_tiles: bool = False
    """Whether all products of a row tile are computed before the next tile."""


def direct_cycles(shape: Shape, core: Core) -> float:
    """Cycles of the plain GEMM."""
    tile = choose(shape.rows, shape.columns, core.lanes, core.registers)
    vectors = -(-shape.columns // core.lanes)
    return core.products(shape.inner * domain_cycles(shape.rows, vectors, tile.rows, tile.vectors))


def is_memory_bound(shape: Shape, core: Core) -> bool:
    """Whether the plain GEMM is memory-bound, or nearly so."""
    read = FLOAT * shape.inner * shape.columns / core.from_memory
    return read > MEMORY_SHARE * direct_cycles(shape, core)


@lru_cache(maxsize=1024)
def plan(shape: Shape, core: Core, levels: int = 1) -> Plan | None:
    """Return the cheapest plan; None if the columns of a part are not whole vectors."""
    return min(plans(shape, core, levels), key=lambda found: found.cycles, default=None)


@lru_cache(maxsize=64)
def plans(shape: Shape, core: Core, levels: int = 1) -> tuple[Plan, ...]:
    """Return all plans that fit the caches."""
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
    sums = (NEAR_ROW_TRAFFIC if near else ROW_TRAFFIC[levels]) * left * core.threads / core.beyond_second
    read = left * (core.threads - 1) / OTHERS_BYTES_PER_CYCLE
    return tuple(replace(one, cycles=one.cycles + sums + read) for one in found)


@lru_cache(maxsize=1024)
def plan_blocks(shape: Shape, core: Core) -> tuple[int, Plan] | None:
    """Return the cheapest number of rows per block on one level, with its plan for all blocks.

    Blocks are distributed over threads. None if no block size fits.
    """
    weights = FLOAT * shape.inner * shape.columns
    again = 0.0 if weights <= SHARE * core.second_cache else AGAIN * weights / core.beyond_second
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
    """Whether L2 holds what all products of a panel on one level read, and the next panel."""
    sums = PRODUCTS * rows * inner / 2
    weights = 2 * inner * 2 * width * core.lanes
    return (sums + weights) * FLOAT <= SHARE_BY_TILES * core.second_cache


def _combined(shape: Shape, between: float, core: Core, levels: int, by_tiles: bool) -> float:
    """Cycles to store products, of `between` bytes per panel, and to sum them."""
    if by_tiles:
        return COMBINED_CYCLES * shape.rows * shape.columns / core.lanes
    near = between <= NEAR * core.second_cache
    moved = RESULT_TRAFFIC[levels] * shape.rows * shape.columns * FLOAT
    return moved / (NEAR_BYTES_PER_CYCLE if near else core.beyond_second)


def _column_cycles(rows: int, height: int, width: int, core: Core, levels: int) -> float:
    """Cycles of one K step of all tiles of a panel.

    On one level each tile adds weights while it reads them; on two levels only the first tile does.
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
    """Cycles of one K step of a plain tile. A broadcast loads one element; two start per cycle for any vector
    width.
    """
    arithmetic = core.products(rows * vectors / GEMM.fma_per_cycle)
    loads = rows / GEMM.loads_per_cycle + core.products(vectors / GEMM.loads_per_cycle)
    return max(arithmetic, loads, GEMM.fma_latency) + GEMM.step_overhead


def _step_cycles(rows: int, vectors: int, core: Core) -> float:
    """Cycles of one K step of a tile that adds weights, which are two vectors each, from L2."""
    arithmetic = core.products(rows * vectors / GEMM.fma_per_cycle)
    loads = core.products((rows + 3 * vectors) / GEMM.loads_per_cycle)
    lines = 2 * vectors * LINE_CYCLES
    return (
        max(arithmetic, loads, lines, GEMM.fma_latency)
        + LOADS_BESIDE * min(arithmetic, loads)
        + GEMM.step_overhead
    )


__all__ = ["Plan", "Shape", "direct_cycles", "is_memory_bound", "plan", "plan_blocks", "plans"]
