"""prove_regions: prove that the memory that blocks pass to external functions is inside the program's
buffers."""

from __future__ import annotations

from typing import ClassVar

from dlc_core.diag import ScheduleError
from dlc_core.ir.expr import const_value
from dlc_core.passes.base import PassContext
from dlc_core.passes.tir.base import PrimFuncPass
from dlc_core.passes.tir.bounds import prove_regions
from dlc_core.support.record import record
from dlc_core.tir.stmt import PrimFunc

REGIONS = "regions"
"""The attribute of a PrimFunc: the number of regions of blocks that are proved to be inside their buffers."""


@record(frozen=True)
class ProveRegions(PrimFuncPass):
    """Prove that declared regions are inside their buffers, for blocks that pass addresses to an intrinsic or
    an external function.

    Such a block may access the regions that it declares. The pass proves for all sizes that these regions are
    inside their buffers, and that the addresses are inside the regions. Without a proof it raises
    ScheduleError, because the intrinsic might access memory outside the buffer.

    Before:

        @T.prim_func
        def f(A: T.Buffer((64,), "float32")):
            for i in range(4):
                with T.block("tile"):
                    v = T.axis.spatial(4, i)
                    T.reads()
                    T.writes(A[v * 16 : v * 16 + 16])
                    T.evaluate(T.call_extern("fill16", T.address_of(A[v * 16]), dtype="int32"))

    After:

        @T.prim_func
        def f(A: T.Buffer((64,), "float32")):
            T.func_attr({"regions": 1})
            for i in range(4):
                with T.block("tile"):
                    v = T.axis.spatial(4, i)
                    T.reads()
                    T.writes(A[v * 16 : v * 16 + 16])
                    T.evaluate(T.call_extern("fill16", T.address_of(A[v * 16]), dtype="int32"))
    """

    name: ClassVar[str] = "prove_regions"

    def run_function(self, func: PrimFunc, context: PassContext) -> PrimFunc:
        found = prove_regions(func)
        if found.open:
            first = found.open[0]
            is_symbolic = first.when is not None and const_value(first.when) is None
            where = f", which is inside if {first.when}" if is_symbolic else ""
            raise ScheduleError(
                f"{func.name}: accesses of an external function are not proved to be inside the buffer",
                why=f"{first}{where}",
                hint="split loops so that only whole tiles are tensorized, or pad the buffer",
            )
        return func.with_attrs(**{REGIONS: found.proved}) if found.proved else func


__all__ = ["REGIONS", "ProveRegions"]
