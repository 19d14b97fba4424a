"""The numbers that CPU rules choose by and that no description gives, in one record per family.

They choose among correct schedules and change no result beyond the order of sums.  Each docstring says where
the number comes from.  "Not measured" means that the history names no measurement: the number was chosen by
reasoning, or by trial on the development machine, whose figures were not kept.
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
    """Cycles of loop control per K step, after unrolling.  Zen 4, halved: faster (dilated conv 13%); doubled:
    equal."""
    unknown_extent: int = 1 << 12
    """The extent that a symbolic dim counts as.  Halved and doubled: no kernel of the corpus changes."""
    max_vectors: int = 8
    """The widest tile in vectors, a bound of the search.  Zen 4, halved: slower (int8 gemm 1 row 5%) and
    faster (transposed conv 30%, 4 bits, 1 row 19%); doubled: equal."""
    padding_divisor: int = 32
    """Without vectors, panels are padded by at most the columns divided by this.  Not measured: no program of
    the corpus reads it on one thread."""
    prefetch_divisor: int = 8
    """The prefetch distance is the size of L2 divided by this.  Zen 4, halved: faster (transposed conv 9%);
    doubled: equal."""
    min_panels: int = 8
    """Panels per thread from which tiles prefetch the next panel; the first panel of a thread is never
    prefetched.  Zen 4, halved: no kernel changes; doubled: equal."""
    prefetched_rows: int = 8
    """Rows of a tile from which arithmetic takes longer than streaming the weights from memory.  Below it the
    kernel is memory-bound, the hardware prefetcher keeps up, and software prefetches only occupy its queues.
    Halved and doubled: equal (Zen 4)."""
    hinted_bytes_per_cycle: float = 16.0
    """Bytes per cycle that a core reads from the LLC with software prefetch.  Of its measurement only this is
    kept: tiles of seven pixels read 18 bytes per cycle, which was more than the LLC gave."""
    sums_divisor: int = 8
    """K is not blocked if the partial sums of a panel's rows exceed the size of L2 divided by this.  Not
    measured: no program of the corpus reads it on one thread."""
    min_steps: int = 64
    """The smallest K block; below it, adding the partial sums to memory costs too much.  Not measured: no
    program of the corpus reads it on one thread."""
    skipped_share: int = 32
    """Taps outside of the input are skipped if they are at least this fraction of all taps.  Measured on
    Zen 4, one thread: 3x3 of 14x14 pixels takes 5% less time if they are skipped, of 7x7 8%, with dilation 24
    of 65x65 32%."""
    chunk: int = 128
    """K steps per partial sum in the blocked summation of single rows.  Chosen for precision: the sums over
    2048 features of a classifier made most of the error of a residual network."""
    min_copy_columns: int = 128
    """Columns from which a copy of the left-hand side is cheap compared with the GEMM.  Halved and doubled:
    no kernel of the corpus changes."""
    short_tile_divisor: int = 3
    """A short tile for tails has the rows of a tile divided by this: enough independent sums to hide the
    latency of a multiply-add.  Halved and doubled: equal (Zen 4)."""
    min_unit_rows: int = 4
    """The fewest rows for which a tile unit is used: it takes as long, and loads as much, for fewer.  Not
    measured: no program of the corpus reads it on one thread."""
    unit_products: int = 4
    """Independent products of a tile unit in flight, which hide the latency of their sums.  Not measured: no
    program of the corpus reads it on one thread."""
    unrolled_products: int = 4
    """Products, or dot products, of each integer sum in the body of the innermost loop, on machines that
    start one instruction at a time: loop control is amortised.  By counting on an emulated Cortex-M4, dot
    products: 1.60 instructions per multiply-add with one, 1.41 with four."""
    min_copied_rows: int = 4
    """Rows of the result from which a transposed copy of a right-hand side is faster than reductions along
    its rows.  Zen 4, halved: equal; doubled: no kernel changes."""

    min_packed_rows: int = 512
    """Rows of the result from which packing a computed right-hand side in the kernel is faster than reading
    it in place.  Measured on Zen 4, one thread, K of 2048, 512 columns: 64 rows take 8% longer with a copy,
    256 rows as long, 512 rows 5% less, 1024 rows 10% less, and with K of 8192 46% less."""
    streamed_divisor: int = 4
    """The part of the LLC that a packed right-hand side may take if each tile of rows reads all of it, and
    from which on rows are not read once per panel.  Measured on Zen 4: with 8192 transposed rows, K of 1024
    and 512 columns, tiles first take 18% less time."""

    max_imbalance: float = 1.1
    """The load of the busiest thread, relative to that with panels, from which on panels are outermost.
    Measured on Zen 4, two threads: weight gradients of 3x3 windows and 512 channels, whose outermost loop has
    3 iterations, ran 1.58 times as fast as on one thread, others 1.97 times."""


@record(frozen=True)
class WindowHeuristics:
    """The numbers of pooling, depthwise convolution and padded windows."""

    max_vectors: int = 4
    """Vectors of accumulators per tile: enough independent chains to hide the latency of an addition.  Zen 4,
    halved: slower (reductions 22%); doubled: faster (reductions 11%)."""
    max_unrolled: int = 1 << 10
    """Steps of a tile up to which a forced choice of more results unrolls the window loops.  A limit on code
    size.  Not measured: no program of the corpus reads it on one thread."""
    points: int = 7
    """Results per tile if their windows overlap.  Zen 4, halved: slower (squeeze and excitation 10%);
    doubled: equal."""
    unrolled_steps: int = 448
    """Steps of a tile up to which the window loops are unrolled.  A limit on code size.  Halved and doubled:
    no kernel of the corpus changes."""
    edge_tiles: int = 4
    """Tiles at the edges that have code of their own.  A limit on code size.  Halved and doubled: no kernel
    of the corpus changes."""
    band_divisor: int = 4
    """A band takes at most the size of L2 divided by this.  Not measured: no program of the corpus reads it
    on one thread."""
    min_band_rows: int = 4
    """The fewest rows of a band; smaller bands would recompute their halo too often.  Not measured: no
    program of the corpus reads it on one thread."""
    bands_per_thread: int = 4
    """Bands per thread, so that threads end together.  Not measured: no program of the corpus reads it on one
    thread."""


@record(frozen=True)
class LoopHeuristics:
    """The numbers of reductions along rows, elementwise kernels and threads."""

    row_bytes: int = 1 << 16
    """Bytes of a row up to which intermediate values are stored; for longer rows each reader recomputes them.
    Zen 4, halved: no kernel changes; doubled: faster (softmax of long rows 11%)."""
    chain_vectors: int = 2
    """The fewest vectors of a row for each independent partial result of its reduction.  Measured on Zen 4,
    layer norm: with four results instead of one, rows of 384 and of 768 elements take 18% less time."""
    unrolled_vectors: int = 4
    """Vectors up to which a loop is fully unrolled.  Halved and doubled: equal (Zen 4)."""
    shuffled_lanes: int = 4
    """Lanes, and rows of a tile, from which loads of rows and shuffles take fewer instructions than single
    elements.  By counting instructions."""
    max_interleaved: int = 8
    """The largest innermost axis for which stores are strided.  Halved and doubled: no kernel of the corpus
    changes."""
    work_per_cycle: Mapping[str, float] = field(
        default_factory=lambda: MappingProxyType(
            {"multiply-adds": 16, "window taps": 4, "iterations": 2, "elements": 4}
        )
    )
    """Work of one thread per cycle, by kind of kernel.  Rough averages; they decide whether a kernel runs
    on several threads, which matters for kernels of a few microseconds only.  Halved and doubled: equal (Zen
    4)."""


GEMM = family("gemm", GemmHeuristics())
WINDOWS = family("windows", WindowHeuristics())
LOOPS = family("loops", LoopHeuristics())

__all__ = ["GEMM", "LOOPS", "WINDOWS", "GemmHeuristics", "LoopHeuristics", "WindowHeuristics"]
