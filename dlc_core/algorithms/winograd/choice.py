"""Cost model of 3 × 3 convolutions: direct and by Winograd tiles, and the grouping of tiles.

All figures are cycles of one core. Most loads overlap arithmetic. Tiles are computed in groups of whole tile
rows: larger groups read the transformed weights less often, smaller groups keep the values between the stages
in the cache. The constants are fitted; they decide only which correct plan is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType

from dlc_core.algorithms.minimal_filtering.tiles import GROUP
from dlc_core.algorithms.winograd.op import points_of
from dlc_core.schedule.rules.cpu.core import FLOAT, L2, Core
from dlc_core.schedule.rules.cpu.register_tile import Tile, choose, domain_cycles, fits

EXCHANGED_BYTES_PER_CYCLE = 16.0
"""Bytes per cycle that a core reads of data that other cores have just written, in separate parts."""
INPUT_BYTES_PER_CYCLE = 2.0
"""Bytes per cycle that a core reads of an input that other cores have written, if all cores read all of it.
"""
NOT_HIDDEN = 0.1
"""The share of the shorter of arithmetic and loads that does not overlap the longer one."""
CACHE_SHARE = 0.85
"""The share of L2 that is available."""
LAST_SHARE = 0.25
"""The share of the LLC that is available; other cores and the weights of other kernels use the rest."""
INPUT_STEPS = MappingProxyType(
    {(2, 2, 1): 28.0, (4, 4, 1): 240.0, (2, 2, 2): 70.0, (4, 4, 2): 420.0, (2, 1, 1): 14.0, (4, 2, 1): 90.0}
)
RESULT_STEPS = MappingProxyType(
    {(2, 2, 1): 40.0, (4, 4, 1): 200.0, (2, 2, 2): 60.0, (4, 4, 2): 350.0, (2, 1, 1): 28.0, (4, 2, 1): 100.0}
)
"""Cycles of the transforms of one tile per vector of channels, by tile rows, tile columns and stride.

They are about one instruction per cycle.
"""
PHASES = 3 * 2000.0
"""Cycles that each thread waits at the three barriers between stages."""


@dataclass(frozen=True)
class Layer:
    """The sizes of a 3 × 3 convolution."""

    batch: int
    height: int
    width: int
    inputs: int
    outputs: int
    """Rows and columns of the result, and channels."""
    stride: int = 1


@dataclass(frozen=True)
class Plan:
    """A tile size and its grouping: `group` rows of tiles at a time; `cycles` are those of all threads
    together.

    With `phases`, each stage runs for all images, in parallel, before the next; the values between must fit
    the LLC. With several `parts`, each thread computes a part of the output channels and transforms all
    inputs itself.
    """

    tile: tuple[int, int]
    group: int
    phases: bool
    cycles: float
    parts: int = 1


def tiles_of(rows: int, stride: int) -> list[tuple[int, int]]:
    """Return the tile sizes with so many rows: square ones, and those with half as many columns."""
    return [tile for tile in ((rows, rows), (rows, rows // 2)) if (*tile, stride) in INPUT_STEPS]


def _bytes_per_cycle(size: float, core: Core) -> float | None:
    """Bytes per cycle of repeated reads of `size` bytes; None if L2 holds them."""
    if size <= core.second_cache * CACHE_SHARE:
        return None
    if len(core.caches) > L2 + 1 and size > core.caches[-1] * LAST_SHARE:
        return core.from_memory
    return core.beyond_second


def _traffic(size: float, times: float, core: Core) -> float:
    rate = _bytes_per_cycle(size, core)
    return 0.0 if rate is None else times * size / rate


def _beside(cycles: float, moved: float) -> float:
    """Cycles of overlapping arithmetic and loads."""
    return max(cycles, moved) + NOT_HIDDEN * min(cycles, moved)


def direct_cycles(layer: Layer, core: Core) -> float:
    """Cycles of the direct convolution on all threads together."""
    vectors = -(-layer.outputs // core.lanes)
    tile = choose(layer.width, layer.outputs, core.lanes, core.registers)
    rows = layer.batch * layer.height * domain_cycles(layer.width, vectors, tile.rows, tile.vectors)
    moved = 9 * FLOAT * layer.inputs * layer.outputs / core.from_memory
    return _beside(core.products(rows * 9 * layer.inputs), moved)


@lru_cache(maxsize=1024)
def part_tile(rows: int, columns: int, core: Core) -> Tile:
    """Return the cheapest register tile whose width divides the columns; the columns are whole vectors."""
    vectors = columns // core.lanes
    found = [
        Tile(height, width)
        for width in range(1, vectors + 1)
        for height in range(1, rows + 1)
        if vectors % width == 0 and fits(height, width, core.registers)
    ]
    return min(found, key=lambda tile: domain_cycles(rows, vectors, tile.rows, tile.vectors))


@lru_cache(maxsize=1024)
def plan(layer: Layer, tile: tuple[int, int], core: Core) -> Plan:
    """Return the cheapest grouping of tiles of one size."""
    return min(plans(layer, tile, core), key=lambda found: found.cycles)


def plans(layer: Layer, tile: tuple[int, int], core: Core) -> Iterator[Plan]:
    """Yield all groupings of tiles of one size."""
    down, across = -(-layer.height // tile[0]), -(-layer.width // tile[1])
    points = points_of(tile[0], layer.stride) * points_of(tile[1], layer.stride)
    tiles = layer.batch * down * across
    pixels = layer.height * layer.width * layer.stride**2
    ins, outs = -(-layer.inputs // core.lanes), -(-layer.outputs // core.lanes)
    kind = (*tile, layer.stride)
    before, behind = tiles * ins * INPUT_STEPS[kind], tiles * outs * RESULT_STEPS[kind]
    transforms = before + behind
    weights = float(points * FLOAT * layer.inputs * layer.outputs)
    between = float(points * FLOAT * (layer.inputs + layer.outputs) * across)
    for group in range(1, down + 1):
        if down % group:
            continue
        groups = layer.batch * (down // group)
        shape = choose(group * across, layer.outputs, core.lanes, core.registers)
        products = domain_cycles(group * across, outs, shape.rows, shape.vectors)
        cycles = transforms + core.products(groups * points * layer.inputs * products)
        kept = between * group
        together = min(groups, core.threads)
        # Other kernels may have evicted the values between the stages, so they come from memory too.
        moved = together * (weights + kept) / core.alone_from_memory
        moved += _traffic(weights + kept, groups - together, core) + 2 * _traffic(kept, groups, core)
        uneven = -(-groups // core.threads) * core.threads / groups
        yield Plan(tile, group, False, _beside(cycles, moved) * uneven)
        if core.threads > 1 and layer.outputs % (core.threads * max(core.lanes, GROUP)) == 0:
            parts = core.threads
            shape = part_tile(group * across, layer.outputs // parts, core)
            products = parts * domain_cycles(group * across, outs // parts, shape.rows, shape.vectors)
            cycles = before * parts + behind + core.products(groups * points * layer.inputs * products)
            kept = float(points * FLOAT * (layer.inputs + layer.outputs // parts) * across * group)
            moved = weights / core.from_memory
            moved += parts * _traffic(weights / parts + kept, groups - 1, core)
            moved += 2 * parts * _traffic(kept, groups, core)
            read = float(layer.batch * pixels * layer.inputs * FLOAT)
            exchanged = read * (parts - 1) / INPUT_BYTES_PER_CYCLE
            yield Plan(tile, group, False, _beside(cycles, moved) + exchanged, parts)
        shared, whole = core.threads, between * down * layer.batch
        if shared > 1 and group == down and whole <= core.caches[-1]:
            moved = weights / core.from_memory
            moved += _traffic(weights / shared, shared * (layer.batch - 1), core)
            moved += 2 * _traffic(whole / shared, shared, core)
            exchanged = whole * (shared - 1) / shared / EXCHANGED_BYTES_PER_CYCLE
            yield Plan(tile, group, True, _beside(cycles, moved) + exchanged + PHASES * shared)


__all__ = ["Layer", "Plan", "direct_cycles", "part_tile", "plan", "plans", "tiles_of"]
