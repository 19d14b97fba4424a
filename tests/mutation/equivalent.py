"""Excluded mutants: functions that only compare costs, and mutants that do not change results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

COSTS: Mapping[str, Mapping[str, str]] = {
    "dlc_core.passes.tir.unroll": {
        "_marked": "counts steps for the limit up to which loops are unrolled",
    },
    "dlc_core.passes.tir.partition": {
        "_Partition.is_partitioned": "the size up to which loops are partitioned",
        "_Partition.length": "chooses between two right ranges by their length",
    },
    "dlc_core.passes.tir.strided": {
        "_StoreRun.by_cases": "the number of outcomes of conditions with separate stores",
    },
    "dlc_core.passes.tir.workspace": {
        "on_stack": "whether a temporary lives on the stack or in the workspace",
        "HoistWorkspace.run_function": "the number of slices, any of which is right",
    },
    "dlc_core.passes.tir.common": {
        "_Namer.ops_of": "the work from which a value is named",
    },
    "dlc_core.passes.lower.arena": {
        "live_peak": "a figure of the report",
    },
    "dlc_core.schedule.rules.analysis": {
        "bytes_of": "sizes that caches are compared with",
        "_iterations": "the work from which threads are woken",
        "mergeable_axes": "which loops are fused: any may be",
    },
    "dlc_core.schedule.rules.cpu.contraction": {
        "ContractionScheduler._pad_rows": "strides of a copy, which all its accesses follow",
        "ContractionScheduler._facts": "facts that plans are chosen by, any of which is right",
    },
    "dlc_core.schedule.rules.cpu.rows": {
        "reduce_in_lanes": "where a loop with a condition is cut: it may be anywhere",
    },
    "dlc_core.schedule.rules.cpu.bands": {
        "_rows": "compares with caches; the split takes any divisor",
    },
    "dlc_core.algorithms.attention.cpu_rule": {
        "_Attend._tile": "sizes of tiles, and where a loop with a cut tail is cut: it may be anywhere",
    },
    "dlc_core.op.std.slicing": {
        "_proved_inside": "whether an index that the conditions of a call keep inside is clamped besides",
    },
    "dlc_core.schedule.rules.cpu.panels": {
        "_why_unblocked": "compares with caches",
        "choose_k_block": "compares with caches",
        "panel_bytes": "compares with caches",
        "plan_prefetch": "prefetches",
        "_readers": "prefetches",
    },
    "dlc_core.schedule.rules.cpu.maps": {
        "schedule_map": "the width of vectors",
        "_registers_per_value": "the width of vectors",
    },
    "dlc_core.schedule.rules.cpu.edges": {
        "Edges.cuts": "where a loop with conditions is cut: it may be anywhere",
        "_edges": "where a loop with conditions is cut: it may be anywhere",
        "untested_columns": "where a loop with conditions is cut: it may be anywhere",
        "strips_between": "where a loop with conditions is cut: it may be anywhere",
    },
    "dlc_core.schedule.rules.cpu.channel_block": {
        "block_channels": "whether bands are parallel",
        "_strip_in_l1": "compares with caches",
    },
    "dlc_core.schedule.rules.cpu.lanes": {
        "LanesRule.apply": "sizes of tiles, and where loops with conditions are cut",
        "_points": "the size of tiles",
    },
    "dlc_core.schedule.rules.cpu.transpose": {
        "transposed_read": "which loops are fused: any may be",
        "schedule_transpose": "the size of tiles",
        "_tiled": "the size of tiles",
        "_columns": "the width of vectors",
    },
    "dlc_core.schedule.rules.cpu.tile_unit": {
        "tile_of": "the size of tiles",
    },
    "dlc_core.schedule.rules.cpu.vector": {
        "vectorize_columns": "the width of vectors; what is left is treated again",
        "vectorize_long": "the extent up to which loops are unrolled",
    },
    "dlc_core.algorithms.strassen.rule": {
        "Submatrices.pad_rows": "strides of a copy, which all its accesses follow",
        "Submatrices.distribute_panels": "how many panels a thread has",
        "Submatrices._schedule_by_panels": "prefetches",
        "Submatrices.interleave_sums": "the width of vectors",
    },
}
"""By module and function, the reason why any result of the function keeps the results of programs."""

_BORDER = "the border behind the last window is longer, and no window reads that part"
_AHEAD = "how far ahead of its use a line is asked for"
EQUIVALENT: Mapping[str, Mapping[str, Mapping[str, str]]] = {
    "dlc_core.passes.lower.control": {
        "Control._double_buffer": {"2 * _rounded(value): constant + 1": "the buffers of a state take more"},
        "Control._scan": {"t + 1: another operator": "t - 1 equals t + 1 modulo two"},
        "_rounded": {
            "ALIGN - 1: another operator": "the buffers of a state take more",
            "(_bytes(value) + (ALIGN - 1)) // ALIGN: another operator": "the buffers of a state take more",
        },
    },
    "dlc_core.passes.lower.entry": {
        "Emitter.with_proofs": {
            "inside.proved + disjoint.proved: another operator": "a figure of the report"
        },
    },
    "dlc_core.passes.lower.arena": {
        "_allocate_symbolic": {"align - 1: another operator": "a value takes a step of alignment more"},
    },
    "dlc_core.passes.lower.weights": {
        "Weights.allocate": {"self.size - PAGE: another operator": "guarded constants lie further apart"},
    },
    "dlc_core.passes.tir.strided": {
        "_is_power_of_two": {
            "number - 1: constant + 1": "of numbers from two on it says the same, and it is asked for these"
        },
    },
    "dlc_core.schedule.block_axes": {
        "_positions": {
            f"{kind}: another operator": "a place that is not found is written over divisions of the new axis"
            for kind in (
                "total * axis.dom.extent + axis.var",
                "total * axis.dom.extent",
                "total * factor + rest",
                "total * factor",
            )
        },
    },
    "dlc_core.schedule.blockize": {
        "_Division._box": {
            "low >= 0: bound": "a low end that is 0 at least is its maximum with 0",
            "end <= size: bound": "an end that is the size at most is its minimum with it",
        },
        "_divide_axis": {"extent <= size: bound": "an axis of one tile has a loop of one iteration"},
    },
    "dlc_core.schedule.padding": {
        "_over": {"extent >= 0: bound": "an extent that is 0 at least is its maximum with 0"},
    },
    "dlc_core.schedule.regions": {
        "extent_of": {"extent >= 0: bound": "an extent that is 0 at least is its maximum with 0"},
        "hull": {
            "size - 1: another operator": "boxes at unknown offsets are clipped to the buffer; those that are"
            " not are asked only whether they have a constant extent, or may overlap, as a whole buffer does"
        },
    },
    "dlc_core.schedule.rules.cpu.tile_nest": {
        "TileNest._sum_partially": {
            "1 - rank: constant + 1": "which loops are put in another order: any may be"
        },
        "TileNest._parts": {"loop.extent // height: another operator": "a part without rows is cut off too"},
    },
    "dlc_core.algorithms.row_filter.rule": {
        "RowFilterRule.apply": {
            "-static_extent(s, stage['results'], 1) // tiles: another operator": "rows that are computed"
            " together: any number may be"
        },
    },
    "dlc_core.algorithms.strassen.rule": {
        "Submatrices.__init__": {
            "parts * self.depth: another operator": "the shape that tiles are weighed for",
            "parts * self.half: another operator": "the shape that tiles are weighed for",
        },
        "Submatrices._schedule_by_tiles": {
            "2 * self.depth * self.panel: another operator": _AHEAD,
            "2 * self.depth: another operator": _AHEAD,
            "2 * self.depth: constant + 1": _AHEAD,
        },
    },
    "dlc_core.algorithms.winograd.rule": {
        "_Winograd._products": {
            "self.outputs // self.plan.parts: another operator": "the width for which tiles are chosen"
        },
    },
    "dlc_core.op.std.convolution": {
        "_spread": {"o + e - 1: another operator": _BORDER},
    },
    "dlc_core.op.std.pool": {
        "_overhang": {
            "(c - 1) * s + (t - 1) * d + 1 - n: another operator": _BORDER,
            "(c - 1) * s + (t - 1) * d + 1 - n - b: another operator": _BORDER,
            "c - 1: another operator": _BORDER,
            "t - 1: another operator": _BORDER,
        },
        "_taps": {
            "(size - 1 + window.before[axis]) // window.dilation[axis] + 1: constant + 1": _BORDER,
            "size - 1: another operator": _BORDER,
        },
        "_counts_of_padded": {
            "(c - 1) * s + e - n: another operator": _BORDER,
            "c - 1: another operator": _BORDER,
        },
    },
    "dlc_core.op.std.shape": {
        "_cuts": {
            "len(shape) + 1: another operator": "fewer runs of dims are mapped each on its own",
            "len(shape) + 1: constant + 1": "a prefix that is longer than the shape is the shape",
        },
    },
}
"""By module, function and kind, the reason why the change keeps the results of programs."""


def is_equivalent(module: str, function: Sequence[str], kind: str) -> bool:
    """Whether a mutant is known to keep all results."""
    return kind in EQUIVALENT.get(module, {}).get(".".join(function), {})


__all__ = ["COSTS", "EQUIVALENT", "is_equivalent"]
