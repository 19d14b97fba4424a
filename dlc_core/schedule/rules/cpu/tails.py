"""Tails of a number of rows that is not known before the call: what whole register tiles leave over."""

from __future__ import annotations

from dlc_core.arith import Analyzer
from dlc_core.decisions import Decision
from dlc_core.ir.expr import Expr, free_vars

TAILS = Decision(
    "gemm.tails",
    "Which tiles compute the rows that whole tiles leave of an unknown number: single rows alone, or shorter "
    "tiles before them; values are heights.",
    ("single_rows", "short_tiles"),
    has_values=True,
)
SHORT = 3
"""Part of a tile's rows that a short tile has: enough independent sums to hide the latency of one row."""


def tail_heights(rows: int) -> list[int]:
    """Rows of whole tiles and of short ones, the larger first; single rows are left out.

    No height divides the one before: the analyzer cannot compare x % 9 with x % 3.
    """
    shorter = [height for height in range(2, rows) if rows % height]
    preferred = next((height for height in shorter if height >= rows // SHORT), 0)
    short = TAILS.pick(
        preferred, lambda: [0, *shorter], lambda height: "short_tiles" if height else "single_rows"
    )
    return [height for height in (rows, short) if height > 1]


def never_negative(index: Expr) -> bool:
    """Whether an index that depends on sizes alone is at least 0 whatever they are."""
    analyzer = Analyzer()
    for size in free_vars(index):
        analyzer.declare_dim(size)
    return analyzer.prove(index >= 0)


__all__ = ["TAILS", "never_negative", "tail_heights"]
