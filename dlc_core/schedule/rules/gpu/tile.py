"""Sizes of tiles for products, from a model of what a unit can do in a cycle and hold at once.

Nothing is measured: each candidate's time is what its slowest part takes, products, reads of shared memory
or reads of global memory, for the groups that the busiest unit has to run, longer where too few threads are
there to hide latencies.  Only ratios count.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from math import ceil

from dlc_core.schedule.rules.base import Machine
from dlc_core.schedule.rules.gpu.grid import Grid
from dlc_core.target.target import Description

PRODUCTS = 128
"""Multiply-adds that a unit does in a cycle."""
BYTES = 24
"""Bytes that a unit gets from global memory in a cycle, caches included."""
HIDING = 512
"""Threads of a unit from which latencies are hidden."""
OVERHEAD = 600
"""Cycles that a group takes besides its steps: its start, its epilogue."""
UNKNOWN = 1 << 10
"""What a size is taken to be that is not known."""
SPARE_REGISTERS = 40
"""Registers of a thread for addresses and loads under way."""
REGISTERS = 128
"""Registers of a thread where their number is not known."""
PADDING = 16
"""Bytes between rows of a tile in shared memory."""
MOST_GROUPS = 8
"""Groups of a unit beyond which more of them make no difference."""
MOST_SPLITS, MOST_THREADS = 32, 256
DEPTHS = (8, 16, 32)
FINALISTS = 6
"""Shapes of tiles that are looked at with every depth."""


@dataclass(frozen=True)
class Tile:
    """A group computes `rows` x `columns` results, `depth` steps at a time; a thread `own_rows` x
    `own_columns` of them.  `splits` groups share the steps of one tile.
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


@dataclass(frozen=True)
class Problem:
    """What is to be computed: sizes (None: unknown), and bits of an element and of a result."""

    batches: int | None
    m: int | None
    n: int | None
    k: int | None
    bits: int
    result_bits: int
    splittable: int = 1
    """What the steps may be cut into: a multiple of the number of parts."""
    lies: tuple[tuple[bool, int], tuple[bool, int]] = ((True, UNKNOWN), (True, UNKNOWN))
    """Of either operand: whether neighbours in memory lie along the steps, and how many they are at least,
    which is what vectors may be cut from."""


def choose(problem: Problem, machine: Machine, grid: Grid) -> Tile | None:
    """The best tile; None where no tile fits the machine."""

    def best(tiles: list[Tile], count: int) -> list[Tile]:
        known = [(cost(t, problem, machine, grid), number, t) for number, t in enumerate(tiles)]
        return [t for _, _, t in sorted(known)[:count]]

    # Depth and splits matter less than shapes, of which the best few are looked at again.
    shapes = best([t for t in _shapes() if _fits(t, problem, machine, grid)], FINALISTS)
    found = [
        tile
        for shape in shapes
        for depth in DEPTHS
        for splits in splits_of(problem)
        if _fits(tile := replace(shape, depth=depth, splits=splits), problem, machine, grid)
    ]
    return next(iter(best(found, 1)), None)


def fitting(problem: Problem, splits: int, machine: Machine, grid: Grid) -> list[Tile]:
    """All tiles that fit the machine, the best first, where so many groups share the steps."""
    every = (replace(shape, depth=depth, splits=splits) for shape in _shapes() for depth in DEPTHS)
    found = [tile for tile in every if _fits(tile, problem, machine, grid)]
    return sorted(found, key=lambda tile: cost(tile, problem, machine, grid))


def cost(tile: Tile, problem: Problem, machine: Machine, grid: Grid) -> float:
    """Cycles, by the model of the module's text."""
    facts = machine.description
    m, n, k = (UNKNOWN if size is None else size for size in (problem.m, problem.n, problem.k))
    batches = problem.batches or 1
    groups = batches * -(-m // tile.rows) * -(-n // tile.columns) * tile.splits
    steps = ceil(k / tile.splits / tile.depth) * tile.depth
    size = problem.bits // 8
    own = tile.rows * tile.columns
    # A vector of four words is read in as many turns as one of its parts is by single words.
    reads = own * (1 / tile.own_rows + 1 / tile.own_columns) / facts.shared_banks
    step = max(own / PRODUCTS, reads, (tile.rows + tile.columns) * size / BYTES)
    at_once = max(1, resident(tile, problem.bits, problem.result_bits, facts))
    turns = -(-groups // grid.units)
    hidden = min(1.0, min(at_once, turns) * tile.threads / HIDING)
    write = own * problem.result_bits / 8 / BYTES * (2 if tile.splits > 1 else 1)
    total = turns * (steps * step / hidden + OVERHEAD + write)
    return total if tile.splits == 1 else total + 4 * OVERHEAD


def shared_bytes(tile: Tile, bits: int, buffers: int = 1) -> int:
    """Shared memory of a tile of elements of so many bits, what keeps rows apart included."""
    return buffers * tile.depth * ((tile.rows + tile.columns) * bits // 8 + 2 * PADDING)


def resident(tile: Tile, bits: int, result_bits: int, facts: Description, buffers: int = 1) -> int:
    """Groups that a unit runs at once."""
    limits = [MOST_GROUPS]
    if facts.unit_threads:
        limits.append(facts.unit_threads // tile.threads)
    if facts.unit_registers:
        limits.append(facts.unit_registers // (_registers(tile, bits, result_bits) * tile.threads))
    if facts.unit_shared_bytes:
        limits.append(facts.unit_shared_bytes // shared_bytes(tile, bits, buffers))
    return min(limits)


def _registers(tile: Tile, bits: int, result_bits: int) -> int:
    """Registers of a thread: accumulators, a row and a column of operands, and what else it needs."""
    words = max(1, result_bits // 32)
    operands = (tile.own_rows + tile.own_columns) * max(1, bits // 32)
    return tile.own_rows * tile.own_columns * words + operands + SPARE_REGISTERS


@lru_cache(maxsize=1)
def _shapes() -> tuple[Tile, ...]:
    sizes, own = (1, 2, 4, 8, 16, 32, 64, 128), (1, 2, 4, 8)
    return tuple(
        Tile(rows, columns, 8, own_rows, own_columns)
        for rows, columns, own_rows, own_columns in product(sizes, sizes, own, own)
        if own_rows <= rows
        and own_columns <= columns
        and 16 <= rows * columns // (own_rows * own_columns) <= MOST_THREADS
    )


def _fits(tile: Tile, problem: Problem, machine: Machine, grid: Grid) -> bool:
    """Whether a machine can run a tile, and none of it is made in vain."""
    facts = machine.description
    threads = tile.threads
    if not max(1, grid.subgroup) <= threads <= min(grid.most_threads, grid.group_threads):
        return False
    if _wasteful(tile.rows, problem.m) or _wasteful(tile.columns, problem.n):
        return False
    # Threads that fill the tiles take whole vectors, and none is idle.
    if threads > 32 and threads > tile.depth * min(tile.rows, tile.columns):
        return False
    if tile.depth > 8 and problem.k is not None and problem.k < tile.depth * tile.splits:
        return False
    if _registers(tile, problem.bits, problem.result_bits) > (facts.thread_registers or REGISTERS):
        return False
    return not facts.shared_bytes or shared_bytes(tile, problem.bits) <= facts.shared_bytes


def _wasteful(tile: int, size: int | None) -> bool:
    """Whether a smaller tile would do for all there is."""
    return size is not None and tile > 1 and tile // 2 >= size


def splits_of(problem: Problem) -> list[int]:
    """In how many parts the steps may be cut."""
    found = [1]
    while 2 * found[-1] <= MOST_SPLITS and problem.splittable % (2 * found[-1]) == 0:
        found.append(2 * found[-1])
    return found


__all__ = ["PADDING", "Problem", "Tile", "choose", "cost", "fitting", "resident", "shared_bytes", "splits_of"]
