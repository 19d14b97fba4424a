"""The default pipeline of each stage: one list of pass names, in the order in which they run.

A pass that is in no list declares its position by `after` or `before`; see `passes.positions`. Without either
it runs on request only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from dlc_core.passes.base import Pass
from dlc_core.passes.pipeline import Pipeline, by_name
from dlc_core.passes.positions import insert_classes, position_texts

GRAPH = (
    # Calls by name become part of their callers, so that other passes see what they compute.
    "resolve_calls",
    # All other passes read types.
    "infer",
    # Clean up.  Integer contractions and packed weights are recognised by the dequantize of their weights, so
    # constants are folded after that.
    "simplify",
    "fold_quantization",
    "pack_weights",
    "pack_groups",
    "fold_constants",
    "constant_state",
    "empty_branches",
    "limit_nms",
    # Composites are recognised before the ones that the target does not keep are expanded.
    "recompose",
    "attention",
    "expand_composites",
    # Composites are expanded: results whose sizes are data are slices of bounded ones.
    "bound_results",
    # Batch norms become scales and shifts.  Rules move these next to the weights, which absorb them.
    "fold_batch_norm",
    "simplify",
    "fold_constants",
    "fold_scale_axis",
    # Regions of other targets are taken from the folded graph before choices for this target.
    "partition",
    # After partitioners, which may add calls of foreign functions.
    "host_foreign",
    # After partitioners, which may take products with packed weights.
    "unpack_groups",
    # Choices for this target.  Algorithms and dtypes depend on the layout and on merged GEMMs.  Padding comes
    # last, because it depends on the dtype.
    "merge_products",
    "convert_layout",
    "arrange_resizes",
    "phases",
    "winograd",
    "row_filter",
    "strassen",
    "mixed_precision",
    "unsign_bytes",
    "align_channels",
    # Clean up after the choices.
    "simplify",
    "fold_constants",
    "cse",
    "dead_code",
    # Form kernels last; with depth-first tiling, kernels compute bands.
    "stream_rows",
    "fuse",
    "share_kernels",
)

LOWER = (
    # Nodes that run on the host are separated before the rest is lowered.
    "grow_loops",
    "host_segments",
    # Kernels that write into a part of another value must be known before they are lowered.
    "join_parts",
    "lower_groups",
    # Kernels that update an input in place are known before results are copied.
    "update_in_place",
    "copy_results",
    # Costs are counted from the unscheduled kernels.
    "record_costs",
)

TIR = (
    # On blocks, with their declared reads and writes: schedules, then the annotations that schedules leave.
    "schedule_kernels",
    "lower_cross_thread_reduction",
    "inject_software_pipeline",
    "unify_thread_binding",
    "prove_regions",
    "check_foreign",
    "lower_blocks",
    # On plain loops over buffers of several dims.
    "legalize_dtypes",
    "inject_virtual_thread",
    "thread_sync",
    "bulk_copies",
    "check_bounds",
    "flatten_buffers",
    # On flat buffers.  Vectorization precedes unrolling, so that `group_strided` finds vector accesses.
    "vectorize_loops",
    "unroll_loops",
    "group_strided",
    "inject_prefetches",
    "predict_cycles",
    # Buffers are final; these passes need all accesses of a kernel.
    "hoist_workspace",
    "note_overwrites",
    "prove_bounds",
    # Device kernels become separate functions after their bounds are proved.
    "launch_rest",
    "split_host_device",
)

MAIN = (
    # The instrumented copy for profiles is made from the finished entry.
    "build_main",
    "instrument",
)

INTERFACE = (
    # For a graph that is interpreted: regions are separated before the interface is described.
    "note_conditions",
    "host_regions",
    "describe_graph",
)

PIPELINES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"graph": GRAPH, "lower": LOWER, "tir": TIR, "main": MAIN, "interface": INTERFACE}
)
"""The default pipelines by stage."""


def default_pipeline(
    stage: str,
    passes: Mapping[str, type[Pass]] | Iterable[type[Pass]],
    opt_level: int = 3,
    *,
    more: Sequence[Pass] = (),
) -> Pipeline:
    """Return the known passes of a stage in their order, with default options.

    `more` are passes with other options, which replace those with default options. Raises PassError for
    contradictory positions.
    """
    made = {one.name: one for one in more}
    known = {**by_name(passes), **{name: type(one) for name, one in made.items()}}
    of_stage = {name: cls for name, cls in known.items() if cls.stage == stage}
    order = insert_classes(PIPELINES.get(stage, ()), of_stage.values())
    chosen = [name for name in order if name in of_stage and of_stage[name].min_level <= opt_level]
    return Pipeline(tuple(made[name] if name in made else of_stage[name]() for name in chosen))


def positions_of(cls: type[Pass]) -> list[str]:
    """Return the default positions of a pass, such as "after simplify"; empty if it runs on request only."""
    listed = PIPELINES.get(cls.stage, ())
    found = [
        f"after {listed[i - 1]}" if i else f"begin {cls.stage}"
        for i, name in enumerate(listed)
        if name == cls.name
    ]
    return found or position_texts(cls)


__all__ = ["PIPELINES", "default_pipeline", "positions_of"]
