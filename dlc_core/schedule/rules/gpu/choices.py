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
    "The tile of a group: rows and columns of a GEMM, or queries and keys of attention.",
    ("square", "tall", "wide"),
    has_values=True,
)
SPLIT_K = Decision(
    "gpu.split_k",
    "Split-K: the number of parts of the reduction. Each part is summed by a group of its own, and a second "
    "launch adds the partial sums.",
    ("whole", "split"),
    has_values=True,
)
STAGES = Decision(
    "gpu.stages",
    "Pipeline stages: tiles of an operand that shared memory holds. One is read while the others are loaded.",
    ("single", "double", "multi"),
    has_values=True,
)
EPILOGUE = Decision(
    "gpu.epilogue",
    "Whether the epilogue of a GEMM runs on its accumulators or in a launch of its own.",
    ("fused", "separate"),
)
TILE_ORDER = Decision(
    "gpu.tile_order",
    "The order of a GEMM's tiles over groups: row by row, or column by column within bands of rows.",
    ("row_major", "swizzled"),
)
SHARED_LAYOUT = Decision(
    "gpu.shared_layout",
    "Whether rows of a tile in shared memory are padded, so that reading a column has no bank conflicts.",
    ("dense", "padded"),
)
VECTOR_WIDTH = Decision(
    "gpu.vector_width",
    "The number of elements that a thread loads or stores at once.",
    ("scalar", "vector"),
    has_values=True,
)
THREADS_PER_GROUP = Decision(
    "gpu.threads_per_group",
    "Threads per group, for kernels whose threads compute separate points.",
    ("one_subgroup", "several_subgroups", "max"),
    has_values=True,
)
GRID_STRIDE = Decision(
    "gpu.grid_stride",
    "Whether there is a group for each tile of points or rows, or fewer groups that loop over tiles with the "
    "number of groups as step.",
    ("group_per_tile", "grid_stride"),
    has_values=True,
)
ROWS = Decision(
    "gpu.rows",
    "The threads that reduce a row: one thread, the threads of a group along a second axis (while "
    "neighbouring threads have neighbouring columns), a subgroup, or a group.",
    ("thread", "column_group", "subgroup", "group"),
    has_values=True,
)
ROWS_PER_GROUP = Decision(
    "gpu.rows_per_group",
    "Rows per group, if a subgroup or a whole group of threads reduces each row.",
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
    "Neighbouring pixels that a thread computes in kernels of sliding windows.",
    ("one", "several"),
    has_values=True,
)
GRID_DECISIONS = (THREADS_PER_GROUP.name, GRID_STRIDE.name, VECTOR_WIDTH.name)
"""The decisions of all rules that bind points to threads."""
GEMM_DECISIONS = (
    TILE.name,
    SPLIT_K.name,
    STAGES.name,
    EPILOGUE.name,
    TILE_ORDER.name,
    SHARED_LAYOUT.name,
    *GRID_DECISIONS,
)
"""The decisions of rules for GEMM with tiles in shared memory."""


def choose_tile(
    preferred: T,
    candidates: Callable[[], Sequence[T]],
    size: Callable[[T], tuple[int, int]],
    text: Callable[[T], str] = str,
    *,
    cost: Callable[[T], float] | None = None,
    compared: Callable[[], Sequence[T]] | None = None,
) -> T:
    """Choose a tile. `size` gives its (rows, columns), `text` its name. The best candidate is first.

    `cost` gives the predicted cycles of a tile. `compared` are the candidates that the record of decisions
    lists.
    """

    def kind(tile: T) -> str:
        rows, columns = size(tile)
        return "square" if rows == columns else "tall" if rows > columns else "wide"

    return TILE.pick(preferred, candidates, kind, text, cost=cost, compared=compared)


def choose_parts(
    preferred: int,
    candidates: Callable[[], Sequence[int]],
    where: str = "",
    *,
    cost: Callable[[int], float] | None = None,
    refused: Callable[[int], str] | None = None,
) -> int:
    """Choose the number of parts of split-K. `cost` gives the predicted cycles for a number of parts."""
    kinds = {1: "whole"}
    return SPLIT_K.pick(
        preferred, candidates, lambda n: kinds.get(n, "split"), where=where, cost=cost, refused=refused
    )


def choose_stages(preferred: int, candidates: Iterable[int]) -> int:
    """Choose the number of pipeline stages: the largest that does not reduce the number of
    resident groups.
    """
    kinds = {1: "single", 2: "double"}

    def refused(stages: int) -> str:
        if stages > preferred:
            return "fewer groups of a unit would fit in shared memory at once"
        return "more tiles in flight hide more latency, and as many groups stay resident"

    return STAGES.pick(preferred, lambda: [*candidates], lambda n: kinds.get(n, "multi"), refused=refused)


def choose_lanes(preferred: int, candidates: Iterable[int] | None = None, where: str = "") -> int:
    """Choose the vector width in elements. The default candidates are divisors of the preferred width."""

    def widest_first() -> list[int]:
        narrower = (n for n in powers_of_two(1, preferred) if preferred % n == 0)
        return sorted(narrower if candidates is None else candidates, reverse=True)

    kinds = {1: "scalar"}

    def refused(lanes: int) -> str:
        if lanes > preferred:
            return "threads would have too little work, or elements that are not contiguous"
        return "wider loads and stores take fewer instructions"

    return VECTOR_WIDTH.pick(
        preferred, widest_first, lambda n: kinds.get(n, "vector"), where=where, refused=refused
    )


def powers_of_two(least: int, most: int) -> list[int]:
    """The powers of two from `least`, rounded up, to `most`."""
    return [1 << n for n in range(max(0, least - 1).bit_length(), max(0, most).bit_length())]


__all__ = [
    "EPILOGUE",
    "GRID_STRIDE",
    "RESULTS_PER_THREAD",
    "ROWS",
    "ROWS_PER_GROUP",
    "ROW_STAGES",
    "SHARED_LAYOUT",
    "SPLIT_K",
    "STAGES",
    "THREADS_PER_GROUP",
    "TILE",
    "TILE_ORDER",
    "VECTOR_WIDTH",
    "choose_lanes",
    "choose_parts",
    "choose_stages",
    "choose_tile",
    "powers_of_two",
]  # fmt: skip
