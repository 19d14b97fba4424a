"""prove_bounds: ensure that every access is inside its buffer, by a proof or by a check at run time."""

from __future__ import annotations

from typing import ClassVar

from dlc_core.passes.base import PassContext
from dlc_core.passes.tir.base import PrimFuncPass
from dlc_core.passes.tir.bounds import prove, with_access_checks, with_index_checks, with_own_checks
from dlc_core.passes.tir.prove_regions import REGIONS
from dlc_core.support.record import record
from dlc_core.tir.stmt import PrimFunc

BOUNDS = "bounds"
"""The attribute of a PrimFunc: the numbers of accesses that are proved and that are checked at run time."""


@record(frozen=True)
class ProveBounds(PrimFuncPass):
    """Prove that every access is inside its buffer, from the ranges of loops, conditions and sizes. Accesses
    without a proof are checked at run time.

    Indices that are data (`report_index`) are checked too; negative ones count from the end, as in ONNX. If
    the setting `check_indices` is off, indices out of range are clamped instead. A failed check is written to
    the record `failure`, which becomes a parameter, and the call fails.

    Before:

        @T.prim_func
        def f(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
            for i in range(8):
                B[i] = A[i * 2 % 8] + A[i * 3 % 11]

    After:

        @T.prim_func
        def f(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32"), failure: T.Buffer((4,), "int64"),
              site: T.int64):
            T.func_attr({"checks": {1: "access: f loads A[i * 3 % 11] of A: float32[8]"}, "bounds": (2, 1)})
            for i in range(8):
                if i * 3 % 11 >= 0 and i * 3 % 11 < 8:
                    B[i] = A[i * 2 % 8] + A[i * 3 % 11]
                elif failure[0] == 0:
                    failure[1] = i * 3 % 11
                    failure[2] = 8
                    failure[0] = site + 1
    """

    name: ClassVar[str] = "prove_bounds"
    settings: ClassVar[tuple[str, ...]] = ("check_indices",)

    def run_function(self, func: PrimFunc, context: PassContext) -> PrimFunc:
        func = with_index_checks(with_own_checks(func), bool(context.config.get("check_indices", True)))
        found = prove(func)
        vectors = context.target is None or context.target.describe().vector_bits > 0
        checked = with_access_checks(func, found.open, versions=True, vectors=vectors)
        proved = found.proved + func.attrs.get(REGIONS, 0)
        return checked.with_attrs(**{BOUNDS: (proved, len(found.open))})


__all__ = ["BOUNDS", "ProveBounds"]
