"""The decisions of GPU rules (see `dlc_core.decisions`), and choices that several rules share.

The cost models of the rules choose; this module declares the names and alternatives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from dlc_core.decisions import Decision

T = TypeVar("T")

TILE = Decision(
    "gpu.tile",
    "The tile of a block of threads: rows and columns of a GEMM, or queries and keys of attention.",
    ("square", "tall", "wide"),
    has_values=True,
)
SPLIT_K = Decision(
    "gpu.split_k",
    "Split-K: parts of the reduction, each for another block; a second launch adds the partial sums.",
    ("whole", "split"),
    has_values=True,
)
STAGES = Decision(
    "gpu.stages",
    "Pipeline stages: tiles of an operand in shared memory; all but one are being filled.",
    ("single", "double", "multi"),
    has_values=True,
)
EPILOGUE = Decision(
    "gpu.epilogue",
    "Whether the epilogue of a GEMM runs on its accumulators or in a launch of its own.",
    ("fused", "separate"),
)
BLOCK_ORDER = Decision(
    "gpu.block_order",
    "The order of tiles of a GEMM: row by row, or a few rows column by column.",
    ("row_major", "swizzled"),
)
SHARED_LAYOUT = Decision(
    "gpu.shared_layout",
    "Whether rows of a tile in shared memory are padded, so that a column is spread over banks.",
    ("dense", "padded"),
)
VECTOR_WIDTH = Decision(
    "gpu.vector_width",
    "Elements that a thread loads or stores as a vector.",
    ("scalar", "vector"),
    has_values=True,
)
THREADS_PER_BLOCK = Decision(
    "gpu.threads_per_block",
    "Threads of a block, if each thread has points of its own.",
    ("one_subgroup", "several_subgroups", "most"),
    has_values=True,
)
GRID_STRIDE = Decision(
    "gpu.grid_stride",
    "Whether each tile of points or rows has a block, or blocks take several in grid strides.",
    ("block_per_tile", "grid_stride"),
    has_values=True,
)
ROWS = Decision(
    "gpu.rows",
    "The threads that reduce a row: one, those of a block with neighbouring columns, a warp, or a block.",
    ("thread", "column_block", "warp", "block"),
    has_values=True,
)
ROWS_PER_BLOCK = Decision(
    "gpu.rows_per_block",
    "Rows of a block, if a warp or more reduces each row.",
    ("one", "several"),
    has_values=True,
)
ROW_STAGES = Decision(
    "gpu.row_stages",
    "Whether all stages of a row, such as those of softmax, are in one launch.",
    ("one_launch", "launch_per_stage"),
)
RESULTS_PER_THREAD = Decision(
    "gpu.results_per_thread",
    "Neighbouring pixels per thread of a sliding window.",
    ("one", "several"),
    has_values=True,
)
GRID_DECISIONS = (THREADS_PER_BLOCK.name, GRID_STRIDE.name, VECTOR_WIDTH.name)
"""What every rule that binds points to threads decides."""
GEMM_DECISIONS = (
    TILE.name,
    SPLIT_K.name,
    STAGES.name,
    EPILOGUE.name,
    BLOCK_ORDER.name,
    SHARED_LAYOUT.name,
    *GRID_DECISIONS,
)
"""What rules for GEMM with tiles in shared memory decide."""


def choose_tile(
    preferred: T,
    candidates: Callable[[], Sequence[T]],
    size: Callable[[T], tuple[int, int]],
    text: Callable[[T], str] = str,
    *,
    cost: Callable[[T], float] | None = None,
    weighed: Callable[[], Sequence[T]] | None = None,
) -> T:
    """Choose a tile of `size` (rows, columns), named by `text`; the best candidate is first.

    `cost` are its cycles; `weighed` are the candidates that the record lists.
    """

    def kind(tile: T) -> str:
        rows, columns = size(tile)
        return "square" if rows == columns else "tall" if rows > columns else "wide"

    return TILE.pick(preferred, candidates, kind, text, cost=cost, weighed=weighed)


def choose_parts(
    preferred: int,
    candidates: Callable[[], Sequence[int]],
    where: str = "",
    *,
    cost: Callable[[int], float] | None = None,
    refused: Callable[[int], str] | None = None,
) -> int:
    """Choose the parts of split-K; `cost` are the cycles with so many."""
    kinds = {1: "whole"}
    return SPLIT_K.pick(
        preferred, candidates, lambda n: kinds.get(n, "split"), where=where, cost=cost, refused=refused
    )


def choose_stages(preferred: int, candidates: Iterable[int]) -> int:
    """Choose the pipeline stages, tiles of an operand in shared memory: the most that cost no resident
    group."""
    kinds = {1: "single", 2: "double"}

    def refused(stages: int) -> str:
        if stages > preferred:
            return "shared memory would hold fewer groups of a unit at once"
        return "more tiles in flight hide more of the latency, and cost no group its memory"

    return STAGES.pick(preferred, lambda: [*candidates], lambda n: kinds.get(n, "multi"), refused=refused)


def choose_lanes(preferred: int, candidates: Iterable[int] | None = None, where: str = "") -> int:
    """Choose the elements of a vector; the default candidates are divisors of the preferred width."""

    def widest_first() -> list[int]:
        narrower = (n for n in powers_of_two(1, preferred) if preferred % n == 0)
        return sorted(narrower if candidates is None else candidates, reverse=True)

    kinds = {1: "scalar"}

    def refused(lanes: int) -> str:
        if lanes > preferred:
            return "threads would have too little work, or elements that are not neighbours"
        return "wider loads and stores take fewer instructions"

    return VECTOR_WIDTH.pick(
        preferred, widest_first, lambda n: kinds.get(n, "vector"), where=where, refused=refused
    )


def powers_of_two(least: int, most: int) -> list[int]:
    """The powers of two from `least`, rounded up, to `most`."""
    return [1 << n for n in range(max(0, least - 1).bit_length(), max(0, most).bit_length())]


__all__ = [
    "BLOCK_ORDER", "EPILOGUE", "GRID_STRIDE", "RESULTS_PER_THREAD", "ROWS", "ROWS_PER_BLOCK", "ROW_STAGES",
    "SHARED_LAYOUT", "SPLIT_K", "STAGES", "THREADS_PER_BLOCK", "TILE", "VECTOR_WIDTH", "choose_lanes",
    "choose_parts", "choose_stages", "choose_tile", "powers_of_two",
]  # fmt: skip
