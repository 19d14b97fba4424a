"""What the rules choose among, declared so that it can be forced (see `dlc_core.decisions`).

The models of the rules prefer; here are the names, and what several rules ask in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from dlc_core.decisions import Decision

T = TypeVar("T")

TILE = Decision(
    "gpu.tile",
    "Rows and columns of a product, or queries and keys of attention, that a block of threads computes.",
    ("square", "tall", "wide"),
    has_values=True,
)
SPLIT_K = Decision(
    "gpu.split_k",
    "Parts of a product's or a reduction's steps, each of another block; a second launch adds them up.",
    ("whole", "split"),
    has_values=True,
)
STAGES = Decision(
    "gpu.stages",
    "Tiles of an operand in shared memory: all but one are filled while that is used.",
    ("single", "double", "multi"),
    has_values=True,
)
EPILOGUE = Decision(
    "gpu.epilogue",
    "Whether what follows on a product is computed on its accumulators, or by a launch of its own.",
    ("fused", "separate"),
)
BLOCK_ORDER = Decision(
    "gpu.block_order",
    "How blocks go through the tiles of a product: row by row, or a few rows column by column.",
    ("row_major", "swizzled"),
)
SHARED_LAYOUT = Decision(
    "gpu.shared_layout",
    "Whether rows of a tile in shared memory are padded, so that those of a column lie in different banks.",
    ("dense", "padded"),
)
VECTOR_WIDTH = Decision(
    "gpu.vector_width",
    "Neighbouring elements that a thread loads or stores at once.",
    ("scalar", "vector"),
    has_values=True,
)
THREADS_PER_BLOCK = Decision(
    "gpu.threads_per_block",
    "Threads of a block where each has points of its own.",
    ("one_subgroup", "several_subgroups", "most"),
    has_values=True,
)
GRID_STRIDE = Decision(
    "gpu.grid_stride",
    "Whether there is a block for each tile of points or rows, or blocks take several, a grid apart.",
    ("block_per_tile", "grid_stride"),
    has_values=True,
)
ROWS = Decision(
    "gpu.rows",
    "What reduces a row: a thread, threads of a block that has neighbouring columns, a warp, or a block.",
    ("thread", "column_block", "warp", "block"),
    has_values=True,
)
ROWS_PER_BLOCK = Decision(
    "gpu.rows_per_block",
    "Rows that a block reduces at once, where a warp or more is for each of them.",
    ("one", "several"),
    has_values=True,
)
ROW_STAGES = Decision(
    "gpu.row_stages",
    "Whether the stages of a row, as those of softmax, share a launch.",
    ("one_launch", "launch_per_stage"),
)
RESULTS_PER_THREAD = Decision(
    "gpu.results_per_thread",
    "Neighbouring pixels that a thread computes where it slides a window over them.",
    ("one", "several"),
    has_values=True,
)


def choose_tile(
    preferred: T,
    candidates: Callable[[], Sequence[T]],
    size: Callable[[T], tuple[int, int]],
    text: Callable[[T], str] = str,
) -> T:
    """A tile, of `size` (rows, columns), which `text` names; candidates are ordered, the best first."""

    def kind(tile: T) -> str:
        rows, columns = size(tile)
        return "square" if rows == columns else "tall" if rows > columns else "wide"

    return TILE.pick(preferred, candidates, kind, text)


def choose_parts(preferred: int, candidates: Callable[[], Sequence[int]], where: str = "") -> int:
    """Parts of the steps of a product or reduction."""
    kinds = {1: "whole"}
    return SPLIT_K.pick(preferred, candidates, lambda n: kinds.get(n, "split"), where=where)


def choose_stages(preferred: int, candidates: Iterable[int]) -> int:
    """Tiles of an operand in shared memory at once."""
    kinds = {1: "single", 2: "double"}
    return STAGES.pick(preferred, lambda: [*candidates], lambda n: kinds.get(n, "multi"))


def choose_lanes(preferred: int, candidates: Iterable[int] | None = None, where: str = "") -> int:
    """Elements of a vector; by default those that the preferred width can be cut into are candidates."""

    def widest_first() -> list[int]:
        narrower = (n for n in powers_of_two(1, preferred) if preferred % n == 0)
        return sorted(narrower if candidates is None else candidates, reverse=True)

    kinds = {1: "scalar"}
    return VECTOR_WIDTH.pick(preferred, widest_first, lambda n: kinds.get(n, "vector"), where=where)


def powers_of_two(least: int, most: int) -> list[int]:
    """All from `least`, rounded up to one, to `most`."""
    return [1 << n for n in range(max(0, least - 1).bit_length(), max(0, most).bit_length())]


__all__ = [
    "BLOCK_ORDER", "EPILOGUE", "GRID_STRIDE", "RESULTS_PER_THREAD", "ROWS", "ROWS_PER_BLOCK", "ROW_STAGES",
    "SHARED_LAYOUT", "SPLIT_K", "STAGES", "THREADS_PER_BLOCK", "TILE", "VECTOR_WIDTH", "choose_lanes",
    "choose_parts", "choose_stages", "choose_tile", "powers_of_two",
]  # fmt: skip
