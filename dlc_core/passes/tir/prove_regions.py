"""prove_regions: what blocks pass to functions outside of the program lies in its buffers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dlc_core.diag import ScheduleError
from dlc_core.ir.expr import const_value
from dlc_core.passes.base import PassContext
from dlc_core.passes.tir.base import PrimFuncPass
from dlc_core.passes.tir.bounds import prove_regions
from dlc_core.tir.stmt import PrimFunc

REGIONS = "regions"
"""The attribute of a PrimFunc: how many regions of blocks are proved to lie in their buffers."""


@dataclass(frozen=True)
class ProveRegions(PrimFuncPass):
    """A block that passes addresses to an intrinsic or a function outside of the module touches the regions
    that it declares: these are proved to lie in their buffers, for all sizes, and the addresses in them.

    ScheduleError where that is not proved: the intrinsic would touch what lies beside the buffer.
    """

    name: ClassVar[str] = "prove_regions"
    place: ClassVar[tuple[float, ...]] = (95,)

    def run_function(self, func: PrimFunc, context: PassContext) -> PrimFunc:
        found = prove_regions(func)
        if found.open:
            first = found.open[0]
            known = first.when is not None and const_value(first.when) is None
            where = f", which lies inside where {first.when}" if known else ""
            raise ScheduleError(
                f"{func.name}: what a function outside of it touches is not proved to lie in its buffer",
                why=f"{first}{where}",
                hint="split loops so that only whole tiles are tensorized, or pad the buffer",
            )
        return func.with_attrs(**{REGIONS: found.proved}) if found.proved else func


__all__ = ["REGIONS", "ProveRegions"]
