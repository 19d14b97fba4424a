"""The choices of Strassen's algorithm, and their cost model: plain GEMM, one level or two; register tiles.

All figures are cycles of one core. The numbers of the model are in `heuristics.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import field, replace

from dlc_core.algorithms.strassen.heuristics import STRASSEN
from dlc_core.algorithms.strassen.submatrices import PAIRS, PRODUCTS
from dlc_core.decisions import Decision, short_number
from dlc_core.diag import Span
from dlc_core.heuristics import cached
from dlc_core.schedule.rules.cpu.core import FLOAT, Core
from dlc_core.schedule.rules.cpu.heuristics import GEMM
from dlc_core.schedule.rules.cpu.register_tile import (
    Tile,
    choose,
    domain_cycles,
    fits,
)
from dlc_core.support.record import record

FORM = Decision(
    "strassen.form",
    "Whether a GEMM uses Strassen's algorithm: levels, blocks of rows, and the number of columns that use"
    " it.",
    ("direct", "once", "twice", "blocks"),
    has_values=True,
    recordable=True,
)
TILE = Decision(
    "strassen.tile",
    "Rows and vectors of the register tiles of the seven products, and the loop order: all products of a "
    "tile of rows first, or all rows of one product first.",
    ("by_panels", "by_tiles"),
    has_values=True,
)


@record(frozen=True)
class Shape:
    """The sizes of a GEMM [rows, inner] × [inner, columns]."""

    rows: int
    inner: int
    columns: int

    @property
    def half(self) -> int:
        """Rows of a submatrix."""
        return -(-self.rows // 2)


@record(frozen=True)
class Plan:
    """The register tile of the products, and the cycles on all threads together."""

    tile: Tile
    cycles: float = field(compare=False)
    by_tiles: bool = False
    """Whether all products of a row tile are computed before the next tile."""

    @property
    def order(self) -> str:
        """The alternative of `strassen.tile` for this plan."""
        return "by_tiles" if self.by_tiles else "by_panels"

    @property
    def size(self) -> str:
        return f"{self.tile.rows}x{self.tile.vectors}"

    def __str__(self) -> str:
        return f"tile {self.size} {self.order}"


@record(frozen=True)
class Form:
    """A GEMM by Strassen's algorithm: levels, number of columns that use it, and rows per block (0: all)."""

    levels: int
    columns: int
    block: int
    plan: Plan
    cycles: float
    """Cycles of the whole GEMM, including the columns that the plain GEMM computes."""
    compared: float
    """The cycles to compare with the plain GEMM: more than `cycles`, because of the larger rounding error."""

    @property
    def kind(self) -> str:
        """The alternative of `strassen.form` for this form."""
        return "twice" if self.levels == 2 else "blocks" if self.block else "once"

    def __str__(self) -> str:
        return f"{self.columns} by {self.block}" if self.block else str(self.columns)


def choose_form(
    shape: Shape,
    core: Core,
    *,
    parts: bool = False,
    static_rows: bool = True,
    max_rows: float = math.inf,
    spans: Iterable[Span] = (),
) -> Form | None:
    """Choose how a GEMM uses Strassen's algorithm, with the plan of its schedule; None for the plain GEMM.

    The algorithm computes all columns or, if the result may be in `parts`, the cheapest number of these.  Two
    levels need `static_rows`.  A symbolic number of rows, at most `max_rows`, is split into blocks, and
    `shape.rows` is unused.
    """
    blocks = [0] if static_rows else [block for block in STRASSEN.blocks if 2 * block <= max_rows]
    each = [(block, replace(shape, rows=block) if block else shape) for block in blocks]
    preferred = next(
        (
            in_blocks(form, block)
            for block, one in each
            if (form := _best(one, core, parts, static_rows)) is not None
        ),
        None,
    )

    def every() -> list[Form | None]:
        found = (
            in_blocks(form, block) for block, one in each for form in _forms(one, core, parts, static_rows)
        )
        return [None, *found]

    def refused(form: Form | None) -> str:
        if form is None:
            return ""
        one = replace(shape, rows=form.block) if not static_rows else shape
        if is_memory_bound(one, core):
            return "the plain GEMM is memory-bound: fewer multiplications save no time"
        total, direct = form.compared + scaling(one, core), direct_cycles(one, core)
        if total > direct:
            return (
                f"with scaling and a margin for the rounding it takes {short_number(total)} cycles, "
                f"the plain GEMM {short_number(direct)}"
            )
        return ""

    def cost(form: Form | None) -> float | None:
        if not static_rows:
            return None
        return direct_cycles(shape, core) if form is None else form.cycles + scaling(shape, core)

    return FORM.pick(
        preferred,
        every,
        lambda form: "direct" if form is None else form.kind,
        lambda form: "" if form is None else str(form),
        where=(shape, static_rows),
        cost=cost,
        refused=refused,
        spans=spans,
    )


def in_blocks(form: Form, block: int) -> Form:
    """The form for blocks of this many rows; unchanged for 0."""
    return replace(form, block=block) if block else form


def _best(shape: Shape, core: Core, parts: bool, static_rows: bool) -> Form | None:
    """The cheapest form; None if the cost model predicts no gain."""
    if is_memory_bound(shape, core):
        return None
    forms = _forms(shape, core, parts, static_rows)
    best = min(forms, key=lambda one: (one.compared, -one.columns, one.levels, one.block), default=None)
    if best is None or best.compared + scaling(shape, core) > direct_cycles(shape, core):
        return None
    return best


def _forms(shape: Shape, core: Core, parts: bool, static_rows: bool) -> list[Form]:
    """The variants of Strassen's algorithm, each with its cost."""
    gain = STRASSEN.gain[min(core.units, 2) - 1]
    found: list[Form] = []
    for levels in (1, 2) if static_rows else (1,):
        step = 2**levels * core.lanes
        whole = shape.columns // step * step
        if shape.inner % step or (whole < shape.columns and not parts):
            continue
        for columns in range(whole, max(0, whole - STRASSEN.parts * step), -step) if parts else (whole,):
            rest = shape.columns - columns
            made = plan(replace(shape, columns=columns), core, levels)
            if made is not None:
                rest_cycles = direct_cycles(replace(shape, columns=rest), core) if rest else 0.0
                cycles = made.cycles + rest_cycles
                found.append(Form(levels, columns, 0, made, cycles, cycles / math.prod(gain[:levels])))
    step = 2 * core.lanes
    if static_rows and shape.inner % step == 0 and shape.columns % step == 0:
        blocks = plan_blocks(shape, core)
        if blocks is not None:
            rows, made = blocks
            found.append(Form(1, shape.columns, rows, made, made.cycles, made.cycles / gain[0]))
    return found


def scaling(shape: Shape, core: Core) -> float:
    """Cycles to scale rows, to test whether they are finite, and to select results."""
    moved = STRASSEN.scaled_reads * shape.inner + STRASSEN.scaled_results * shape.columns
    return FLOAT * shape.rows * moved / _llc_rate(core)


def choose_plan(shape: Shape, core: Core, levels: int, given: Plan | None = None) -> Plan | None:
    """Choose the plan of a kernel: the `given` one of the graph pass, or the cheapest.

    None if the columns of a part are not whole vectors.
    """
    found = plan(shape, core, levels) if given is None else given
    if found is None:
        return None

    def every() -> list[Plan]:
        """All plans; for one level, with both loop orders."""
        found = plans(shape, core, levels)
        others = (replace(one, by_tiles=not one.by_tiles) for one in found)
        return [*found, *others] if levels == 1 else list(found)

    other_order = replace(found, by_tiles=not found.by_tiles)

    def cost(one: Plan) -> float | None:
        return next((each.cycles for each in plans(shape, core, levels) if each == one), None)

    def refused(one: Plan) -> str:
        if cost(one) is not None:
            return ""
        holds = "holds" if found.by_tiles else "does not hold"
        return f"L2 {holds} what all products of a panel read"

    return TILE.pick(
        found,
        every,
        lambda one: one.order,
        lambda one: one.size,
        cost=cost,
        refused=refused,
        compared=lambda: [*plans(shape, core, levels), *([other_order] if levels == 1 else [])],
    )


def direct_cycles(shape: Shape, core: Core) -> float:
    """Cycles of the plain GEMM."""
    tile = choose(shape.rows, shape.columns, core.lanes, core.registers, rates=core.rates)
    vectors = -(-shape.columns // core.lanes)
    return core.products(
        shape.inner * domain_cycles(shape.rows, vectors, tile.rows, tile.vectors, core.rates)
    )


def _llc_rate(core: Core) -> float:
    """Bytes per cycle of operands and sums that L2 does not hold."""
    return min(STRASSEN.llc_bytes_per_cycle, core.bandwidth_beyond_l2)


def is_memory_bound(shape: Shape, core: Core) -> bool:
    """Whether the plain GEMM is memory-bound, or nearly so."""
    read = FLOAT * shape.inner * shape.columns / core.memory_bandwidth
    return read > STRASSEN.memory_fraction * direct_cycles(shape, core)


@cached(maxsize=1024)
def plan(shape: Shape, core: Core, levels: int = 1) -> Plan | None:
    """Return the cheapest plan; None if the columns of a part are not whole vectors."""
    return min(plans(shape, core, levels), key=lambda found: found.cycles, default=None)


@cached(maxsize=64)
def plans(shape: Shape, core: Core, levels: int = 1) -> tuple[Plan, ...]:
    """Return all plans that fit the caches."""
    parts = 2**levels
    vectors, remainder = divmod(shape.columns // parts, core.lanes)
    if remainder or not vectors or (levels == 2 and shape.inner % parts):
        return ()
    rows, inner = -(-shape.rows // parts), shape.inner / parts
    stored = PRODUCTS**levels * rows * inner * FLOAT * core.threads
    if levels == 2 and stored > STRASSEN.llc_sum_fraction * core.caches[-1]:
        return ()
    found = []
    for width in range(1, min(vectors, STRASSEN.max_vectors) + 1):
        if vectors % width:
            continue
        panel = rows * width * core.lanes * FLOAT
        between = PRODUCTS * panel * (1 if levels == 1 else STRASSEN.two_level_values)
        by_tiles = levels == 1 and _fits_l2(rows, shape.inner, width, core)
        read = STRASSEN.two_level_reads * inner * width * core.lanes * FLOAT if levels == 2 else 0.0
        if max(0 if by_tiles else between, read) > STRASSEN.l2_fraction * core.l2_bytes:
            continue
        combined = _combined(shape, between, core, levels, by_tiles)
        panels = vectors // width
        uneven = -(-panels // core.threads) * core.threads / panels
        for height in range(1, min(rows, core.registers - 2) + 1):
            if fits(height, width, core.registers):
                steps = panels * uneven * _column_cycles(rows, height, width, core, levels)
                cycles = PRODUCTS**levels * inner * steps + combined
                if levels == 2:
                    cycles += (
                        PRODUCTS**levels * panels * uneven * -(-rows // height) * width * STRASSEN.tile_cycles
                    )
                found.append(Plan(Tile(height, width), cycles, by_tiles))
    lhs_bytes = shape.rows * shape.inner * FLOAT
    in_l2 = levels == 1 and PRODUCTS / 4 * lhs_bytes <= STRASSEN.l2_fraction_by_tiles * core.l2_bytes
    sums = (
        (STRASSEN.l2_row_traffic if in_l2 else STRASSEN.row_traffic[levels])
        * lhs_bytes
        * core.threads
        / _llc_rate(core)
    )
    read = lhs_bytes * (core.threads - 1) / STRASSEN.remote_bytes_per_cycle
    return tuple(replace(one, cycles=one.cycles + sums + read) for one in found)


@cached(maxsize=1024)
def plan_blocks(shape: Shape, core: Core) -> tuple[int, Plan] | None:
    """Return the cheapest number of rows per block on one level, with its plan for all blocks.

    Blocks are distributed over threads. None if no block size fits.
    """
    weights = FLOAT * shape.inner * shape.columns
    reload = (
        0.0
        if weights <= STRASSEN.l2_fraction * core.l2_bytes
        else STRASSEN.exposed_reload * weights / _llc_rate(core)
    )
    best: tuple[int, Plan] | None = None
    for count in range(max(2, core.threads), shape.rows // STRASSEN.min_block + 1):
        rows, remainder = divmod(shape.rows, count)
        if remainder or rows % 2 or count % core.threads:
            continue
        one = plan(replace(shape, rows=rows), replace(core, threads=1))
        if one is None:
            continue
        cycles = count * one.cycles + (count - 1) * reload
        if best is None or cycles < best[1].cycles:
            best = rows, replace(one, cycles=cycles)
    return best


def _fits_l2(rows: int, inner: float, width: int, core: Core) -> bool:
    """Whether L2 holds the operands of all products of a panel on one level, and the next panel."""
    sums = PRODUCTS * rows * inner / 2
    weights = 2 * inner * 2 * width * core.lanes
    return (sums + weights) * FLOAT <= STRASSEN.l2_fraction_by_tiles * core.l2_bytes


def _combined(shape: Shape, between: float, core: Core, levels: int, by_tiles: bool) -> float:
    """Cycles to store products, of `between` bytes per panel, and to sum them."""
    if by_tiles:
        return STRASSEN.combined_cycles * shape.rows * shape.columns / core.lanes
    in_l2 = between <= STRASSEN.l2_sum_fraction * core.l2_bytes
    moved = STRASSEN.result_traffic[levels] * shape.rows * shape.columns * FLOAT
    return moved / (STRASSEN.l2_sum_bytes_per_cycle if in_l2 else _llc_rate(core))


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
    of_pairs = max(
        steps[0], 4 * width * (STRASSEN.line_cycles if tiles > 1 else STRASSEN.unprefetched_line_cycles)
    )
    return sum(steps) + (PAIRS / PRODUCTS) ** 2 * (of_pairs - steps[0])


def _plain_cycles(rows: int, vectors: int, core: Core) -> float:
    """Cycles of one K step of a plain tile. A broadcast loads one element; two start per cycle for any vector
    width.
    """
    arithmetic = core.products(rows * vectors / core.rates.fma_per_cycle)
    loads = rows / core.rates.loads_per_cycle + core.products(vectors / core.rates.loads_per_cycle)
    return max(arithmetic, loads, core.rates.fma_latency) + GEMM.step_overhead


def _step_cycles(rows: int, vectors: int, core: Core) -> float:
    """Cycles of one K step of a tile that adds weights, which are two vectors each, from L2."""
    arithmetic = core.products(rows * vectors / core.rates.fma_per_cycle)
    loads = core.products((rows + 3 * vectors) / core.rates.loads_per_cycle)
    lines = 2 * vectors * STRASSEN.line_cycles
    return (
        max(arithmetic, loads, lines, core.rates.fma_latency)
        + STRASSEN.exposed_loads * min(arithmetic, loads)
        + GEMM.step_overhead
    )


__all__ = [
    "FORM", "TILE", "Form", "Plan", "Shape", "choose_form", "choose_plan", "direct_cycles", "is_memory_bound",
    "plan", "plan_blocks", "plans",
]  # fmt: skip
