"""Tiles of GEMM by matrix units, from a cost model like that of `tile`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import product
from math import ceil

from dlc_core.decisions import MAX_CANDIDATES
from dlc_core.schedule.matrices import ACROSS, DOWN
from dlc_core.schedule.rules.base import Machine
from dlc_core.schedule.rules.gpu.grid import Grid
from dlc_core.schedule.rules.gpu.heuristics import MATRIX, TILES
from dlc_core.schedule.rules.gpu.tile import Problem, Tile, splits_of
from dlc_core.support.record import record
from dlc_core.target.description import Description
from dlc_core.tir.matrix import MatrixUnit
from dlc_core.tir.threads import SWIZZLED_ROW


@record(frozen=True)
class MatrixTile:
    """The tile of a group: `high` x `wide` subgroups, each with `down` x `across` tiles of a unit, `deep` of
    its steps at a time.

    K is split over `splits` groups.
    """

    unit: MatrixUnit
    high: int
    wide: int
    down: int
    across: int
    deep: int
    splits: int = 1

    def __str__(self) -> str:
        return f"{self.rows}x{self.columns}x{self.depth}/{self.high}x{self.wide}"

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

    def buffers(self, k: int | None) -> int:
        """The least pipeline stages: one tile is filled while another is used."""
        return 1 if k is not None and k <= self.depth * self.splits else 2

    def shared_bytes(self, bits: int, buffers: int = 1) -> int:
        """Shared memory in bytes for operands of `bits` bits, including padding for any layout."""
        size = bits // 8
        if self.unit.in_place:
            return buffers * (self.rows + self.columns) * self.depth * size
        rows = (self.rows + self.columns) * (self.depth * size + TILES.padding)
        columns = self.depth * ((self.rows + self.columns) * size + 2 * TILES.padding)
        return buffers * max(rows, columns)

    def registers(self, problem: Problem, facts: Description) -> int:
        """Registers of a thread: accumulators, operands of a step, widened ones, copies, and addresses."""
        unit = self.unit
        sums = self.down * self.across * unit.of_acc.count * max(32, problem.result_bits) // 32
        held = 0 if unit.in_place else self.down * unit.of_a.count + self.across * unit.of_b.count
        operands = held * (problem.bits + unit.widened) // 32
        return sums + operands + self.copied(problem, facts) + TILES.spare_registers

    def copied(self, problem: Problem, facts: Description) -> int:
        """Registers for copies that cannot be asynchronous: those that rearrange elements, or are smaller
        than the machine's smallest one.
        """
        count, threads = 0, self.subgroups * self.unit.width
        for side, (along, run) in zip((self.rows, self.columns), problem.contiguity, strict=True):
            elements, together = side * self.depth // threads, run & -run
            if together * problem.bits < 8 * facts.copy_bytes:
                count += elements // together
            elif not along and not self.unit.transposable:
                count += elements * problem.bits // 32
        return count

    def resident(self, problem: Problem, facts: Description, buffers: int = 1) -> int:
        """Groups that a unit runs at once."""
        threads = self.subgroups * self.unit.width
        limits = [TILES.max_groups]
        if facts.unit_threads:
            limits.append(facts.unit_threads // threads)
        if facts.unit_registers:
            limits.append(facts.unit_registers // (self.registers(problem, facts) * threads))
        if facts.unit_shared_bytes:
            limits.append(facts.unit_shared_bytes // self.shared_bytes(problem.bits, buffers))
        return min(limits)


def choose_matrix(
    units: Sequence[MatrixUnit], problem: Problem, machine: Machine, grid: Grid
) -> MatrixTile | None:
    """Return the best tile; None if none fits the machine, or all are mostly padding."""
    return next(iter(ranked(units, problem, machine, grid)), None)


def ranked(units: Sequence[MatrixUnit], problem: Problem, machine: Machine, grid: Grid) -> list[MatrixTile]:
    """Return some good tiles, the best first; none if none fits the machine, or all are mostly padding."""
    found = [tile for unit in units for tile in _ranked(unit, problem, machine, grid)]
    return found if len(units) < 2 else sorted(found, key=lambda tile: cost(tile, problem, machine, grid))


def _ranked(unit: MatrixUnit, problem: Problem, machine: Machine, grid: Grid) -> list[MatrixTile]:
    """Return the best tiles of one matrix unit."""
    sizes = ((problem.m, unit.m), (problem.n, unit.n), (problem.k, unit.k))
    if any(size is not None and 2 * size < least for size, least in sizes):
        return []

    def best(tiles: Iterable[MatrixTile], count: int) -> list[MatrixTile]:
        fitting = [tile for tile in tiles if _fits(tile, problem, machine, grid)]
        known = [(cost(tile, problem, machine, grid), number, tile) for number, tile in enumerate(fitting)]
        return [tile for _, _, tile in sorted(known, key=lambda one: one[:2])[:count]]

    # Depth and split-K matter less than shapes: only the best shapes are tried with all of them.
    deeps, forms = _forms(unit, problem)
    splits = _splits(problem)
    plain = (MatrixTile(unit, *group, down, across, deeps[0]) for group, down, across in forms)
    usual = (replace(tile, splits=_filling(tile, problem, splits, grid.units)) for tile in plain)
    shapes = best((replace(tile, deep=deep) for tile in usual for deep in deeps), TILES.finalists)
    every = product(shapes, deeps, splits)
    return best((replace(shape, deep=deep, splits=count) for shape, deep, count in every), MAX_CANDIDATES)


def _forms(
    unit: MatrixUnit, problem: Problem
) -> tuple[list[int], Iterable[tuple[tuple[int, int], int, int]]]:
    """Return the depths of a unit's tiles, and the layouts of subgroups with their tile sizes."""
    if unit.in_place:
        # A tile is as deep as a row of memory: more depth would be another pipeline stage.
        return [SWIZZLED_ROW * 8 // problem.bits // unit.k], product(MATRIX.groups_in_place, (1, 2), (1,))
    deeps = sorted({1, *(depth * 8 // problem.bits // unit.k for depth in MATRIX.depths)} - {0})
    return deeps, product(MATRIX.groups, DOWN, ACROSS)


def _splits(problem: Problem) -> list[int]:
    return splits_of(problem) if problem.m is not None else [1]


def fitting(
    units: Sequence[MatrixUnit], problem: Problem, splits: int, machine: Machine, grid: Grid
) -> list[MatrixTile]:
    """Return all tiles with split-K over `splits` groups that fit the machine, the best first."""
    found = []
    for unit in units:
        deeps, forms = _forms(unit, problem)
        for (group, down, across), deep in product(forms, deeps):
            tile = MatrixTile(unit, *group, down, across, deep, splits)
            if _fits(tile, problem, machine, grid):
                found.append(tile)
    return sorted(found, key=lambda tile: cost(tile, problem, machine, grid))


def parts_of(tile: MatrixTile, problem: Problem) -> list[int]:
    """Return the candidates for split-K; each part has at least the depth of a tile."""
    return [n for n in _splits(problem) if n == 1 or problem.k is None or n * tile.depth <= problem.k]


def max_stages(tile: MatrixTile, problem: Problem, machine: Machine) -> int:
    """Return the most pipeline stages for which a group has steps and memory."""
    facts, found = machine.description, tile.buffers(problem.k)
    steps = TILES.unknown_extent if problem.k is None else -(-problem.k // (tile.depth * tile.splits))
    while found < min(facts.pipeline_stages, steps) and (
        not facts.shared_bytes or tile.shared_bytes(problem.bits, found + 1) <= facts.shared_bytes
    ):
        found += 1
    return found


def stages_of(tile: MatrixTile, problem: Problem, machine: Machine, grid: Grid) -> int:
    """Return the pipeline stages: as many as possible without reducing the number of resident groups."""
    facts = machine.description
    found, most = tile.buffers(problem.k), max_stages(tile, problem, machine)
    waves = -(-_groups(tile, problem) // grid.units)
    required = min(waves, tile.resident(problem, facts, found))
    while found < most and tile.resident(problem, facts, found + 1) >= required:
        found += 1
    return found


def cost(tile: MatrixTile, problem: Problem, machine: Machine, grid: Grid) -> float:
    """Cycles of the busiest unit."""
    unit, facts = tile.unit, machine.description
    k = TILES.unknown_extent if problem.k is None else problem.k
    groups = _groups(tile, problem)
    steps = ceil(k / tile.splits / tile.depth) * tile.depth
    size = problem.bits / 8
    own = tile.rows * tile.columns
    # Each subgroup of a row or column reads the operand's fragments itself.
    again = (tile.across, tile.down) if unit.in_place else (1, 1)
    reads = (tile.rows * tile.wide * again[0] + tile.columns * tile.high * again[1]) * size
    reads /= 4 * facts.shared_banks
    parts = (
        own / (unit.products or MATRIX.speedup * TILES.products),
        reads,
        (tile.rows + tile.columns) * size / MATRIX.bytes_per_cycle,
    )
    step = max(parts) + MATRIX.unoverlapped * sum(parts)
    at_once = max(1, tile.resident(problem, facts, tile.buffers(problem.k)))
    in_flight = max(1, stages_of(tile, problem, machine, grid) - 1)
    waves = -(-groups // grid.units)
    concurrent = min(at_once, waves)
    hidden = min(1.0, concurrent * tile.subgroups * unit.width / (grid.subgroup * MATRIX.hiding_subgroups))
    # Double buffering overlaps copies with arithmetic; without it the groups of a unit wait for copies.
    each = MATRIX.barrier_cycles + max(tile.depth * step / hidden, MATRIX.latency / concurrent / in_flight)
    write = own * problem.result_bits / 8 / MATRIX.bytes_per_cycle * (2 if tile.splits > 1 else 1)
    total = waves * (steps / tile.depth * each + TILES.overhead + write)
    return total if tile.splits == 1 else total + TILES.split_overheads * TILES.overhead


def _groups(tile: MatrixTile, problem: Problem) -> int:
    m, n = (TILES.unknown_extent if size is None else size for size in (problem.m, problem.n))
    return (problem.batches or 1) * -(-m // tile.rows) * -(-n // tile.columns) * tile.splits


def _filling(tile: MatrixTile, problem: Problem, splits: Sequence[int], units: int) -> int:
    """Return the number of parts of split-K that gives every unit a group, and few units two."""
    groups, k = _groups(tile, problem), TILES.unknown_extent if problem.k is None else problem.k
    return max((c for c in splits if groups * c <= units and tile.depth * c <= k), default=1)


def _fits(tile: MatrixTile, problem: Problem, machine: Machine, grid: Grid) -> bool:
    facts = machine.description
    if tile.subgroups * tile.unit.width > grid.group_threads or tile.subgroups > grid.max_rows:
        return False
    if tile.registers(problem, facts) > (facts.thread_registers or TILES.registers):
        return False
    for size, own, least in (
        (problem.m, tile.rows, tile.unit.m),
        (problem.n, tile.columns, tile.unit.n),
        (problem.k, tile.depth * tile.splits, tile.unit.k),
    ):
        if size is not None and own > least and own // 2 >= size:
            return False
    return (
        not facts.shared_bytes
        or tile.shared_bytes(problem.bits, tile.buffers(problem.k)) <= facts.shared_bytes
    )


__all__ = ["MatrixTile", "choose_matrix", "cost", "fitting", "max_stages", "parts_of", "ranked", "stages_of"]
