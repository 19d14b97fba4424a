"""Passes that treat every PrimFunc of a module by itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from dlc_core.ir.module import IRModule
from dlc_core.passes.base import Pass, PassContext
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
