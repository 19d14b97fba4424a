"""What a convolution of 3 × 3 windows costs, directly and by tiles, and how tiles are grouped.

All figures are cycles of one core; most of the reads are taken to run beside arithmetic.  Tiles of a
convolution are computed in groups of whole rows of tiles: larger groups read the transformed weights fewer
times, smaller ones keep what lies between the stages in the cache.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType

from dlc_core.op.std.filtered import GROUP
from dlc_core.op.std.winograd import points_of
from dlc_core.schedule.rules.cpu.core import (
    CACHE_BYTES_PER_CYCLE,
    FLOAT,
    MEMORY_BYTES_PER_CYCLE,
    SECOND_CACHE,
    Core,
)
from dlc_core.schedule.rules.cpu.register_tile import Tile, choose, domain_cycles, fits

EXCHANGED_BYTES_PER_CYCLE = 16.0
"""What a core reads of what other cores have just written, part by part."""
INPUT_BYTES_PER_CYCLE = 2.0
"""What a core reads of an input that other cores have written, where all cores read all of it."""
NOT_HIDDEN = 0.1
"""Part of the shorter one of arithmetic and reads that does not run beside the longer one."""
CACHE_SHARE = 0.85
"""Part of the second cache that is counted on."""
LAST_SHARE = 0.25
"""Part of the last cache that is: other cores and the weights of other kernels use it, too."""
INPUT_STEPS = MappingProxyType(
    {(2, 2, 1): 28.0, (4, 4, 1): 240.0, (2, 2, 2): 70.0, (4, 4, 2): 420.0, (2, 1, 1): 14.0, (4, 2, 1): 90.0}
)
RESULT_STEPS = MappingProxyType(
    {(2, 2, 1): 40.0, (4, 4, 1): 200.0, (2, 2, 2): 60.0, (4, 4, 2): 350.0, (2, 1, 1): 28.0, (4, 2, 1): 100.0}
)
"""Cycles of the transforms of one tile for each vector of channels, for rows and columns of results of a
tile and strides: about one instruction a cycle.
"""
PHASES = 3 * 2000.0
"""Cycles that each thread waits for the others at the ends of the three stages."""


@dataclass(frozen=True)
class Layer:
    """A convolution of 3 × 3 windows."""

    batch: int
    height: int
    width: int
    inputs: int
    outputs: int
    """Results in each direction, and channels."""
    stride: int = 1


@dataclass(frozen=True)
class Plan:
    """Tiles of `tile` rows and columns of results, `group` rows of tiles at a time; `cycles` on all threads
    together.

    Where `phases` holds, each stage is done for all images, dealt out to threads, before the next; what lies
    between must fit the last cache then.  Of more than one of `parts`, each has as many output channels, and
    its thread transforms all inputs for itself.
    """

    tile: tuple[int, int]
    group: int
    phases: bool
    cycles: float
    parts: int = 1


def tiles_of(rows: int, stride: int) -> list[tuple[int, int]]:
    """Rows and columns of results of the tiles of so many rows: as many columns, or half as many."""
    return [tile for tile in ((rows, rows), (rows, rows // 2)) if (*tile, stride) in INPUT_STEPS]


def _bytes_per_cycle(size: float, core: Core) -> float | None:
    """What repeated reads of so many bytes run at; None where the second cache holds them."""
    if size <= core.second_cache * CACHE_SHARE:
        return None
    if len(core.caches) > SECOND_CACHE + 1 and size > core.caches[-1] * LAST_SHARE:
        return core.from_memory
    return CACHE_BYTES_PER_CYCLE


def _traffic(size: float, times: float, core: Core) -> float:
    rate = _bytes_per_cycle(size, core)
    return 0.0 if rate is None else times * size / rate


def _beside(cycles: float, moved: float) -> float:
    """Arithmetic and reads together."""
    return max(cycles, moved) + NOT_HIDDEN * min(cycles, moved)


def direct_cycles(layer: Layer, core: Core) -> float:
    """Cycles of the convolution as it is, on all threads together."""
    vectors = -(-layer.outputs // core.lanes)
    tile = choose(layer.width, layer.outputs, core.lanes, core.registers)
    rows = layer.batch * layer.height * domain_cycles(layer.width, vectors, tile.rows, tile.vectors)
    moved = 9 * FLOAT * layer.inputs * layer.outputs / core.from_memory
    return _beside(core.products(rows * 9 * layer.inputs), moved)


@lru_cache(maxsize=1024)
def part_tile(rows: int, columns: int, core: Core) -> Tile:
    """The cheapest register tile whose columns are a part of the columns, all of which are whole vectors."""
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
    """The cheapest way to group the tiles of a size."""
    return min(plans(layer, tile, core), key=lambda found: found.cycles)


def plans(layer: Layer, tile: tuple[int, int], core: Core) -> Iterator[Plan]:
    """All ways to group the tiles of a size."""
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
        # What lies between is in memory, too, where other kernels have pushed it out before this one.
        moved = together * (weights + kept) / MEMORY_BYTES_PER_CYCLE
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
