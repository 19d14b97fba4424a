"""Sizes of tiles for products by matrix units, from the same kind of model as `tile`."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import ceil

from dlc_core.schedule.matrices import ACROSS, DOWN
from dlc_core.schedule.rules.base import Machine
from dlc_core.schedule.rules.gpu.grid import Grid
from dlc_core.schedule.rules.gpu.tile import (
    BYTES,
    MOST_GROUPS,
    OVERHEAD,
    PADDING,
    PRODUCTS,
    REGISTERS,
    SPARE_REGISTERS,
    UNKNOWN,
    Problem,
    Tile,
    splits_of,
)
from dlc_core.target.target import Description
from dlc_core.tir.matrix import MatrixUnit

FASTER = 8
"""How many times the products of other threads a unit of matrices does, where that is not known."""
HIDING = 8
"""Subgroups of a unit from which latencies are hidden."""
MOST_SUBGROUPS = 8
DEPTHS = (16, 32, 64)
"""Bytes of a row of an operand's tile, in units of four."""


@dataclass(frozen=True)
class MatrixTile:
    """A group is `high` x `wide` subgroups, each of which computes `down` x `across` tiles of a unit, `deep`
    of its steps at a time; `splits` groups share the steps of one tile of theirs.
    """

    unit: MatrixUnit
    high: int
    wide: int
    down: int
    across: int
    deep: int
    splits: int = 1

    @property
    def subgroups(self) -> int:
        return self.high * self.wide

    @property
    def rows(self) -> int:
        return self.high * self.down * self.unit.m

    @property
    def columns(self) -> int:
        return self.wide * self.across * self.unit.n

    @property
    def depth(self) -> int:
        return self.deep * self.unit.k

    @property
    def plain(self) -> Tile:
        """The tile as that of the group's threads."""
        own = self.rows * self.columns // (self.subgroups * self.unit.width)
        return Tile(self.rows, self.columns, self.depth, 1, own, self.splits)

    def shared_bytes(self, bits: int, buffers: int = 1) -> int:
        """Shared memory for operands of so many bits, rows kept apart, whichever way they lie."""
        size = bits // 8
        rows = (self.rows + self.columns) * (self.depth * size + PADDING)
        columns = self.depth * ((self.rows + self.columns) * size + 2 * PADDING)
        return buffers * max(rows, columns)

    def registers(self, bits: int, result_bits: int) -> int:
        """Registers of a thread: sums, a step's operands, and what else it needs."""
        unit = self.unit
        sums = self.down * self.across * unit.of_acc.count * max(32, result_bits) // 32
        operands = (self.down * unit.of_a.count + self.across * unit.of_b.count) * bits // 32
        return sums + operands + SPARE_REGISTERS

    def resident(self, bits: int, result_bits: int, facts: Description, buffers: int = 1) -> int:
        """Groups that a processor runs at once."""
        threads = self.subgroups * self.unit.width
        limits = [MOST_GROUPS]
        if facts.unit_threads:
            limits.append(facts.unit_threads // threads)
        if facts.unit_registers:
            limits.append(facts.unit_registers // (self.registers(bits, result_bits) * threads))
        if facts.unit_shared_bytes:
            limits.append(facts.unit_shared_bytes // self.shared_bytes(bits, buffers))
        return min(limits)


def choose_matrix(unit: MatrixUnit, problem: Problem, machine: Machine, grid: Grid) -> MatrixTile | None:
    """The best tile; None where none fits the machine, or all of them would be mostly padding."""
    if problem.m is not None and 2 * problem.m < unit.m:
        return None
    if problem.n is not None and 2 * problem.n < unit.n or problem.k is not None and 2 * problem.k < unit.k:
        return None
    most = min(MOST_SUBGROUPS, grid.group_threads // unit.width)
    counts = [c for c in (1, 2, 4, 8) if c <= (most if grid.rows else 1) and c <= grid.most_rows]
    deeps = sorted({max(1, 4 * depth // (problem.bits // 8) // unit.k // 4) for depth in DEPTHS})
    found = [
        (cost(tile, problem, machine, grid), number, tile)
        for number, tile in enumerate(
            MatrixTile(unit, *sizes)
            for sizes in product(counts, counts, DOWN, ACROSS, deeps, splits_of(problem))
        )
        if tile.subgroups <= most and _fits(tile, problem, machine)
    ]
    return min(found)[2] if found else None


def cost(tile: MatrixTile, problem: Problem, machine: Machine, grid: Grid) -> float:
    """Cycles that the busiest processor takes."""
    unit = tile.unit
    m, n, k = (UNKNOWN if size is None else size for size in (problem.m, problem.n, problem.k))
    groups = (problem.batches or 1) * -(-m // tile.rows) * -(-n // tile.columns) * tile.splits
    steps = ceil(k / tile.splits / tile.depth) * tile.depth
    size = problem.bits / 8
    own = tile.rows * tile.columns
    # What the subgroups of a row or column read of an operand, each for itself.
    reads = (tile.rows * tile.wide + tile.columns * tile.high) * size / (4 * machine.description.shared_banks)
    products = own / (unit.products or FASTER * PRODUCTS)
    step = max(products, reads, (tile.rows + tile.columns) * size / BYTES)
    at_once = max(1, tile.resident(problem.bits, problem.result_bits, machine.description, 2))
    turns = -(-groups // grid.units)
    hidden = min(1.0, min(at_once, turns) * tile.subgroups / HIDING)
    write = own * problem.result_bits / 8 / BYTES * (2 if tile.splits > 1 else 1)
    total = turns * (steps * step / hidden + OVERHEAD + write)
    return total if tile.splits == 1 else total + 4 * OVERHEAD


def _fits(tile: MatrixTile, problem: Problem, machine: Machine) -> bool:
    facts = machine.description
    if tile.registers(problem.bits, problem.result_bits) > (facts.thread_registers or REGISTERS):
        return False
    for size, own, least in (
        (problem.m, tile.rows, tile.unit.m),
        (problem.n, tile.columns, tile.unit.n),
        (problem.k, tile.depth * tile.splits, tile.unit.k),
    ):
        if size is not None and own > least and own // 2 >= size:
            return False
    return not facts.shared_bytes or tile.shared_bytes(problem.bits) <= facts.shared_bytes


__all__ = ["MatrixTile", "choose_matrix", "cost"]
