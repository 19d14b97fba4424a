"""note_overwrites: find inputs of a kernel that may share memory with its outputs. The code does not
change."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from dlc_core.passes.base import PassContext
from dlc_core.passes.tir.base import PrimFuncPass
from dlc_core.support.record import record
from dlc_core.tir.in_place import OVERWRITES, overwritable
from dlc_core.tir.stmt import PrimFunc


@record(frozen=True)
class NoteOverwrites(PrimFuncPass):
    """Record pairs of an input and an output that may share memory, for the memory plan.

    It runs only for targets whose entry points are native code. Other targets allocate each value.

    Before:

        @T.prim_func
        def f(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
            for i in range(8):
                B[i] = A[i] + 1.0

    After:

        @T.prim_func
        def f(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
            T.func_attr({"overwrites": ((0, 1),)})
            for i in range(8):
                B[i] = A[i] + 1.0
    """

    name: ClassVar[str] = "note_overwrites"

    def run_function(self, func: PrimFunc, context: PassContext) -> PrimFunc:
        if context.target is not None and not context.target.describe().control:
            return func
        pairs = overwritable(func)
        return replace(func, attrs={**func.attrs, OVERWRITES: pairs}) if pairs else func


__all__ = ["NoteOverwrites"]
