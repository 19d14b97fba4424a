"""Passes over PrimFuncs, from scheduled blocks to the plain loops that code generators read.

Passes that declare a position make the default pipeline. The others run on request.
"""

from __future__ import annotations

from dlc_core.passes.base import Pass
from dlc_core.passes.tir.base import PrimFuncPass, map_prim_funcs, prim_func_pass
from dlc_core.passes.tir.bulk_copies import BulkCopies
from dlc_core.passes.tir.check_bounds import CheckBounds
from dlc_core.passes.tir.check_foreign import CheckForeign
from dlc_core.passes.tir.common import CommonSubexpressions
from dlc_core.passes.tir.compact import CompactBuffers
from dlc_core.passes.tir.cross_thread import LowerCrossThreadReduction
from dlc_core.passes.tir.flatten import FlattenBuffers, flatten_and_simplify
from dlc_core.passes.tir.hoist_conditions import HoistConditions
from dlc_core.passes.tir.launch_rest import LaunchRest
from dlc_core.passes.tir.legalize import LegalizeDtypes
from dlc_core.passes.tir.lower_blocks import LowerBlocks, lower_blocks
from dlc_core.passes.tir.narrow import NarrowIndices
from dlc_core.passes.tir.no_ops import RemoveNoOps
from dlc_core.passes.tir.note_overwrites import NoteOverwrites
from dlc_core.passes.tir.partition import PartitionLoops
from dlc_core.passes.tir.predict_cycles import PredictCycles
from dlc_core.passes.tir.prefetch import InjectPrefetches
from dlc_core.passes.tir.prove_bounds import ProveBounds
from dlc_core.passes.tir.prove_regions import ProveRegions
from dlc_core.passes.tir.registers import PromoteRegisters
from dlc_core.passes.tir.schedule_kernels import ScheduleKernels
from dlc_core.passes.tir.simplify import SimplifyTir
from dlc_core.passes.tir.software_pipeline import InjectSoftwarePipeline
from dlc_core.passes.tir.split_host_device import SplitHostDevice
from dlc_core.passes.tir.storage import StorageRewrite
from dlc_core.passes.tir.strided import GroupStrided
from dlc_core.passes.tir.thread_sync import ThreadSync
from dlc_core.passes.tir.unify_threads import UnifyThreadBinding
from dlc_core.passes.tir.unroll import UnrollLoops, unroll_loops
from dlc_core.passes.tir.unsafe_select import RewriteUnsafeSelect
from dlc_core.passes.tir.vectorize import VectorizeLoops, vectorize_loops
from dlc_core.passes.tir.virtual_threads import InjectVirtualThread
from dlc_core.passes.tir.workspace import HoistWorkspace, hoist_workspace

PASSES: tuple[type[Pass], ...] = (
    ScheduleKernels,
    LowerCrossThreadReduction,
    InjectSoftwarePipeline,
    UnifyThreadBinding,
    ProveRegions,
    CheckForeign,
    LowerBlocks,
    InjectVirtualThread,
    ThreadSync,
    BulkCopies,
    CheckBounds,
    FlattenBuffers,
    VectorizeLoops,
    UnrollLoops,
    GroupStrided,
    InjectPrefetches,
    PredictCycles,
    HoistWorkspace,
    NoteOverwrites,
    ProveBounds,
    LaunchRest,
    SplitHostDevice,
    CompactBuffers,
    SimplifyTir,
    RemoveNoOps,
    HoistConditions,
    PartitionLoops,
    RewriteUnsafeSelect,
    PromoteRegisters,
    StorageRewrite,
    NarrowIndices,
    LegalizeDtypes,
    CommonSubexpressions,
)

__all__ = [
    "PASSES",
    "PrimFuncPass",
    "flatten_and_simplify",
    "hoist_workspace",
    "lower_blocks",
    "map_prim_funcs",
    "prim_func_pass",
    "unroll_loops",
    "vectorize_loops",
]
