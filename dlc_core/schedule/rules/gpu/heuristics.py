"""The numbers that GPU rules choose by and that no description gives, in one record per family.

They choose among correct schedules and change no result beyond the order of sums.  Each docstring says where
the number comes from.  "Not measured" means that the history names no measurement: the rules were written
without a GPU, and their numbers by reasoning on published figures of GPUs.  Facts of a machine are in its
description.
"""

from __future__ import annotations

from dlc_core.heuristics import family
from dlc_core.support.record import record


@record(frozen=True)
class TileHeuristics:
    """The numbers of GEMM and convolution by multiply-adds (`tile.py`, `contraction.py`)."""

    products: int = 128
    """Multiply-adds of a unit per cycle.  Not measured; usual for GPUs, and only ratios matter."""
    bytes_per_cycle: int = 24
    """Bytes per cycle that a unit gets from global memory, caches included.  Not measured."""
    hiding_threads: int = 512
    """Threads of a unit from which latencies are hidden.  Not measured."""
    overhead: int = 600
    """Cycles of a group in addition to its steps: launch and epilogue.  Not measured."""
    unknown_extent: int = 1 << 10
    """The size that a symbolic dim counts as.  Not measured."""
    spare_registers: int = 40
    """Registers of a thread for addresses and loads in flight.  Not measured."""
    registers: int = 128
    """Registers of a thread if the description does not say.  Not measured."""
    max_groups: int = 8
    """The most resident groups of a unit in the cost model.  Not measured."""
    max_splits: int = 32
    """The most parts of split-K.  A bound of the search."""
    max_threads: int = 256
    """The most threads of a group.  A bound of the search."""
    depths: tuple[int, ...] = (8, 16, 32)
    """Steps of K of a tile.  A bound of the search."""
    finalists: int = 6
    """Shapes of tiles that are tried with every depth.  A bound of the search."""
    swizzled_rows: int = 8
    """Rows of tiles that groups traverse column by column, for reuse in the cache.  Not measured."""
    padding: int = 16
    """Bytes between rows of a tile in shared memory: the widest load of a thread, and four banks, so that a
    column is spread over banks.  Not measured."""
    sides: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64, 128)
    """Candidates for the rows, or columns, of a tile.  A bound of the search."""
    thread_sides: tuple[int, ...] = (1, 2, 4, 8)
    """Candidates for the rows, or columns, of a thread.  A bound of the search."""
    min_threads: int = 16
    """The fewest threads of a group.  A bound of the search."""
    idle_threads: int = 32
    """Threads of a group beyond which none may be idle while tiles are copied: a subgroup of most GPUs.  Not
    measured."""
    thread_vector: int = 4
    """The most neighbouring rows or columns of a thread, which it loads from shared memory as a vector.  Not
    measured."""
    split_overheads: int = 4
    """The second launch of split-K, in multiples of the overhead of a group.  Not measured."""


@record(frozen=True)
class MatrixHeuristics:
    """The numbers of GEMM by matrix units (`matrix_tile.py`, `matrix.py`)."""

    speedup: int = 8
    """The throughput of a matrix unit relative to other multiply-adds, if the description does not say.  Not
    measured."""
    bytes_per_cycle: int = 32
    """Bytes per cycle that a unit gets from global memory, mostly from a cache that groups share.  Not
    measured."""
    hiding_subgroups: int = 8
    """Subgroups of a unit from which latencies are hidden.  Not measured."""
    unoverlapped: float = 0.1
    """The fraction of each resource's time that does not overlap the others.  Not measured."""
    latency: int = 800
    """Cycles from the request of a tile until it is in shared memory.  Not measured."""
    barrier_cycles: int = 80
    """Cycles of a barrier, once per depth of a tile.  Not measured."""
    groups: tuple[tuple[int, int], ...] = (
        (1, 1), (1, 2), (2, 1), (1, 4), (2, 2), (4, 1), (2, 4), (4, 2),
    )  # fmt: skip
    """Subgroups of a group, vertically and horizontally.  A bound of the search."""
    groups_in_place: tuple[tuple[int, int], ...] = ((1, 1), (1, 2), (2, 1))
    """The same for units that read shared memory and consist of several subgroups.  A bound of the search."""
    depths: tuple[int, ...] = (32, 64, 128)
    """Bytes of an operand's tile along K.  A bound of the search."""
    deep_pipeline: int = 4
    """Pipeline stages from which one stage is reserved for multiplications in flight.  Not measured."""


@record(frozen=True)
class SkinnyGemmHeuristics:
    """The numbers of skinny GEMM (`skinny_gemm.py`)."""

    max_rows: int = 8
    """The most rows; with more, the kernel is no longer memory-bound.  Not measured."""
    min_steps: int = 16
    """The smallest K that is distributed over threads.  Not measured."""
    max_sums: int = 32
    """The most sums of a thread.  Not measured."""
    group_threads: tuple[int, ...] = (32, 64, 128, 256, 512, 1024)
    """Threads of a group.  A bound of the search."""
    max_threads_per_column: int = 256
    """The most threads of a group if all of them sum parts of one column.  Not measured."""
    columns: tuple[int, ...] = (1, 2, 4)
    """Candidates for the columns of a thread if threads along K sum parts of a column.  A bound of the
    search."""
    steps: tuple[int, ...] = (4, 8)
    """Candidates for the steps that a thread loads together if it has columns of its own.  A bound of the
    search."""
    unit_threads: int = 2048
    """Threads of a unit if the description does not say.  Not measured."""
    latency: int = 600
    """Cycles from a load to its result.  Not measured."""
    launch_cycles: int = 4000
    """Cycles of a second launch.  Not measured."""
    groups_per_unit: int = 4
    """Groups per unit that split-K makes at most.  Not measured."""
    loads_per_cycle: int = 32
    """Loads of threads that a unit issues per cycle.  Not measured; usual for GPUs."""
    products_per_issue: int = 4
    """Multiply-adds of threads that a unit issues in place of a load.  Not measured; usual for GPUs."""
    exchange_cycles: int = 4
    """Cycles of an exchange of a sum in a subgroup.  Not measured."""
    store_cycles: int = 8
    """Cycles to store a sum of every thread to shared memory.  Not measured."""
    load_cycles: int = 2
    """Cycles to load and add a sum from shared memory.  Not measured."""
    burst: int = 3
    """The bandwidth of a single unit while the others are idle, relative to its bandwidth when all units
    read.  Not measured."""


@record(frozen=True)
class RowHeuristics:
    """The numbers of reductions along rows (`rows.py`, `long_rows.py`)."""

    short_row: int = 8
    """Elements of a row up to which a single thread reduces it.  Not measured."""
    row_registers: int = 32
    """Values of a row that a thread holds in registers.  Not measured."""
    columns: int = 32
    """Neighbouring threads if there are few columns: a subgroup of most GPUs.  Not measured."""
    parts: int = 8
    """Threads per column if there are few columns.  Not measured."""
    row_threads: int = 256
    """The most threads of a row, if there are many rows, and those of a part of a long row.  Not measured."""
    contiguous_results: int = 8
    """Contiguous results from which neighbouring threads take neighbouring results.  Not measured."""
    part_elements: int = 1 << 11
    """Elements of a part of a long row.  Not measured."""
    long_parts: int = 4
    """Parts from which a row is long.  Not measured."""
    groups_per_unit: int = 4
    """Groups per unit that parts of long rows make at most.  Not measured."""
    forced_parts: tuple[int, ...] = (2, 5, 16)
    """Numbers of parts that are candidates if the decision is forced.  For tests; no model."""
    part_steps: int = 32
    """Elements of a part of a column, for one thread.  Not measured."""
    column_parts: int = 16
    """Parts from which a column is long.  Not measured."""
    few_columns: int = 64
    """Columns per unit below which several groups reduce parts of a column.  Not measured."""
    threads_of_unit: int = 1 << 10
    """Threads per unit if several groups reduce parts of a column.  Not measured."""


@record(frozen=True)
class GridHeuristics:
    """The numbers of launches and of sliding windows (`grid.py`, `windows.py`)."""

    threads: int = 256
    """The default number of threads of a group.  Not measured."""
    group_cycles: float = 64.0
    """Cycles to start a group without work.  For predicted costs only; not measured."""
    stride_cycles: float = 1.0
    """Cycles of the loop over tiles per tile of a group.  For predicted costs only; not measured."""
    step_cycles: float = 0.2
    """Cycles of a unit to load an element for one of many threads: at four bytes, about the bandwidth of
    `gpu.tiles.bytes_per_cycle`.  For predicted costs only; not measured."""
    exposed_latency: float = 0.25
    """The fraction of the latency that each further step of a thread adds: loads of several steps overlap.
    For predicted costs only; not measured."""
    unknown_points: int = 1 << 20
    """The points, or rows, that a symbolic number counts as in predicted costs.  Not measured."""
    unknown_groups: int = 16
    """Groups per unit if their number is symbolic and may exceed the axis.  Not measured."""
    unlimited_groups: int = (1 << 31) - 1
    """Groups from which an axis is long enough for any symbolic sizes, so that no group takes several tiles.
    Not measured: the longest axis of GPUs."""
    groups_per_unit: int = 1 << 12
    """Groups beyond which each takes several tiles, so that common work is done once.  Not measured."""
    max_taps: int = 81
    """The largest window in elements.  Not measured."""
    pixels: tuple[int, ...] = (4, 2, 7, 3, 5)
    """Results of a thread along a row of pixels, the preferred first.  Not measured."""
    max_unrolled_steps: int = 256
    """The most unrolled steps of a thread.  A limit on code size; not measured."""
    window_threads: int = 512
    """Threads of a unit from which a thread takes several pixels.  Not measured."""


TILES = family("gpu.tiles", TileHeuristics())
MATRIX = family("gpu.matrix", MatrixHeuristics())
SKINNY = family("gpu.skinny_gemm", SkinnyGemmHeuristics())
ROW = family("gpu.rows", RowHeuristics())
GRID = family("gpu.grid", GridHeuristics())

__all__ = [
    "GRID",
    "MATRIX",
    "ROW",
    "SKINNY",
    "TILES",
    "GridHeuristics",
    "MatrixHeuristics",
    "RowHeuristics",
    "SkinnyGemmHeuristics",
    "TileHeuristics",
]  # fmt: skip
