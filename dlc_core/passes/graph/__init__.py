"""The core's passes over graphs, and the rewrite rules that they apply."""

from dlc_core.passes.graph.align_channels import AlignChannels
from dlc_core.passes.graph.arrange_resizes import RULES as RESIZE_RULES
from dlc_core.passes.graph.arrange_resizes import ArrangeResizes
from dlc_core.passes.graph.bound_results import BoundResults
from dlc_core.passes.graph.constant_state import ConstantState
from dlc_core.passes.graph.convert_layout import ConvertLayout
from dlc_core.passes.graph.cse import CommonSubexpressions
from dlc_core.passes.graph.dead_code import DeadCode
from dlc_core.passes.graph.empty_branches import EmptyBranches
from dlc_core.passes.graph.expand_composites import ExpandComposites
from dlc_core.passes.graph.fold_batch_norm import FoldBatchNorm
from dlc_core.passes.graph.fold_constants import FoldConstants
from dlc_core.passes.graph.fold_quantization import FoldQuantization
from dlc_core.passes.graph.fold_scale_axis import FoldScaleAxis
from dlc_core.passes.graph.fuse import Fuse
from dlc_core.passes.graph.group_weights import PackGroups, UnpackGroups
from dlc_core.passes.graph.host_foreign import HostForeign
from dlc_core.passes.graph.infer import Infer, NoteConditions
from dlc_core.passes.graph.limit_nms import LimitNms
from dlc_core.passes.graph.merge_products import MergeProducts
from dlc_core.passes.graph.mixed_precision import MixedPrecision
from dlc_core.passes.graph.pack_weights import PackWeights
from dlc_core.passes.graph.partition import Partition
from dlc_core.passes.graph.phases import Phases
from dlc_core.passes.graph.recompose import RULES as RECOMPOSE_RULES
from dlc_core.passes.graph.recompose import Recompose
from dlc_core.passes.graph.resolve_calls import ResolveCalls
from dlc_core.passes.graph.share_kernels import ShareKernels
from dlc_core.passes.graph.simplify import RULES as SIMPLIFY_RULES
from dlc_core.passes.graph.simplify import CanonicalCasts, Simplify
from dlc_core.passes.graph.stream_rows import StreamRows
from dlc_core.passes.graph.unsign_bytes import UnsignBytes

RULES = (*SIMPLIFY_RULES, *RECOMPOSE_RULES, *RESIZE_RULES)
"""All rewrite rules of the core, first those of `simplify`."""

PASSES = (
    ResolveCalls,
    Infer,
    NoteConditions,
    Simplify,
    FoldQuantization,
    PackWeights,
    PackGroups,
    UnpackGroups,
    FoldConstants,
    ConstantState,
    EmptyBranches,
    LimitNms,
    Recompose,
    ExpandComposites,
    BoundResults,
    FoldBatchNorm,
    FoldScaleAxis,
    Partition,
    HostForeign,
    MergeProducts,
    ConvertLayout,
    ArrangeResizes,
    AlignChannels,
    Phases,
    MixedPrecision,
    UnsignBytes,
    CanonicalCasts,
    CommonSubexpressions,
    DeadCode,
    StreamRows,
    Fuse,
    ShareKernels,
)

__all__ = [
    "PASSES",
    "RULES",
    "AlignChannels",
    "ArrangeResizes",
    "BoundResults",
    "CanonicalCasts",
    "CommonSubexpressions",
    "ConstantState",
    "ConvertLayout",
    "DeadCode",
    "EmptyBranches",
    "ExpandComposites",
    "FoldBatchNorm",
    "FoldConstants",
    "FoldQuantization",
    "FoldScaleAxis",
    "Fuse",
    "HostForeign",
    "Infer",
    "LimitNms",
    "MergeProducts",
    "MixedPrecision",
    "NoteConditions",
    "PackGroups",
    "PackWeights",
    "Partition",
    "Phases",
    "Recompose",
    "ResolveCalls",
    "ShareKernels",
    "Simplify",
    "StreamRows",
    "UnpackGroups",
    "UnsignBytes",
]
