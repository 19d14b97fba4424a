"""The heuristics of passes, in one record per family.

They choose among correct programs and change no result beyond the order of sums.  Each docstring says where
the number comes from.  "Not measured" means that there is no recorded measurement: the number was chosen by
reasoning, or by trials on the development machine.

Options of passes with the default None take the number of the record.
"""

from __future__ import annotations

from dlc_core.heuristics import family
from dlc_core.support.record import record


@record(frozen=True)
class FusionHeuristics:
    """The numbers by which nodes are grouped into kernels (`fuse.py`, `grouping.py`)."""

    max_ops: int = 48
    """The most operations of a kernel.  A limit on code size.  Halved and doubled: equal (Zen 4)."""
    lookahead: int = 24
    """Nodes after a contraction or reduction that are searched for the end of a diamond.  A limit on compile
    time.  Halved and doubled: no kernel of the corpus changes."""
    contexts: int = 4
    """How many times per result element a cheap member may be computed.  Halved and doubled: no kernel of the
    corpus changes."""
    broadcast_ratio: int = 4
    """A costly producer with this many times fewer elements than its consumer is computed once, by a kernel
    of its own.  Halved and doubled: no kernel of the corpus changes."""
    forced_ops: tuple[int, ...] = (2, 4)
    """Further candidates for the most operations of a kernel, if the decision is forced.  For tests; no
    model."""


@record(frozen=True)
class LayoutHeuristics:
    """The numbers of the conversion of layouts (`convert_layout.py`)."""

    unknown_extent: int = 1 << 16
    """The extent that a symbolic dim counts as when operands are compared: larger than usual ones.  Not
    measured: no program of the corpus reads it on one thread."""


@record(frozen=True)
class MergingHeuristics:
    """The numbers of merging products of one value (`merge_products.py`)."""

    convolution_gain: float = 1.02
    """The least ratio of predicted times for which convolutions are merged. Measured on Zen 5 with heads of
    64 and 128 channels: with ratios below, merged ones took 0.95 to 1.26 of the time of separate ones."""


@record(frozen=True)
class ConstantHeuristics:
    """The numbers of folding and merging of constants (`fold_constants.py`, `cse.py`, `rules_arith.py`)."""

    folded_bytes: int = 1 << 20
    """The most bytes of a folded constant that is larger than its operands.  A limit on the size of
    artefacts.  Zen 4, halved: faster (4 bits, 12 rows 5%); doubled: no kernel changes."""
    growth: int = 9
    """How much larger than its operands a constant of any size may be.  By counting: transformed weights of
    windows of 3 x 3 with steps of 2 have 81 numbers for 9."""
    table_bytes: int = 1 << 28
    """The most bytes of a value that depends on constants only and is computed for another result, then
    dropped.  A limit on memory and time of compiling.  Not measured: values near it were not seen."""
    operand_bytes: int = 1 << 28
    """The most bytes of a contraction's operand that is folded, because each call would compute it.  A
    limit on the size of artefacts.  Measured on Zen 4: a state-space model gathers an operand of 268 MB in
    122 ms a call; reading it takes 12 ms."""
    operand_caches: int = 64
    """The most bytes of such an operand, in sizes of the last-level cache: processors with small caches have
    little memory.  Not measured: it concerns microcontrollers."""
    filled_bytes: int = 1 << 28
    """The most bytes of a tensor of one value that becomes a constant; a call writes larger ones.  Not
    measured: no program of the corpus reads it on one thread."""
    compared_elements: int = 16
    """The first elements that are compared before constants are read completely: a page of a mapped file.
    Halved and doubled: no kernel of the corpus changes."""
    max_reciprocals: int = 1 << 16
    """The most elements of a divisor that are looked at for being powers of two.  A limit on compile time.
    Halved and doubled: no kernel of the corpus changes."""


@record(frozen=True)
class DotHeuristics:
    """The numbers of the padding of channels for dot products (`align_channels.py`)."""

    channels: int = 16
    """The most channels that are padded in any case: the copy is small.  Halved and doubled: no kernel of the
    corpus changes."""
    results: int = 16
    """Results from which any number of channels is padded: the dot products save more than the copy costs.
    Halved and doubled: no kernel of the corpus changes."""


@record(frozen=True)
class WeightHeuristics:
    """The numbers of GEMM with low-bit weights (`pack_weights.py`)."""

    packed_rows: int = 8
    """The most rows for which weights stay packed, because the GEMM is memory-bound.  Zen 4, halved: no
    kernel changes; doubled: faster (4 bits, 12 rows 29%)."""


@record(frozen=True)
class PhaseHeuristics:
    """The numbers of transposed convolutions (`phases.py`)."""

    work_ratio: float = 1.1
    """Phases are separate convolutions if a single convolution would take this many times as many
    multiplications.  Zen 4, halved: faster (transposed conv 40%); doubled: no kernel changes."""
    max_phases: int = 8
    """The most separate convolutions.  A limit on the number of kernels.  Halved and doubled: no kernel of
    the corpus changes."""


@record(frozen=True)
class StreamHeuristics:
    """The numbers of depth-first tiling (`stream_rows.py`)."""

    peak_fraction: float = 0.875
    """The fraction of the estimated peak memory that depth-first tiling must not exceed.  Not measured: no
    program of the corpus reads it on one thread."""


@record(frozen=True)
class MemoryHeuristics:
    """The numbers of the order of kernels and of their memory (`lower/`, `tir/workspace.py`)."""

    beam: int = 16
    """The beam width: partial orders of steps that are extended.  A limit on compile time.  Halved and
    doubled: no kernel of the corpus changes."""
    effort: int = 2048
    """Steps that are tried over all partial orders: the beam is narrower in long programs.  A limit on
    compile time.  Halved and doubled: no kernel of the corpus changes."""
    tried: int = 64
    """Steps that are tried after a partial order, of those that are ready.  A limit on compile time.  Not
    measured: it concerns wide programs, and no program of the corpus is that wide."""
    gain_divisor: int = 20
    """A new order must save at least one part in this many, because neighbours in the given order share data
    in the caches.  Halved and doubled: no kernel of the corpus changes."""
    sampled_dim: int = 1021
    """A sample size at which symbolic offsets are ordered before a proof; larger than constants that are
    subtracted from sizes.  Halved and doubled: no kernel of the corpus changes."""
    bounded_bytes: int = 1 << 20
    """Bytes up to which a value of symbolic size gets the memory of its upper bound.  Pages that no call
    touches take no memory.  A limit on compile time: the entry of an SSD detector of 91 classes compiles in
    11 s instead of 30 s.  Not measured otherwise: no program of the corpus reads it."""
    loop_bytes: int = 1 << 16
    """Capacity in bytes of the first part of a loop that stacks results.  Not measured: no program of the
    corpus reads it on one thread."""
    loop_rows: int = 16
    """The same in rows, if their size is symbolic.  Not measured: no program of the corpus reads it on one
    thread."""
    max_slices: int = 64
    """The most slices of a temporary of a parallel loop, if the number of threads is not known.  Not
    measured: no program of the corpus reads it on one thread."""
    slices_per_thread: int = 4
    """Slices of a temporary per thread, for load balance.  Zen 4, halved: equal; doubled: slower (conv 3x3 64
    56 9%)."""


@record(frozen=True)
class ControlHeuristics:
    """The numbers of passes over loops and conditions (`tir/`)."""

    max_copied: int = 4
    """The most stores and calls of a loop that are copied for both outcomes of a condition.  A limit on code
    size.  Not measured: no program of the corpus reads it on one thread."""
    split_steps: int = 32
    """Twice the stores and calls of a loop up to which it is split where a condition changes.  A limit on
    code size.  Not measured: no program of the corpus reads it on one thread."""
    max_registers: int = 64
    """The most elements of a temporary that become values.  Not measured: no program of the corpus reads it
    on one thread."""
    forced_steps: tuple[int, ...] = (4, 16)
    """Stores and calls up to which small loops are unrolled, if the decision is forced.  For tests; no
    model."""


@record(frozen=True)
class ShuffleHeuristics:
    """The numbers of strided vector accesses (`tir/strided.py`)."""

    min_lanes: int = 4
    """The fewest lanes of accesses that become loads of rows and shuffles.  By counting instructions."""
    max_stride: int = 8
    """The largest stride of accesses that are interleaved or deinterleaved.  Halved and doubled: no kernel of
    the corpus changes."""
    max_cases: int = 16
    """The most outcomes of scalar conditions for which stores are duplicated.  A limit on code size.  Zen 4,
    halved: no kernel changes; doubled: equal."""


FUSION = family("fusion", FusionHeuristics())
MERGING = family("merging", MergingHeuristics())
CONVERSION = family("layout", LayoutHeuristics())
CONSTANTS = family("constants", ConstantHeuristics())
DOTS = family("dots", DotHeuristics())
WEIGHTS = family("weights", WeightHeuristics())
PHASES = family("phases", PhaseHeuristics())
STREAMS = family("stream_rows", StreamHeuristics())
MEMORY = family("memory", MemoryHeuristics())
CONTROL = family("control", ControlHeuristics())
SHUFFLES = family("shuffles", ShuffleHeuristics())

__all__ = [
    "CONSTANTS", "CONTROL", "CONVERSION", "DOTS", "FUSION", "MEMORY", "MERGING", "PHASES", "SHUFFLES",
    "STREAMS", "WEIGHTS",
    "ConstantHeuristics", "ControlHeuristics", "DotHeuristics", "FusionHeuristics", "LayoutHeuristics",
    "MemoryHeuristics", "PhaseHeuristics", "ShuffleHeuristics", "StreamHeuristics", "WeightHeuristics",
]  # fmt: skip
