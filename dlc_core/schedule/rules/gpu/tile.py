"""The tile of a GEMM and split-K, from a model of a unit's throughput and resources.

The time of a candidate is that of its slowest resource: multiply-adds, shared memory or global memory. It is
taken for the groups of the busiest unit, and is longer if too few threads hide latencies. Only ratios matter;
nothing is measured.
"""

from __future__ import annotations

from dataclasses import field, replace
from itertools import product
from math import ceil

from dlc_core.heuristics import cached
from dlc_core.schedule.rules.base import Machine
from dlc_core.schedule.rules.gpu.grid import Grid
from dlc_core.schedule.rules.gpu.heuristics import TILES
from dlc_core.support.record import record
from dlc_core.target.description import Description


@record(frozen=True)
class Tile:
    """The tile of a group: `rows` x `columns` results, `depth` steps of K at a time.

    A thread computes `own_rows` x `own_columns` results. K is split over `splits` groups.
    """

    rows: int
    columns: int
    depth: int
    own_rows: int
    own_columns: int
    splits: int = 1

    def __str__(self) -> str:
        return f"{self.rows}x{self.columns}x{self.depth}/{self.own_rows}x{self.own_columns}"

    @property
    def threads(self) -> int:
        return self.rows * self.columns // (self.own_rows * self.own_columns)


@record(frozen=True)
class Problem:
    """The sizes of a GEMM (None: symbolic), and the bits of an element and of a result."""

    batches: int | None
    m: int | None
    n: int | None
    k: int | None
    bits: int
    result_bits: int
    splittable: int = 1
    """K may be split into any divisor of this number."""
    contiguity: tuple[tuple[bool, int], tuple[bool, int]] = field(
        default_factory=lambda: ((True, TILES.unknown_extent), (True, TILES.unknown_extent))
    )
    """For each operand: whether it is contiguous along K, and the least number of contiguous elements."""


def choose(problem: Problem, machine: Machine, grid: Grid) -> Tile | None:
    """Return the best tile; None if no tile fits the machine."""
    return next(iter(ranked(problem, machine, grid)), None)


def ranked(problem: Problem, machine: Machine, grid: Grid) -> list[Tile]:
    """Return some good tiles, the best first; none if no tile fits the machine."""

    def best(tiles: list[Tile], count: int) -> list[Tile]:
        known = [(cost(t, problem, machine, grid), number, t) for number, t in enumerate(tiles)]
        return [t for _, _, t in sorted(known)[:count]]

    # Depth and split-K matter less than shapes: only the best shapes are tried with all of them.
    shapes = best([t for t in _shapes() if _fits(t, problem, machine, grid)], TILES.finalists)
    found = [
        tile
        for shape in shapes
        for depth in TILES.depths
        for splits in splits_of(problem)
        if _fits(tile := replace(shape, depth=depth, splits=splits), problem, machine, grid)
    ]
    return best(found, len(found))


def refusal(tile: Tile, problem: Problem, machine: Machine, grid: Grid) -> str:
    """Why a tile does not fit the GEMM or the machine; empty if it does."""
    fits = _fits(tile, problem, machine, grid)
    return "" if fits else f"each of {tile.splits} parts would have too few steps for the tile"


def fitting(problem: Problem, splits: int, machine: Machine, grid: Grid) -> list[Tile]:
    """Return all tiles that fit the machine, the best first, with `splits` groups per tile."""
    every = (replace(shape, depth=depth, splits=splits) for shape in _shapes() for depth in TILES.depths)
    found = [tile for tile in every if _fits(tile, problem, machine, grid)]
    return sorted(found, key=lambda tile: cost(tile, problem, machine, grid))


def cost(tile: Tile, problem: Problem, machine: Machine, grid: Grid) -> float:
    """Cycles by the model of the module docstring."""
    facts = machine.description
    m, n, k = (TILES.unknown_extent if size is None else size for size in (problem.m, problem.n, problem.k))
    batches = problem.batches or 1
    groups = batches * -(-m // tile.rows) * -(-n // tile.columns) * tile.splits
    steps = ceil(k / tile.splits / tile.depth) * tile.depth
    size = problem.bits // 8
    own = tile.rows * tile.columns
    # A vector of four words takes as many cycles as four accesses of a word.
    reads = own * (1 / tile.own_rows + 1 / tile.own_columns) / facts.shared_banks
    step = max(own / TILES.products, reads, (tile.rows + tile.columns) * size / TILES.bytes_per_cycle)
    at_once = max(1, resident(tile, problem.bits, problem.result_bits, facts))
    waves = -(-groups // grid.units)
    hidden = min(1.0, min(at_once, waves) * tile.threads / TILES.hiding_threads)
    write = own * problem.result_bits / 8 / TILES.bytes_per_cycle * (2 if tile.splits > 1 else 1)
    total = waves * (steps * step / hidden + TILES.overhead + write)
    return total if tile.splits == 1 else total + TILES.split_overheads * TILES.overhead


def shared_bytes(tile: Tile, bits: int, buffers: int = 1) -> int:
    """Shared memory of a tile in bytes, padding included."""
    return buffers * tile.depth * ((tile.rows + tile.columns) * bits // 8 + 2 * TILES.padding)


def resident(tile: Tile, bits: int, result_bits: int, facts: Description, buffers: int = 1) -> int:
    """Groups that a unit runs at once."""
    limits = [TILES.max_groups]
    if facts.unit_threads:
        limits.append(facts.unit_threads // tile.threads)
    if facts.unit_registers:
        limits.append(facts.unit_registers // (_registers(tile, bits, result_bits) * tile.threads))
    if facts.unit_shared_bytes:
        limits.append(facts.unit_shared_bytes // shared_bytes(tile, bits, buffers))
    return min(limits)


def _registers(tile: Tile, bits: int, result_bits: int) -> int:
    """Registers of a thread: accumulators, a row and a column of operands, and addresses."""
    words = max(1, result_bits // 32)
    operands = (tile.own_rows + tile.own_columns) * max(1, bits // 32)
    return tile.own_rows * tile.own_columns * words + operands + TILES.spare_registers


@cached(maxsize=1)
def _shapes() -> tuple[Tile, ...]:
    sides, own = TILES.sides, TILES.thread_sides
    return tuple(
        Tile(rows, columns, TILES.depths[0], own_rows, own_columns)
        for rows, columns, own_rows, own_columns in product(sides, sides, own, own)
        if own_rows <= rows
        and own_columns <= columns
        and TILES.min_threads <= rows * columns // (own_rows * own_columns) <= TILES.max_threads
    )


def _fits(tile: Tile, problem: Problem, machine: Machine, grid: Grid) -> bool:
    """Whether a machine can run a tile, and no part of it is wasted."""
    facts = machine.description
    threads = tile.threads
    if not max(1, grid.subgroup) <= threads <= min(grid.max_threads, grid.group_threads):
        return False
    if _wasteful(tile.rows, problem.m) or _wasteful(tile.columns, problem.n):
        return False
    # The threads that fill a tile take whole vectors, and none is idle.
    if threads > TILES.idle_threads and threads > tile.depth * min(tile.rows, tile.columns):
        return False
    if tile.depth > TILES.depths[0] and problem.k is not None and problem.k < tile.depth * tile.splits:
        return False
    if _registers(tile, problem.bits, problem.result_bits) > (facts.thread_registers or TILES.registers):
        return False
    return not facts.shared_bytes or shared_bytes(tile, problem.bits) <= facts.shared_bytes


def _wasteful(tile: int, size: int | None) -> bool:
    """Whether a smaller tile would cover the whole size."""
    return size is not None and tile > 1 and tile // 2 >= size


def splits_of(problem: Problem) -> list[int]:
    """Return the candidates for split-K."""
    found = [1]
    while 2 * found[-1] <= TILES.max_splits and problem.splittable % (2 * found[-1]) == 0:
        found.append(2 * found[-1])
    return found


__all__ = [
    "Problem",
    "Tile",
    "choose",
    "cost",
    "fitting",
    "ranked",
    "refusal",
    "resident",
    "shared_bytes",
    "splits_of",
]
