"""A debugging mode that checks at run time every index that is not proved to be within its dim.

The pass `prove_bounds` always keeps accesses inside their buffers. This pass is stricter. It runs before
buffers are flattened and checks the index of each dim, so it also finds an index that reaches past the end of
a row into the next row. A statement with an index out of range is not executed, and the call fails. The error
names program, buffer, access, index and extent. Loops and temporaries stay as they are.
"""

from __future__ import annotations

from typing import ClassVar

from dlc_core.passes.base import PassContext
from dlc_core.passes.tir.base import PrimFuncPass
from dlc_core.passes.tir.bounds import prove, with_access_checks
from dlc_core.support.record import record
from dlc_core.tir.stmt import PrimFunc


@record(frozen=True)
class CheckBounds(PrimFuncPass):
    """Check at run time all indices that are not proved to be within their dims.

    It runs if the setting `check_bounds` is on. A failed check is written to the record `failure`, which
    becomes a parameter.

    Before:

        @T.prim_func
        def f(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32"), n: T.int64):
            for i in range(8):
                B[i] = A[i + n]

    After:

        @T.prim_func
        def f(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32"), failure: T.Buffer((4,), "int64"),
              n: T.int64, site: T.int64):
            T.func_attr({"checks": {1: "access: f loads A[i + n] of A: float32[8]"}})
            for i in range(8):
                if i + n >= 0 and i + n < 8:
                    B[i] = A[i + n]
                elif failure[0] == 0:
                    failure[1] = i + n
                    failure[2] = 8
                    failure[0] = site + 1
    """

    name: ClassVar[str] = "check_bounds"
    setting: ClassVar[str] = "check_bounds"

    def run_function(self, func: PrimFunc, context: PassContext) -> PrimFunc:
        vectors = context.target is None or context.target.describe().vector_bits > 0
        return with_access_checks(func, prove(func).open, vectors=vectors)


__all__ = ["CheckBounds"]
