"""Register tiles: how many rows and vectors of accumulators a contraction keeps in registers.

A tile of `rows` × `vectors` accumulators takes `rows * vectors` fused multiply-adds per reduction step,
`vectors` vector loads and `rows` broadcasts.  A step costs what the busiest unit takes: two multiply-adds and
two loads a cycle, and at least the latency of the chain on each accumulator.  The tile with the least total
cost over the whole (rows × columns) domain wins, the tiles cut at its borders included.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

FMA_PER_CYCLE = 2.0
LOADS_PER_CYCLE = 2.0
FMA_LATENCY = 4.0
STEP_OVERHEAD = 0.25
"""Cycles of loop control a reduction step, unrolling considered."""
UNKNOWN_EXTENT = 1 << 12
"""What a symbolic extent is taken for."""


@dataclass(frozen=True)
class Tile:
    rows: int
    vectors: int


def step_cycles(rows: int, vectors: int) -> float:
    """Cycles of one reduction step of a tile."""
    arithmetic = rows * vectors / FMA_PER_CYCLE
    loads = (rows + vectors) / LOADS_PER_CYCLE
    return max(arithmetic, loads, FMA_LATENCY) + STEP_OVERHEAD


def fits(rows: int, vectors: int, registers: int) -> bool:
    """Accumulators, the vectors of one step and one broadcast must be in registers at once."""
    return rows * vectors + vectors + 1 <= registers


@dataclass(frozen=True)
class Dealt:
    """Who computes the tiles: `threads` that are dealt panels of columns, or tiles of rows."""

    threads: int = 1
    panels: bool = True

    def uneven(self, rows: int, vectors: int, height: int, width: int) -> float:
        """How much longer the thread with most parts takes than one with an even share.

        Of a panel that is narrower than the others tiles of rows are dealt.
        """
        if not self.panels:
            return self._longest(-(-rows // height)) / -(-rows // height)
        whole, rest = divmod(vectors, width)
        tiles = -(-rows // height)
        return (self._longest(whole) * width + self._longest(tiles) / tiles * rest) / vectors

    def _longest(self, parts: int) -> int:
        """Parts that the threads would compute while one of them has most."""
        return -(-parts // self.threads) * self.threads


ALONE = Dealt()


@lru_cache(maxsize=4096)
def choose(rows: int | None, columns: int | None, lanes: int, registers: int, dealt: Dealt = ALONE) -> Tile:
    """The cheapest tile for `rows` × `columns` elements (None: symbolic) of a machine."""
    m = UNKNOWN_EXTENT if rows is None else rows
    n = UNKNOWN_EXTENT if columns is None else columns
    vectors_needed = -(-n // lanes)
    # Columns left over by whole tiles are computed one by one where their number is symbolic: keep few.
    widest = 1 if columns is None else min(vectors_needed, 8)
    best: tuple[float, int, int] | None = None
    for height in range(1, min(m, registers - 2) + 1):
        for width in range(1, widest + 1):
            if not fits(height, width, registers) or (lanes == 1 and -n % width * 32 > n):
                continue  # without vectors padded panels gain little, and take memory
            cost = domain_cycles(m, vectors_needed, height, width)
            cost *= dealt.uneven(m, vectors_needed, height, width)
            # Among equals the squarest tile loads least.
            key = (cost, abs(height - 3 * width), -height)
            if best is None or key < best:
                best = key
                chosen = Tile(height, width)
    return chosen if best is not None else Tile(1, 1)


def domain_cycles(rows: int, vectors: int, height: int, width: int) -> float:
    """Cycles for one reduction step of every tile of a domain, rows split evenly."""
    tiles = -(-rows // height)
    low, extra = divmod(rows, tiles)
    full, rest = divmod(vectors, width)
    total = 0.0
    for count, tall in ((extra, low + 1), (tiles - extra, low)):
        if count:
            total += count * (full * step_cycles(tall, width) + (step_cycles(tall, rest) if rest else 0.0))
    return total
