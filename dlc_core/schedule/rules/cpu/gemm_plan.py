"""The plan of a GEMM or convolution on a CPU: all that its schedule depends on, chosen before any loop moves.

    gemm = Gemm(rows=64, columns=256, steps=(128,), lanes=16, ...)       facts of the contraction
    plan_gemm(gemm, machine)     -> GemmPlan(tile 14x2, batch/tiles/panels, packed, threads, ...)

`plan_gemm` depends on its arguments and on forced decisions only.  `contraction.py` reads the facts from a
schedule, and `tile_nest.py` applies a plan to it, whether chosen or made by hand.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from dlc_core.diag import bytes_text
from dlc_core.schedule.rules.base import Machine
from dlc_core.schedule.rules.cpu.core import Core
from dlc_core.schedule.rules.cpu.gemm_decisions import (
    K_BLOCK,
    LOOP_ORDER,
    PAD_ROWS,
    PARTIAL_SUMS,
    TILE,
    kind_of,
    not_searched,
    size_of,
    tiles_within,
)
from dlc_core.schedule.rules.cpu.heuristics import GEMM
from dlc_core.schedule.rules.cpu.packing import Packable, Weights, packs
from dlc_core.schedule.rules.cpu.panels import (
    NO_PREFETCH,
    Prefetch,
    choose_k_block,
    panel_bytes,
    plan_prefetch,
)
from dlc_core.schedule.rules.cpu.register_tile import ONE_THREAD, Distribution, Tile, choose, domain_cycles
from dlc_core.schedule.rules.cpu.slid_rows import why_whole
from dlc_core.schedule.rules.cpu.tails import tail_heights
from dlc_core.schedule.rules.cpu.threads import worth_threads
from dlc_core.schedule.rules.cpu.tile_unit import tile_of
from dlc_core.support.record import record
from dlc_core.target.description import Dot, Rates
from dlc_core.tir.matrix import MatrixUnit

Extent = int | None
"""A number of iterations; None if it is symbolic."""

PANELS_FIRST, PANELS_IN_BATCH, TILES_FIRST = LOOP_ORDER.alternatives


@record(frozen=True)
class Gemm:
    """The facts of a contraction that determine its plan."""

    rows: Extent
    """Iterations of the loop over rows that tiles split; 1 if there is none."""
    columns: Extent
    steps: tuple[Extent, ...]
    """Extents of the reduction axes."""
    lanes: int
    outer: tuple[Extent, ...] = ()
    """Extents of the loops around the rows and columns that tiles split."""
    batched: bool = False
    """Whether one of these loops has several iterations and is not over columns."""
    row_loop: bool = True
    row_step: int = 1
    """A divisor of a symbolic number of rows."""
    all_rows: Extent = None
    """Rows over all axes."""
    work: Extent = None
    """Multiply-adds."""
    shared: bool = False
    """Whether both operands have batches or groups."""
    rhs_bytes: Extent = None
    weights: Weights | None = None
    has_other_factors: bool = False
    """Whether the right-hand side has further factors, such as scales."""
    sum_bytes: int = 4
    float_sums: bool = True
    row_bytes: Extent = None
    """Bytes between neighbouring rows of the left-hand side; None if the distance is not constant."""
    row_itemsize: int = 4
    lhs_copied: bool = False
    """Whether the kernel computes the left-hand side itself, such as a padded copy."""
    dot: Dot | None = None
    unit: MatrixUnit | None = None
    packable: Packable | None = None
    """A computed right-hand side that can be packed in the kernel; `weights` is None then."""

    def cycles(self, machine: Machine) -> Callable[[Tile], float] | None:
        """Return a function that predicts the kernel's cycles on one thread; None for symbolic sizes."""
        if not self.rows or not self.columns or not self.work or None in self.steps:
            return None
        rows, vectors = self.rows, -(-self.columns // self.lanes)
        # The iterations of all loops around the rows, times the K steps.
        times = self.work / (self.rows * self.columns)
        core, rates = Core.of(machine.description, 1), self.rates(machine)
        return lambda tile: core.products(
            times * domain_cycles(rows, vectors, tile.rows, tile.vectors, rates)
        )

    def rates(self, machine: Machine) -> Rates:
        """The rates of a K step: of multiply-adds, or of dot products that take several instructions."""
        rates, dot = machine.description.rates, self.dot
        if dot is None:
            return rates
        return replace(
            rates,
            fma_per_cycle=rates.fma_per_cycle / dot.instructions,
            loads_per_cycle=rates.loads_per_cycle / dot.operand_instructions,
        )

    def registers(self, machine: Machine) -> int:
        """The registers for the values of a tile."""
        return machine.registers if self.float_sums else machine.description.usable_integer_registers

    @property
    def by_rows(self) -> bool:
        """Whether threads are distributed over rows rather than panels."""
        if self.shared or self.all_rows is None or self.columns is None:
            return True
        return self.all_rows >= self.columns

    def offsets(self, machine: Machine) -> int | None:
        """Return at how many offsets in a way of L1 the rows of the left-hand side begin; None if unknown."""
        if self.row_bytes is None:
            return None
        way_bytes = machine.description.caches[0] // machine.description.cache_ways
        return max(1, way_bytes // math.gcd(self.row_bytes, way_bytes))

    def max_height(self, machine: Machine) -> int | None:
        """Return the rows of a tile that L1 holds without conflict misses; None if there is no limit.

        A tile reads one element of each row per K step.  Rows whose distance is a multiple of a large power
        of two fall on few sets of the cache, where they evict each other before the next step reads their
        cache lines.  One way is left for the right-hand side.  A copy of the rows has padded rows instead.
        """
        offsets = self.offsets(machine)
        if offsets is None or self.lhs_copied:
            return None
        return max(1, machine.description.cache_ways - 1) * offsets

    def rhs_fits_l2(self, machine: Machine) -> bool:
        """Whether the right-hand side fits in L2."""
        caches = machine.description.caches
        return self.rhs_bytes is None or self.rhs_bytes <= caches[min(1, len(caches) - 1)]

    def is_streamed(self, machine: Machine) -> bool:
        """Whether tiles read all panels of a right-hand side that the kernel packs faster than rows.

        The LLC holds the panels, which are contiguous, and prefetchers follow them. They do not follow the
        rows if K is not contiguous in them, and the LLC does not hold rows that are larger than its share.
        """
        caches, steps = machine.description.caches, self.steps[-1]
        if self.packable is None or self.weights is None or self.rhs_bytes is None or steps is None:
            return False
        share = 0 if len(caches) < 3 else caches[2] // GEMM.streamed_divisor
        if self.rhs_bytes > share:
            return False
        transposed = self.row_bytes == self.row_itemsize and steps > 1
        return transposed or (self.all_rows or 0) * steps * self.row_itemsize > share


@record(frozen=True)
class GemmPlan:
    """The schedule of a contraction as a value; `str` is one line."""

    tile: Tile
    loop_order: str = PANELS_FIRST
    """One of the alternatives of `gemm.loop_order`."""
    threads: bool = False
    packed: bool = False
    """Whether the right-hand side is packed into panels as wide as a tile."""
    k_block: int = 0
    """Iterations of the outermost reduction loop per K block of a panel; 0 is all of K.

    It does not apply to a single row, or if threads are distributed over the tiles of a single panel.
    """
    tails: tuple[int, ...] = ()
    """Heights of the tiles of a symbolic number of rows, the largest first; single rows follow."""
    pad_rows: bool = False
    """Whether the rows of a copy of the left-hand side are an odd number of cache lines apart."""
    partial_sums: int = 0
    """K steps per partial sum of single rows; 0 is one running sum."""
    prefetch: Prefetch = NO_PREFETCH
    block_prefetch: Prefetch = NO_PREFETCH
    """The prefetch of tiles with K blocking."""
    dot: Dot | None = None
    unit: MatrixUnit | None = None

    def __str__(self) -> str:
        words = [f"tile {size_of(self.tile)}", self.loop_order]
        if self.packed:
            words.append("packed")
        if self.k_block:
            words.append(f"K in blocks of {self.k_block}")
        if self.tails:
            words.append("tails " + "+".join(map(str, (*self.tails, 1))))
        if self.pad_rows:
            words.append("padded rows")
        if self.partial_sums:
            words.append(f"partial sums of {self.partial_sums}")
        used = self.block_prefetch if self.k_block else self.prefetch
        if used.kind != NO_PREFETCH.kind:
            words.append(f"prefetch {used}")
        if self.unit is not None:
            words.append(f"tile unit {self.unit.m}x{self.unit.n}x{self.unit.k}")
        elif self.dot is not None:
            words.append(f"dot products of {self.dot.group}")
        words.append("all threads" if self.threads else "one thread")
        return ", ".join(words)


def plan_gemm(gemm: Gemm, machine: Machine, tile: Tile | None = None) -> GemmPlan:
    """Choose the plan of a contraction; `tile` is given if an algorithm around the GEMM fixes it."""
    threads = worth_threads(machine, gemm.work, "multiply-adds")
    tile = tile or _tile(gemm, machine, threads)
    gemm = _packed(gemm, machine, tile)
    order = _loop_order(gemm, machine, tile) if gemm.row_loop else PANELS_IN_BATCH
    tiles = gemm.rows if tile.rows == 1 or gemm.rows is None else -(-gemm.rows // tile.rows)
    inside = _inside(gemm, order, tiles)
    shape = None if gemm.weights is None else gemm.weights.packed_shape(tile.vectors * gemm.lanes)
    k_block = 0
    prefetch = block_prefetch = NO_PREFETCH
    if gemm.weights is not None and shape is not None:
        itemsize = gemm.weights.itemsize
        if gemm.row_loop and order != TILES_FIRST:
            k_block = _k_block(gemm, machine, tile, inside, shape)
        for blocked in (False, True) if k_block else (False,):
            panel = panel_bytes(shape, len(gemm.steps) - (blocked and k_block == 1), itemsize)
            found = plan_prefetch(machine, math.prod(shape), panel, itemsize, gemm.all_rows, inside)
            prefetch, block_prefetch = (prefetch, found) if blocked else (found, block_prefetch)
    elif gemm.row_loop and order == PANELS_FIRST:
        k_block = _slid_block(gemm, machine, tile)
    return GemmPlan(
        tile,
        order,
        threads,
        gemm.weights is not None,
        k_block,
        _tails(gemm, tile),
        _pads_rows(gemm, machine, tile),
        _partial_sums(gemm, tile),
        prefetch,
        block_prefetch,
        gemm.dot,
        gemm.unit,
    )


def _tile(gemm: Gemm, machine: Machine, threads: bool) -> Tile:
    if gemm.unit is not None and gemm.rows is not None and gemm.columns is not None:
        return tile_of(gemm.unit, gemm.rows, gemm.columns)
    distribution = ONE_THREAD
    if threads and gemm.row_loop and not _why_whole(gemm, machine, None):
        distribution = Distribution(machine.threads)
    elif threads and not gemm.shared and not (gemm.by_rows and gemm.batched):
        distribution = Distribution(machine.threads, panels=not gemm.by_rows or not gemm.rhs_fits_l2(machine))
    sizes = gemm.rows, gemm.columns, gemm.lanes, gemm.registers(machine)
    operand = 1 if gemm.dot is None or machine.short_code else gemm.dot.operand_registers
    height = gemm.max_height(machine)
    preferred = choose(*sizes, distribution, gemm.rates(machine), height, operand)
    cycles = gemm.cycles(machine)

    def refused(tile: Tile) -> str:
        """Why a tile was not chosen although it needs no more cycles; empty if it needs more."""
        if cycles is None or not gemm.rows or not gemm.columns or cycles(tile) > cycles(preferred):
            return ""
        if height is not None and tile.rows > height:
            return f"{_conflict(gemm, machine, tile)} and would evict each other"
        domain = gemm.rows, -(-gemm.columns // gemm.lanes)
        own, best = (distribution.imbalance(*domain, one.rows, one.vectors) for one in (tile, preferred))
        imbalance = f"the busiest thread has {own - 1:.1%} more than the average" if own > best else ""
        return not_searched(tile, gemm.columns, gemm.lanes) or imbalance

    return TILE.pick(
        preferred, lambda: tiles_within(*sizes, operand), kind_of, size_of, cost=cycles, refused=refused
    )


def _packed(gemm: Gemm, machine: Machine, tile: Tile) -> Gemm:
    """The facts with the right-hand side in panels, if it is computed and the kernel packs it."""
    packable, steps = gemm.packable, gemm.steps[-1]
    if packable is None or gemm.columns is None or steps is None:
        return gemm
    width = min(gemm.columns, tile.vectors * gemm.lanes)
    if not packs(packable, gemm.all_rows, steps, width, machine):
        return gemm
    return replace(gemm, weights=packable.weights)


def _loop_order(gemm: Gemm, machine: Machine, tile: Tile) -> str:
    """Order the outer loops: panels first if the weights are larger than the rows, else rows.

    With rows first, each row is read and written once, and the weights once for each tile from L2. With
    panels first, K can be blocked for all rows.
    """
    if not _why_whole(gemm, machine, tile):
        why = "outer loops would read both operands again from beyond L2; blocks of K are read once per panel"
        return LOOP_ORDER.choose(PANELS_FIRST, refused=lambda order: why)
    if not gemm.by_rows:
        why = f"threads get panels: {gemm.columns} columns are more than {gemm.all_rows} rows"
        return LOOP_ORDER.choose(PANELS_FIRST, refused=lambda order: why)
    batched, rhs_fits_l2 = any(extent != 1 for extent in gemm.outer), gemm.rhs_fits_l2(machine)
    streamed = not batched and gemm.is_streamed(machine)
    size = "a right-hand side of unknown size" if gemm.rhs_bytes is None else bytes_text(gemm.rhs_bytes)
    if why := _why_panels_balance(gemm, machine, tile):
        return LOOP_ORDER.choose(PANELS_FIRST, refused=lambda order: why)
    reasons = {
        PANELS_FIRST: "threads get rows, which are not fewer than the columns",
        PANELS_IN_BATCH: f"each panel would read the rows from beyond L2, more slowly than panels of {size}"
        if streamed
        else f"L2 holds all panels, {size}: each row is read and written once",
        TILES_FIRST: "loops around the rows would read all panels again"
        if rhs_fits_l2
        else f"each tile of rows would read all panels, {size}, from beyond L2",
    }
    preferred = PANELS_IN_BATCH if batched or not (rhs_fits_l2 or streamed) else TILES_FIRST
    return LOOP_ORDER.choose(preferred, refused=reasons.__getitem__)


def _why_panels_balance(gemm: Gemm, machine: Machine, tile: Tile) -> str:
    """Why threads get panels of two computed operands although rows are not fewer; empty if they do not.

    The outermost loop, such as the rows of a window in a weight gradient, may have too few iterations to
    share evenly.
    """
    first = next((extent for extent in gemm.outer if extent != 1), None)
    if first is None or gemm.columns is None or gemm.weights is not None or gemm.shared:
        return ""
    panels = -(-gemm.columns // (tile.vectors * gemm.lanes))
    of_outer, of_panels = (Distribution(machine.workers).load(count) for count in (first, panels))
    if of_outer <= GEMM.max_imbalance * of_panels:
        return ""
    return f"{machine.workers} threads cannot share {first} outer iterations as evenly as {panels} panels"


def _inside(gemm: Gemm, order: str, tiles: Extent) -> tuple[Extent, ...]:
    """Return the extents of the loops inside that over panels."""
    around = gemm.outer if order == PANELS_FIRST else ()
    return () if order == TILES_FIRST else (*around, tiles) if gemm.row_loop else around


def _k_block(
    gemm: Gemm, machine: Machine, tile: Tile, inside: Sequence[Extent], shape: tuple[int, ...]
) -> int:
    """Return the K block, or 0 for all of K."""
    if gemm.dot is not None or gemm.has_other_factors or None in inside:
        return 0
    assert gemm.weights is not None
    rows = tile.rows * math.prod(extent or 1 for extent in inside)
    sums = rows * tile.vectors * gemm.lanes * gemm.sum_bytes
    panel = panel_bytes(shape, len(gemm.steps), gemm.weights.itemsize)
    return choose_k_block(machine, panel, gemm.weights.itemsize, gemm.steps, tile.rows, sums)


def _why_whole(gemm: Gemm, machine: Machine, tile: Tile | None) -> str:
    """Why K is not blocked for all rows of a panel, see `slid_rows`. Without a tile, threads share panels."""
    if gemm.weights is not None or gemm.shared or gemm.dot is not None or gemm.has_other_factors:
        return "it applies to plain products of two computed operands"
    if gemm.rows is None or gemm.columns is None or None in gemm.outer:
        return "sizes are symbolic"
    width = min(gemm.columns, gemm.lanes * (1 if tile is None else tile.vectors))
    panels = machine.workers if tile is None else -(-gemm.columns // width)
    outer = math.prod(extent or 1 for extent in gemm.outer)
    return why_whole(machine, outer, gemm.rows, width, panels, gemm.steps, gemm.row_itemsize)


def _slid_block(gemm: Gemm, machine: Machine, tile: Tile) -> int:
    """The iterations of the outermost reduction loop per K block of computed operands: 1, or 0 for all."""
    why = _why_whole(gemm, machine, tile)
    return K_BLOCK.pick(
        int(not why),
        lambda: [0, 1] if len(gemm.steps) > 1 else [0],
        lambda count: "blocked" if count else "whole",
        refused=lambda count: why if count else "each tap would read both operands from beyond L2",
    )


def _tails(gemm: Gemm, tile: Tile) -> tuple[int, ...]:
    """Return the heights of tiles for a symbolic number of rows.

    If a known number of rows comes as several axes, the first row of a shorter tile is not known.
    """
    if gemm.rows is not None or not gemm.row_loop:
        return ()
    return tuple(tail_heights(tile.rows)) if gemm.row_step == 1 else (tile.rows,)


def _pads_rows(gemm: Gemm, machine: Machine, tile: Tile) -> bool:
    """Whether to pad the rows of a copied left-hand side, so that they map to different cache sets.

    A copy that exists anyway is padded for free.  Else a tile that an algorithm gives may have more rows than
    L1 holds (`Gemm.max_height`); a copy pays if there are enough columns.
    """
    offsets = gemm.offsets(machine)
    if offsets is None or gemm.columns is None:
        return False
    ways = machine.description.cache_ways
    height = gemm.max_height(machine)
    # A copy that exists anyway leaves more ways to the right-hand side.
    fine = -(-tile.rows // offsets) <= ways // 4 if height is None else tile.rows <= height
    narrow = gemm.columns < GEMM.min_copy_columns and not gemm.lhs_copied
    reasons = {
        "dense": f"{_conflict(gemm, machine, tile)} and would evict each other",
        "padded": f"{_conflict(gemm, machine, tile)}, which its {ways} ways hold"
        if fine
        else f"a copy of the rows costs more than it saves for {gemm.columns} columns",
    }
    return PAD_ROWS.choose("dense" if fine or narrow else "padded", refused=reasons.__getitem__) == "padded"


def _conflict(gemm: Gemm, machine: Machine, tile: Tile) -> str:
    """Describe the cache sets of a tile's rows."""
    offsets = gemm.offsets(machine)
    places = "one offset" if offsets == 1 else f"{offsets} offsets"
    return f"{tile.rows} rows, {gemm.row_bytes} bytes apart, begin at {places} in a way of L1"


def _partial_sums(gemm: Gemm, tile: Tile) -> int:
    """Return the K steps per partial sum of single rows, or 0 for one running sum.

    Blocked summation bounds the rounding error.  Single rows are memory-bound, so it costs nothing.
    """
    count = gemm.steps[-1]
    single = gemm.rows is None or gemm.rows // -(-gemm.rows // tile.rows) <= 1
    if count is None or len(gemm.steps) > 1 or not single or not gemm.float_sums:
        return 0
    if gemm.dot is not None or gemm.has_other_factors:
        return 0
    sizes = range(GEMM.chunk // 4, GEMM.chunk + 1) if count > GEMM.chunk else ()
    best = max((size for size in sizes if count % size == 0), default=0)
    short = f"{count} steps are not more than {GEMM.chunk}"
    why = short if count <= GEMM.chunk else f"no divisor of {count} steps is near {GEMM.chunk}"
    return PARTIAL_SUMS.pick(
        best,
        lambda: [size for size in range(count) if size != 1 and (not size or count % size == 0)],
        lambda size: "partial" if size else "running",
        refused=lambda size: why if size else f"one sum of {count} products would round more",
        compared=lambda: [0, *([best or count] if count > 1 else [])],
    )


__all__ = ["Gemm", "GemmPlan", "Packable", "Weights", "plan_gemm"]
