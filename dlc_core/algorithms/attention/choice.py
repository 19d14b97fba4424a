"""The choice of a plan for an attention, from its sizes and the description of the machine.

On cores a tile has as many queries as fill the registers, and a panel has the keys of one vector.  On groups
of threads the first tile of `heuristics.py` that fits the machine is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import TypeVar

from dlc_core.algorithms.attention.heuristics import ONLINE, TILED, TWO_PASS
from dlc_core.algorithms.attention.online import COLUMNS, STEPS, filled
from dlc_core.algorithms.attention.plan import AttentionPlan, Online, Tiled, TiledDots, TwoPass
from dlc_core.decisions import Decision
from dlc_core.ir.dtype import dtype
from dlc_core.schedule.matrices import chain_of, digits_of
from dlc_core.schedule.rules.cpu.heuristics import GEMM
from dlc_core.schedule.rules.cpu.register_tile import choose, fits, step_cycles
from dlc_core.schedule.rules.cpu.vector import vectors_of
from dlc_core.schedule.rules.gpu.choices import choose_tile
from dlc_core.schedule.rules.gpu.heuristics import TILES
from dlc_core.support.record import record
from dlc_core.target.description import Description
from dlc_core.tir.matrix import MatrixUnit
from dlc_core.tir.threads import THREAD, level_of

P = TypeVar("P", bound=AttentionPlan)

FORM = Decision(
    "attention.form",
    "Whether attention is one kernel, by panels of keys for a tile of queries or key by key for one query, "
    "or is expanded to products and a softmax; with the queries of a tile and the keys of a panel.",
    ("tiled", "one_query", "unfused"),
    has_values=True,
    recordable=True,
)
PARALLEL = Decision(
    "attention.parallel",
    "Which loop of attention by tiles runs on all threads: over batch and heads, or over tiles of queries.",
    ("heads", "tiles"),
)
KEY_MULTIPLE = 16
"""Matrix units need multiples of this number of keys in a panel."""


@record(frozen=True)
class Sizes:
    """The sizes of an attention.

    The numbers of queries and keys are None if symbolic; `size` is the head size of queries and keys,
    `features` that of values.
    """

    queries: int | None
    keys: int | None
    size: int
    features: int


def tiled_for(queries: int | None, features: int | None, facts: Description, where: object) -> Tiled | None:
    """Choose a tile for cores; None if the machine has no vectors, or attention is to be expanded.

    Attentions with equal `where` share the decision.
    """
    lanes = facts.lanes(32)
    if lanes < 2:
        return None
    if queries == 1:
        preferred: Tiled | None = Tiled(1, 1)
    elif queries is not None:
        columns = None if features is None else vectors_of(features, lanes) * lanes
        tile = choose(queries, columns, lanes, facts.usable_registers, rates=facts.rates)
        preferred = Tiled(tile.rows, lanes)
    else:
        # A power of two often divides the number of tokens.
        limit = choose(None, 2 * lanes, lanes, facts.usable_registers).rows
        preferred = Tiled(1 << (limit.bit_length() - 1), lanes)

    def candidates() -> list[Tiled | None]:
        allowed = [rows for rows in TILED.forced_rows if queries is None or rows <= queries]
        single = [Tiled(1, 1)] if queries == 1 else []
        return [None, preferred, *single, *(Tiled(rows, lanes) for rows in allowed)]

    return FORM.pick(
        preferred,
        candidates,
        lambda one: "unfused" if one is None else "one_query" if one == Tiled(1, 1) else "tiled",
        lambda one: "" if one is None else f"{one.rows}x{one.panel}",
        where=where,
    )


def dots_for(tile: Tiled, sizes: Sizes, of: str, facts: Description) -> Tiled:
    """The plan of a tile with dot products of operands of a dtype; the tile if the machine has none.

    A panel has as many vectors of keys as the scores of a tile take the fewest cycles with, padding included.
    """
    dot, lanes = facts.dot(of, of, "float32"), facts.lanes(32)
    if dot is None or dot.lanes != lanes or tile.panel == 1:
        return tile
    keys = GEMM.unknown_extent if sizes.keys is None else sizes.keys

    def cycles(vectors: int) -> float:
        return -(-keys // (vectors * lanes)) * step_cycles(tile.rows, vectors, facts.rates)

    room = [v for v in range(1, GEMM.max_vectors + 1) if fits(tile.rows, v, facts.usable_registers)]
    vectors = min(room, key=cycles, default=1)
    return TiledDots(tile.rows, vectors * lanes, of, dot.group, lanes)


# Scores computed twice by the threads of a group


def two_pass_for(sizes: Sizes, facts: Description) -> TwoPass | None:
    """Choose the tile and the threads of a group; None if no tile fits the machine or queries are few."""
    too_few = sizes.queries is not None and sizes.queries < TWO_PASS.min_queries
    limit = None if sizes.queries is None else 2 * sizes.queries

    def fitting() -> Iterator[TwoPass]:
        for rows, panel in () if too_few else TWO_PASS.tiles:
            found = distributed(rows, panel, facts)
            if two_pass_fits(found, sizes, facts) and (limit is None or rows <= limit):
                yield found

    return _first(fitting)


def distributed(rows: int, panel: int, facts: Description) -> TwoPass:
    """Distribute a tile of queries and a panel of keys over the threads of a group."""
    threads = 1 << (_max_threads(facts).bit_length() - 1)
    columns = min(panel, max(1, threads // max(1, rows // TWO_PASS.rows_per_thread)))
    return TwoPass(rows, panel, min(rows, threads // columns), columns)


def _max_threads(facts: Description) -> int:
    axis = next((a for a in facts.thread_axes if level_of(a) == THREAD), "")
    return min(TWO_PASS.threads, facts.group_threads or TWO_PASS.threads, facts.thread_axes.get(axis, 1))


def two_pass_fits(plan: TwoPass, sizes: Sizes, facts: Description) -> bool:
    """Whether a group of the machine has the threads, registers and shared memory for a plan."""
    even = plan.rows % plan.thread_rows == 0 and plan.panel % plan.thread_columns == 0
    if not even or not plan.rows <= plan.threads <= _max_threads(facts):
        return False
    if plan.rows // plan.thread_rows * -(-sizes.features // plan.thread_columns) > TWO_PASS.max_results:
        return False
    shared = facts.shared_bytes
    return not shared or two_pass_shared_bytes(plan, sizes, facts.shared_banks) <= shared


def two_pass_shared_bytes(plan: TwoPass, sizes: Sizes, banks: int) -> int:
    """Shared memory of a group in bytes: queries, keys of both loops, weights, values, partial maxima and
    sums.
    """
    rows, panel, size, features = plan.rows, plan.panel, sizes.size, sizes.features
    tiles = [(rows, size), (size, panel), (size, panel), (rows, panel), (panel, features)]
    words = sum(lines * _stride(width, banks) for lines, width in tiles)
    return 4 * (words + 2 * rows * (plan.thread_columns + 1))


def _stride(width: int, banks: int) -> int:
    """Return the words per row of a tile, padded to avoid bank conflicts."""
    offset, factor = TILES.padding // 4, min(banks, width)
    return width + (offset - width) % factor if width > offset else width


# Online softmax by matrix units


def online_for(of: str, sizes: Sizes, facts: Description) -> Online | None:
    """Choose the matrix unit and the tile for operands of a dtype; None if none fits or queries are few."""
    queries, keys = sizes.queries, sizes.keys
    if queries is not None and queries < ONLINE.min_queries:
        return None

    def fitting() -> Iterator[Online]:
        for unit in filter(is_supported, facts.units_for(of, of, "float32")):
            for subgroups, (panel, twice) in product(ONLINE.subgroups, ONLINE.panels):
                plan = online_plan(unit, subgroups, panel, twice)
                many = queries is not None and subgroups > 1 and plan.rows // 2 >= queries
                long = keys is not None and panel > KEY_MULTIPLE and panel // 2 >= keys
                if not many and not long and online_fits(plan, unit, sizes, facts):
                    yield plan

    return _first(fitting)


def online_plan(unit: MatrixUnit, subgroups: int, panel: int, double_buffered: bool) -> Online:
    """The plan for a suitable unit: each subgroup takes as many queries as the unit has rows."""
    lanes = lanes_of(unit)
    assert lanes is not None
    return Online(subgroups * unit.m, panel, unit.name, subgroups, *lanes, double_buffered)


def unit_of(plan: Online, of: str, sizes: Sizes, facts: Description) -> MatrixUnit | None:
    """The unit of a plan for operands of a dtype; None if the machine has none, or the plan does not fit."""
    for unit in filter(is_supported, facts.units_for(of, of, "float32")):
        own = online_plan(unit, plan.subgroups, plan.panel, plan.double_buffered)
        if own == plan and online_fits(plan, unit, sizes, facts):
            return unit
    return None


def online_fits(plan: Online, unit: MatrixUnit, sizes: Sizes, facts: Description) -> bool:
    """Whether a group of the machine has the threads, registers and shared memory for a plan."""
    shared, group = facts.shared_bytes, facts.group_threads
    return (
        plan.panel % KEY_MULTIPLE == 0
        and (not shared or online_shared_bytes(plan, unit, sizes) <= shared)
        and (not group or plan.subgroups * unit.width <= group)
        and online_registers(plan, unit, sizes.features) <= (facts.thread_registers or TILES.registers)
    )


def online_shared_bytes(plan: Online, unit: MatrixUnit, sizes: Sizes) -> int:
    """Shared memory of a group in bytes: queries, keys and values, with padding."""
    element = dtype(unit.a).itemsize
    padded = (filled(sizes.size, STEPS), filled(sizes.features, COLUMNS))
    query, value = (width * element + TILES.padding for width in padded)
    return plan.rows * query + (1 + plan.double_buffered) * plan.panel * (query + value)


def online_registers(plan: Online, unit: MatrixUnit, features: int) -> int:
    """Registers of a thread: scores, weights, results and addresses."""
    columns = filled(features, COLUMNS)
    sums = (2 * plan.panel + columns) // unit.n * unit.of_acc.count
    operands = max(plan.panel, columns) // unit.n * unit.of_b.count * dtype(unit.b).bits // 32
    return sums + operands + TILES.spare_registers


def lanes_of(unit: MatrixUnit) -> tuple[int, int] | None:
    """Return the threads of a row of a unit's results and the neighbouring elements of each; None for other
    layouts.
    """
    threads, own = digits_of(unit.of_acc)
    row_threads = [d for d in threads if d.dim == 1]
    own_columns = [d for d in own if d.dim == 1]
    if len(threads) != 2 or row_threads != threads[1:] or len(own_columns) > 1:
        return None
    count, lanes = own_columns[0].extent if own_columns else 1, row_threads[0].extent
    fits = row_threads[0].step == count and all(d.step == 1 for d in own_columns) and lanes * count == unit.n
    return (lanes, count) if fits and lanes & (lanes - 1) == 0 else None


def is_supported(unit: MatrixUnit) -> bool:
    """Whether a unit's result fragment can be its left operand, with rows shared by threads."""
    sizes = STEPS % unit.k == 0 and COLUMNS % unit.n == 0 and KEY_MULTIPLE % unit.k == 0
    usable = unit.transposable and not unit.in_place and lanes_of(unit) is not None
    return sizes and usable and chain_of(unit) is not None


def _first(fitting: Callable[[], Iterator[P]]) -> P | None:
    """The first of the plans that fit, unless the decision on tiles is forced."""
    best = next(fitting(), None)
    if best is None:
        return None
    return choose_tile(
        best, lambda: [*fitting()], lambda one: (one.rows, one.panel), lambda one: f"{one.rows}x{one.panel}"
    )


__all__ = [
    "FORM",
    "PARALLEL",
    "Sizes",
    "distributed",
    "dots_for",
    "is_supported",
    "lanes_of",
    "online_for",
    "online_plan",
    "tiled_for",
    "two_pass_fits",
    "two_pass_for",
    "unit_of",
]  # fmt: skip
