"""The numbers that CPU rules choose by and that no description gives, in one record per family.

They choose among right schedules and change no result beyond the order of sums.  Each says where it comes
from.  "Not measured" means that the history names no measurement: the number was chosen by reasoning, or by
trial on the development machine, whose figures were not kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from types import MappingProxyType

from dlc_core.heuristics import family
from dlc_core.support.record import record


@record(frozen=True)
class GemmHeuristics:
    """The numbers of GEMM and convolution."""

    step_overhead: float = 0.25
    """Cycles of loop control per K step, after unrolling.  Not measured."""
    unknown_extent: int = 1 << 12
    """The extent that a symbolic dim counts as.  Not measured."""
    most_vectors: int = 8
    """The widest tile in vectors, a bound of the search.  Not measured."""
    padding_share: int = 32
    """Without vectors, panels are padded by at most this fraction of the columns.  Not measured."""
    prefetch_share: int = 8
    """The prefetch distance is this fraction of L2.  Not measured."""
    fewest_panels: int = 8
    """Panels per thread from which tiles prefetch the next panel; the first panel of a thread is never
    prefetched.  Not measured."""
    prefetched_rows: int = 8
    """Rows of a tile from which arithmetic takes longer than streaming the weights from memory.  Below it the
    kernel is memory-bound, the hardware prefetcher keeps up, and software prefetches only occupy its queues.
    Not measured."""
    hinted_bytes_per_cycle: float = 16.0
    """Bytes per cycle that a core reads from the LLC with software prefetch.  Of its measurement only this is
    kept: tiles of seven pixels read 18 bytes per cycle, which was more than the LLC gave."""
    sums_share: int = 8
    """K is not blocked if the partial sums of a panel's rows exceed this fraction of L2.  Not measured."""
    least_steps: int = 64
    """The smallest K block; below it, adding the partial sums to memory costs too much.  Not measured."""
    chunk: int = 128
    """K steps per partial sum in the blocked summation of single rows.  Chosen for precision: the sums over
    2048 features of a classifier made most of the error of a residual network."""
    many_columns: int = 128
    """Columns from which a copy of the left-hand side is cheap compared with the GEMM.  Not measured."""
    short_tile: int = 3
    """A short tile for tails has this fraction of a tile's rows: enough independent sums to hide the latency
    of a multiply-add.  Not measured."""
    unit_rows: int = 4
    """The fewest rows for which a tile unit pays: it takes as long, and loads as much, for fewer.  Not
    measured."""
    unit_products: int = 4
    """Independent products of a tile unit in flight, which hide the latency of their sums.  Not measured."""
    copied_rows: int = 4
    """Rows of the result from which a transposed copy of a right-hand side is faster than reductions along
    its rows.  Not measured."""


@record(frozen=True)
class WindowHeuristics:
    """The numbers of pooling, depthwise convolution and padded windows."""

    most_vectors: int = 4
    """Vectors of accumulators per tile: enough independent chains to hide the latency of an addition.  Not
    measured."""
    most_unrolled: int = 1 << 10
    """Steps of a tile up to which a forced choice of more results unrolls the window loops.  A limit on code
    size; not measured."""
    points: int = 7
    """Results per tile if their windows overlap.  Not measured."""
    unrolled_steps: int = 448
    """Steps of a tile up to which the window loops are unrolled.  A limit on code size; not measured."""
    edge_tiles: int = 4
    """Tiles at the edges that have code of their own.  A limit on code size; not measured."""
    band_share: int = 4
    """A band takes this fraction of L2.  Not measured."""
    band_rows: int = 4
    """The fewest rows of a band; smaller bands would recompute their halo too often.  Not measured."""
    bands_per_thread: int = 4
    """Bands per thread, so that threads end together.  Not measured."""


@record(frozen=True)
class LoopHeuristics:
    """The numbers of reductions along rows, elementwise kernels and threads."""

    row_bytes: int = 1 << 16
    """Bytes of a row up to which intermediate values are stored; for longer rows each reader recomputes them.
    Not measured."""
    unrolled_vectors: int = 4
    """Vectors up to which a loop is fully unrolled.  Not measured."""
    shuffled_lanes: int = 4
    """Lanes, and rows of a tile, from which loads of rows and shuffles take fewer instructions than single
    elements.  By counting instructions."""
    interleaved: int = 8
    """The largest innermost axis for which stores are strided.  Not measured."""
    work_per_cycle: Mapping[str, float] = field(
        default_factory=lambda: MappingProxyType(
            {"multiply-adds": 16, "window taps": 4, "iterations": 2, "elements": 4}
        )
    )
    """Work of one thread per cycle, by kind of kernel.  Rough averages, not measured; they decide whether
    threads pay, which matters for kernels of a few microseconds only."""


GEMM = family("gemm", GemmHeuristics())
WINDOWS = family("windows", WindowHeuristics())
LOOPS = family("loops", LoopHeuristics())

__all__ = ["GEMM", "LOOPS", "WINDOWS", "GemmHeuristics", "LoopHeuristics", "WindowHeuristics"]
