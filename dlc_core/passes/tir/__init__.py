"""Passes over PrimFuncs, from scheduled blocks to the plain loops that code generators read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dlc_core.passes.base import Pass, PassContext
from dlc_core.passes.tir.base import PrimFuncPass, map_prim_funcs
from dlc_core.passes.tir.flatten import flatten_and_simplify
from dlc_core.passes.tir.lower_blocks import lower_blocks
from dlc_core.passes.tir.schedule_kernels import ScheduleKernels
from dlc_core.passes.tir.unroll import unroll_loops
from dlc_core.passes.tir.vectorize import vectorize_loops
from dlc_core.passes.tir.workspace import hoist_workspace
from dlc_core.tir.stmt import PrimFunc

PARTS_PER_THREAD = 4
"""Parts of a loop with large temporaries, so that a late thread costs little."""


@dataclass(frozen=True)
class LowerBlocks(PrimFuncPass):
    """Blocks to plain loop nests."""

    name: ClassVar[str] = "lower_blocks"
    place: ClassVar[tuple[float, ...]] = (100,)

    def run_function(self, func: PrimFunc, context: PassContext) -> PrimFunc:
        return lower_blocks(func)


@dataclass(frozen=True)
class FlattenBuffers(PrimFuncPass):
    """Buffers to one dim, indices and conditions simplified under the loops' ranges."""

    name: ClassVar[str] = "flatten_buffers"
    place: ClassVar[tuple[float, ...]] = (200,)

    def run_function(self, func: PrimFunc, context: PassContext) -> PrimFunc:
        return flatten_and_simplify(func)


@dataclass(frozen=True)
class VectorizeLoops(PrimFuncPass):
    """Vectorised loops to vector expressions."""

    name: ClassVar[str] = "vectorize_loops"
    place: ClassVar[tuple[float, ...]] = (300,)

    def run_function(self, func: PrimFunc, context: PassContext) -> PrimFunc:
        return vectorize_loops(func)


@dataclass(frozen=True)
class UnrollLoops(PrimFuncPass):
    """Unrolled loops to their iterations."""

    name: ClassVar[str] = "unroll_loops"
    place: ClassVar[tuple[float, ...]] = (400,)

    def run_function(self, func: PrimFunc, context: PassContext) -> PrimFunc:
        return unroll_loops(func)


@dataclass(frozen=True)
class HoistWorkspace(PrimFuncPass):
    """Large temporaries to parameters."""

    name: ClassVar[str] = "hoist_workspace"
    place: ClassVar[tuple[float, ...]] = (500,)

    def run_function(self, func: PrimFunc, context: PassContext) -> PrimFunc:
        if context.target is None:
            return hoist_workspace(func)
        return hoist_workspace(func, PARTS_PER_THREAD * max(1, context.target.describe().cores))


PASSES: tuple[type[Pass], ...] = (
    ScheduleKernels,
    LowerBlocks,
    FlattenBuffers,
    VectorizeLoops,
    UnrollLoops,
    HoistWorkspace,
)

__all__ = ["PASSES", "PrimFuncPass", "map_prim_funcs"]
