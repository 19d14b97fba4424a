"""The decisions of GEMM and convolution on CPUs, with the candidates of each."""

from __future__ import annotations

from dlc_core.decisions import Decision
from dlc_core.schedule.rules.cpu.heuristics import GEMM
from dlc_core.schedule.rules.cpu.register_tile import Tile, fits

TILE = Decision(
    "gemm.tile",
    "Rows × vectors of accumulators that a tile keeps in registers.",
    ("1x1", "1xN", "Mx1", "MxN"),
    has_values=True,
)
COLUMNS = Decision(
    "gemm.columns",
    "Columns of tiles: along which the result is contiguous, or those of packed weights, stored transposed.",
    ("contiguous", "transposed"),
)
LOOP_ORDER = Decision(
    "gemm.loop_order",
    "Loops around the register tiles, outermost first: panels of columns, batches, tiles of rows.",
    ("panels/batch/tiles", "batch/panels/tiles", "batch/tiles/panels"),
)
K_BLOCK = Decision(
    "gemm.k_block",
    "Cache blocking of K: iterations of the outermost reduction loop that all tiles of a panel make at once.",
    ("whole", "blocked"),
    has_values=True,
)
PREFETCH = Decision(
    "gemm.prefetch",
    "What tiles prefetch of packed weights: nothing, the steps that follow, or the panel that follows.",
    ("none", "steps", "panel"),
)
PARTIAL_SUMS = Decision(
    "gemm.partial_sums",
    "Blocked summation of single rows: one running sum, or partial sums of so many K steps.",
    ("running", "partial"),
    has_values=True,
)
PAD_ROWS = Decision(
    "gemm.pad_rows",
    "Whether a copy of the left-hand side pads its rows, so that they fall on different sets of the cache.",
    ("dense", "padded"),
)
PACKING = Decision(
    "gemm.packing",
    "Whether a computed right-hand side is read in place, or from a copy in panels as wide as a tile.",
    ("in_place", "panels"),
)
PADDING = Decision(
    "gemm.padding",
    "Whether taps of a convolution that are outside of the input are computed, or skipped by a test per tap.",
    ("computed", "skipped"),
)
TRANSPOSED = Decision(
    "gemm.transposed",
    "Whether a computed right-hand side with K innermost is copied with columns innermost.",
    ("dot_products", "copy"),
)
INSTRUCTIONS = Decision(
    "gemm.instructions",
    "The instructions for tiles of narrow dtypes: dot products of groups, or a tile unit.",
    ("dot", "matrix_unit"),
)
PANEL_DECISIONS = (LOOP_ORDER.name, K_BLOCK.name, PREFETCH.name)
"""The decisions of every rule with packed panels."""
GEMM_DECISIONS = (
    TILE.name,
    *PANEL_DECISIONS,
    PARTIAL_SUMS.name,
    PAD_ROWS.name,
    PACKING.name,
    PADDING.name,
    TRANSPOSED.name,
    INSTRUCTIONS.name,
)
"""The decisions of the plan of a GEMM, except the tails of a symbolic number of rows."""


def kind_of(tile: Tile) -> str:
    """The alternative of `gemm.tile` that a tile belongs to."""
    return f"{'1' if tile.rows == 1 else 'M'}x{'1' if tile.vectors == 1 else 'N'}"


def size_of(tile: Tile) -> str:
    return f"{tile.rows}x{tile.vectors}"


def tiles_within(
    rows: int | None, columns: int | None, lanes: int, registers: int, operand: int = 1
) -> list[Tile]:
    """All tiles that fit the registers (see `fits`) and are no larger than the domain (None: a symbolic
    size).
    """
    most = GEMM.unknown_extent if rows is None else rows
    widest = 1 if columns is None else min(-(-columns // lanes), registers)
    return [
        Tile(height, width)
        for height in range(1, min(most, registers - 2) + 1)
        for width in range(1, widest + 1)
        if fits(height, width, registers, operand)
    ]


def not_searched(tile: Tile, columns: int, lanes: int) -> str:
    """Why `register_tile.choose` does not consider a tile that fits the registers; empty if it does."""
    if tile.vectors > GEMM.max_vectors:
        return f"tiles are at most {GEMM.max_vectors} vectors wide"
    if lanes == 1 and -columns % tile.vectors * GEMM.padding_divisor > columns:
        return f"panels would be padded by more than a {GEMM.padding_divisor}th of the columns"
    return ""


__all__ = [
    "COLUMNS", "INSTRUCTIONS", "K_BLOCK", "LOOP_ORDER", "PACKING", "PADDING", "PAD_ROWS", "PARTIAL_SUMS",
    "PREFETCH", "TILE", "TRANSPOSED", "kind_of", "not_searched", "size_of", "tiles_within",
]  # fmt: skip
