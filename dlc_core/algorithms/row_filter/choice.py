"""The choices of convolutions by row filters, and their cost model: rows of tiles, columns of strips.

All figures are cycles of one core.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from dlc_core.algorithms.minimal_filtering.choice import choose_tile
from dlc_core.algorithms.minimal_filtering.matrices import Matrix
from dlc_core.algorithms.row_filter.heuristics import ROW_FILTER
from dlc_core.algorithms.row_filter.op import MAX_POINTS, checked_columns, matrices, points_of
from dlc_core.decisions import Decision
from dlc_core.diag import Span, bytes_text
from dlc_core.heuristics import cached
from dlc_core.schedule.rules.cpu.core import FLOAT, Core
from dlc_core.schedule.rules.cpu.register_tile import choose, domain_cycles
from dlc_core.support.record import record

FORM = Decision(
    "row_filter.tile",
    "Whether a convolution is computed by filtered rows, and rows of results of a tile.",
    ("direct", "filtered"),
    has_values=True,
    recordable=True,
)
STRIP = Decision(
    "row_filter.strip",
    "Columns of results per strip; the products of a strip stay in the cache.",
    ("whole", "strips"),
    has_values=True,
)


@record(frozen=True)
class Window:
    """The sizes of a convolution with windows [rows, columns] and the same stride in both directions."""

    batch: int
    height: int
    width: int
    inputs: int
    outputs: int
    """Rows and columns of the result, and channels."""
    rows: int
    columns: int
    stride: int


def choose_form(
    window: Window, tiles: Sequence[int], core: Core, growth: Callable[[int], float], spans: Iterable[Span]
) -> int | None:
    """Choose the rows of results of a tile; None for the direct convolution.

    `growth` is the rounding error of a tile (see `minimal_filtering.choice`).
    """
    costs = {tile: filtered_cycles(window, tile, core) for tile in tiles}
    return choose_tile(FORM, direct_cycles(window, core), costs, growth, where=window, spans=spans)


def choose_strip(width: int, points: int, outputs: int, steps: int, core: Core) -> int:
    """Choose the columns per strip of a kernel; see `strip_of`."""
    best = strip_of(width, points, outputs, steps, core)

    def refused(size: int) -> str:
        if not _fits_l1(points, size, outputs, core):
            return f"L1 does not hold products of {bytes_text(points * size * outputs * FLOAT)}"
        return "its register tiles are slower, or read the weights more often"

    return STRIP.pick(
        best,
        lambda: strips(width),
        lambda size: "whole" if size == width else "strips",
        refused=refused,
    )


@cached(maxsize=1024)
def strip_of(width: int, points: int, outputs: int, steps: int, core: Core) -> int:
    """Return the columns per strip: a divisor of all columns, in whole tiles, for the fewest cycles.

    `steps` are those of K for each point.
    """
    costs = {size: strip_cycles(width, size, points, outputs, steps, core) for size in strips(width)}
    return min(costs, key=lambda size: (costs[size], -size))


def strip_cycles(width: int, strip: int, points: int, outputs: int, steps: int, core: Core) -> float:
    """Cycles of the products of a row of tiles in strips.

    Every register tile reads the weights of its columns from beyond L1. Products that L1 does not hold are
    written there and read again.
    """
    rows = choose(strip, outputs, core.lanes, core.registers, rates=core.rates).rows
    vectors = -(-outputs // core.lanes)
    weights = width // strip * -(-strip // rows) * vectors * core.lanes * FLOAT
    moved = 0 if _fits_l1(points, strip, outputs, core) else 2 * width * outputs * FLOAT
    beyond_l1 = core.bytes_per_cycle[1]
    arithmetic = core.products(_products(width, strip, outputs, core))
    return points * (steps * max(arithmetic, weights / beyond_l1) + moved / beyond_l1)


def _fits_l1(points: int, strip: int, outputs: int, core: Core) -> bool:
    """Whether L1 holds the products of all points of a strip."""
    return points * strip * outputs * FLOAT <= ROW_FILTER.l1_fraction * core.caches[0]


def strips(width: int) -> list[int]:
    """Return the widths of strips: divisors of the columns, in whole tiles; at least one."""
    found = [size for size in range(1, width + 1) if width % size == 0 and size % checked_columns(width) == 0]
    return found or [width]


def _products(width: int, strip: int, outputs: int, core: Core) -> float:
    """Cycles of one step of all register tiles of a row of results."""
    tile = choose(strip, outputs, core.lanes, core.registers, rates=core.rates)
    vectors = -(-outputs // core.lanes)
    return width // strip * domain_cycles(strip, vectors, tile.rows, tile.vectors, core.rates)


def direct_cycles(layer: Window, core: Core) -> float:
    """Cycles of the direct convolution."""
    steps = layer.rows * layer.columns * layer.inputs
    rows = layer.batch * layer.height * _products(layer.width, layer.width, layer.outputs, core)
    return core.products(rows * steps)


def filtered_cycles(layer: Window, tile: int, core: Core) -> float | None:
    """Cycles with tiles of `tile` rows.

    None if there are no filter matrices for the size, or if a tile does not fit in L2.
    """
    points = points_of(tile, layer.stride, layer.rows)
    if points > MAX_POINTS:
        return None
    made = matrices(tile, layer.stride, layer.rows)
    steps = layer.stride * layer.columns * layer.inputs
    strip = strip_of(layer.width, points, layer.outputs, steps, core)
    across = ((layer.width - 1) * layer.stride + layer.columns) * layer.stride
    kept = points * (steps * layer.outputs + across * layer.inputs + strip * layer.outputs)
    if kept * FLOAT > ROW_FILTER.l2_fraction * core.l2_bytes:
        return None
    row = strip_cycles(layer.width, strip, points, layer.outputs, steps, core)
    # Storing and loading the products is added to the arithmetic on them.
    vectors = -(-layer.outputs // core.lanes)
    row += layer.width * vectors * (_factors(made.results) + 2 * points)
    row += across * layer.inputs / core.lanes * (_factors(made.inputs) + points)
    tiles = -(-layer.height // tile)
    uneven = -(-layer.batch * tiles // core.threads) * core.threads
    return max(layer.batch * tiles, uneven) * row


def _factors(matrix: Matrix) -> int:
    return sum(value != 0 for row in matrix for value in row)


__all__ = [
    "FORM", "STRIP", "Window", "choose_form", "choose_strip", "direct_cycles", "filtered_cycles", "strip_of",
    "strips",
]  # fmt: skip
