"""Tails of a symbolic number of rows: the rows after the last whole register tile."""

from __future__ import annotations

from dlc_core.arith import Analyzer
from dlc_core.decisions import Decision
from dlc_core.ir.expr import Expr, free_vars
from dlc_core.schedule.rules.cpu.heuristics import GEMM

TAILS = Decision(
    "gemm.tails",
    "The tiles for the tail of a symbolic number of rows: single rows only, or shorter tiles first. "
    "Values are heights.",
    ("single_rows", "short_tiles"),
    has_values=True,
)


def tail_heights(rows: int) -> list[int]:
    """Return the heights of whole and short tiles, the largest first, without single rows.

    No height divides the next larger one, because the analyzer cannot compare x % 9 with x % 3.
    """
    shorter = [height for height in range(2, rows) if rows % height]
    preferred = next((height for height in shorter if height >= rows // GEMM.short_tile_divisor), 0)
    short = TAILS.pick(
        preferred, lambda: [0, *shorter], lambda height: "short_tiles" if height else "single_rows"
    )
    return [height for height in (rows, short) if height > 1]


def never_negative(index: Expr) -> bool:
    """Whether an index that depends only on sizes is never negative."""
    analyzer = Analyzer()
    for size in free_vars(index):
        analyzer.declare_dim(size)
    return analyzer.prove(index >= 0)


__all__ = ["TAILS", "never_negative", "tail_heights"]
