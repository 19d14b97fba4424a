"""Passes over PrimFuncs, from scheduled blocks to the plain loops that code generators read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from dlc_core.ir.module import IRModule
from dlc_core.passes.base import Pass, PassContext
from dlc_core.passes.tir.flatten import flatten_and_simplify
from dlc_core.passes.tir.lower_blocks import lower_blocks
from dlc_core.passes.tir.unroll import unroll_loops
from dlc_core.passes.tir.vectorize import vectorize_loops
from dlc_core.passes.tir.workspace import hoist_workspace
from dlc_core.tir.stmt import PrimFunc


def map_prim_funcs(module: IRModule, change: Callable[[PrimFunc], PrimFunc]) -> IRModule:
    """The module with `change` applied to each PrimFunc."""
    return module.with_functions({name: change(f) for name, f in module.of_kind(PrimFunc).items()})


@dataclass(frozen=True)
class PrimFuncPass(Pass):
    """A pass that treats every PrimFunc by itself."""

    stage: ClassVar[str] = "tir"

    def run_function(self, func: PrimFunc, context: PassContext) -> PrimFunc:
        """The new program."""
        raise NotImplementedError(f"{type(self).__name__}.run_function")

    def run(self, module: IRModule, context: PassContext) -> IRModule:
        return map_prim_funcs(module, lambda func: self.run_function(func, context))


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
        return hoist_workspace(func)


PASSES: tuple[type[Pass], ...] = (LowerBlocks, FlattenBuffers, VectorizeLoops, UnrollLoops, HoistWorkspace)
