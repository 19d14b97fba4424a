"""Register tiles: the rows and vectors of accumulators that a microkernel keeps in registers.

One K step of a tile takes `rows * vectors` multiply-adds, `vectors` vector loads and `rows` broadcasts. Its
cost is that of the busiest unit: two multiply-adds and two loads per cycle, and at least the latency of an
accumulator's chain. On a machine that starts one instruction at a time, the cycles of multiply-adds and loads
add up. The tile with the least cost over the whole domain is chosen, tails included.
"""

from __future__ import annotations

from dlc_core.heuristics import cached
from dlc_core.schedule.rules.cpu.heuristics import GEMM
from dlc_core.support.record import record
from dlc_core.target.description import Rates


@record(frozen=True)
class Tile:
    rows: int
    vectors: int


def step_cycles(
    rows: int, vectors: float, rates: Rates, more_loads: float = 0.0, shuffles: float = 0.0
) -> float:
    """Cycles of one K step of a tile, with `more_loads` than one for each vector and for each broadcast, and
    with `shuffles`, which occupy the units of multiply-adds. `vectors` may be a fraction for narrow ones.
    """
    arithmetic = (rows * vectors + shuffles) / rates.fma_per_cycle
    loads = (rows + vectors + more_loads) / rates.loads_per_cycle
    work = arithmetic + loads if rates.single_issue else max(arithmetic, loads)
    return max(work, rates.fma_latency) + GEMM.step_overhead


def fits(rows: int, vectors: int, registers: int, operand: int = 1) -> bool:
    """Whether the accumulators, the vectors of one step and one broadcast fit in the registers. Each vector
    and broadcast takes `operand` registers.
    """
    return rows * vectors + operand * (vectors + 1) <= registers


@record(frozen=True)
class Distribution:
    """The distribution of tiles over `threads`: by panels of columns, or by tiles of rows."""

    threads: int = 1
    panels: bool = True

    def imbalance(self, rows: int, vectors: int, height: int, width: int) -> float:
        """Return the load imbalance: the time of the busiest thread relative to an even distribution.

        A panel that is narrower than the others is distributed by its row tiles.
        """
        if not self.panels:
            return self.load(-(-rows // height))
        whole, rest = divmod(vectors, width)
        tiles = -(-rows // height)
        return (self._rounded_up(whole) * width + self._rounded_up(tiles) / tiles * rest) / vectors

    def load(self, parts: int) -> float:
        """The time of the busiest thread for parts of equal work, relative to an even distribution."""
        return self._rounded_up(parts) / parts

    def _rounded_up(self, parts: int) -> int:
        """Round parts up to a multiple of the threads: all threads take as long as the busiest one."""
        return -(-parts // self.threads) * self.threads


ONE_THREAD = Distribution()
DEFAULT_RATES = Rates()
"""The rates of common cores; a description gives those of its machine (`Description.rates`)."""


@cached(maxsize=4096)
def choose(
    rows: int | None,
    columns: int | None,
    lanes: int,
    registers: int,
    distribution: Distribution = ONE_THREAD,
    rates: Rates = DEFAULT_RATES,
    max_height: int | None = None,
    operand: int = 1,
) -> Tile:
    """Return the cheapest tile for `rows` × `columns` elements (None: symbolic), of at most `max_height`
    rows. Vectors of operands take `operand` registers each."""
    m = GEMM.unknown_extent if rows is None else rows
    n = GEMM.unknown_extent if columns is None else columns
    vectors_needed = -(-n // lanes)
    # Columns after the last whole tile are computed one by one if their number is symbolic, so narrow tiles
    # are better.
    widest = 1 if columns is None else min(vectors_needed, GEMM.max_vectors)
    best: tuple[float, int, int] | None = None
    tallest = min(m, registers - 2, m if max_height is None else max_height)
    for height in range(1, tallest + 1):
        for width in range(1, widest + 1):
            if not fits(height, width, registers, operand) or (
                lanes == 1 and -n % width * GEMM.padding_divisor > n
            ):
                continue  # without vectors, padded panels gain little and take memory
            cost = domain_cycles(m, vectors_needed, height, width, rates)
            cost *= distribution.imbalance(m, vectors_needed, height, width)
            # Of equal tiles, the one nearest to a square has the fewest loads.
            key = (cost, abs(height - 3 * width), -height)
            if best is None or key < best:
                best = key
                chosen = Tile(height, width)
    return chosen if best is not None else Tile(1, 1)


def domain_cycles(rows: int, vectors: int, height: int, width: int, rates: Rates = DEFAULT_RATES) -> float:
    """Cycles of one K step of every tile of a domain, with its rows split evenly."""
    tiles = -(-rows // height)
    low, extra = divmod(rows, tiles)
    full, rest = divmod(vectors, width)
    total = 0.0
    for count, tall in ((extra, low + 1), (tiles - extra, low)):
        if count:
            tail = step_cycles(tall, rest, rates) if rest else 0.0
            total += count * (full * step_cycles(tall, width, rates) + tail)
    return total
