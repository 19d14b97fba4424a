"""Shrink temporaries and move them into inner loops: `schedule.compact` as a pass."""

from __future__ import annotations

from typing import ClassVar

from dlc_core.passes.base import PassContext
from dlc_core.passes.tir.base import PrimFuncPass
from dlc_core.schedule.compact import compact_buffer_allocation
from dlc_core.support.record import record
from dlc_core.tir.stmt import PrimFunc


@record(frozen=True)
class CompactBuffers(PrimFuncPass):
    """Move each allocation into the innermost loop that contains all its uses, and shrink it to the region
    that is accessed there.

    Before:

        @T.prim_func
        def f(A: T.Buffer((16, 16), "float32"), B: T.Buffer((16, 16), "float32")):
            t = T.alloc_buffer((16, 16), "float32")
            for i in range(16):
                for j in range(16):
                    with T.block("t"):
                        vi, vj = T.axis.remap("SS", [i, j])
                        T.reads(A[vi, vj])
                        T.writes(t[vi, vj])
                        t[vi, vj] = A[vi, vj] * T.float32(2.0)
                for j in range(16):
                    with T.block("B"):
                        vi, vj = T.axis.remap("SS", [i, j])
                        T.reads(t[vi, vj])
                        T.writes(B[vi, vj])
                        B[vi, vj] = t[vi, vj] + T.float32(1.0)

    After:

        @T.prim_func
        def f(A: T.Buffer((16, 16), "float32"), B: T.Buffer((16, 16), "float32")):
            for i in range(16):
                t = T.alloc_buffer((1, 16), "float32")
                for j in range(16):
                    with T.block("t"):
                        vi, vj, v_t_0 = T.axis.remap("SSS", [i, j, i])
                        T.reads(A[vi, vj])
                        T.writes(t[vi - v_t_0, vj])
                        t[vi - v_t_0, vj] = A[vi, vj] * T.float32(2.0)
                for j in range(16):
                    with T.block("B"):
                        vi, vj, v_t_0 = T.axis.remap("SSS", [i, j, i])
                        T.reads(t[vi - v_t_0, vj])
                        T.writes(B[vi, vj])
                        B[vi, vj] = t[vi - v_t_0, vj] + T.float32(1.0)
    """

    name: ClassVar[str] = "compact_buffers"

    def run_function(self, func: PrimFunc, context: PassContext) -> PrimFunc:
        return compact_buffer_allocation(func)


__all__ = ["CompactBuffers"]
