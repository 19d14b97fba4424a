"""Replace loop nests that a schedule marked as tensor copies by calls of the machine's copy instruction.

`schedule/bulk.py` defines which nests qualify.
"""

from __future__ import annotations

from typing import ClassVar

from dlc_core.ir.expr import logical_and
from dlc_core.passes.tir.thread_base import ThreadPass
from dlc_core.passes.tir.walk import Walker
from dlc_core.schedule.loops import guarded
from dlc_core.schedule.tensor_copy import BULK_COPY, tensor_copy_in_loop
from dlc_core.support.record import record
from dlc_core.tir.stmt import Eval, For, PrimFunc, Stmt
from dlc_core.tir.tensor_copy import TensorCopy, bulk_copy


class _CopyReplacer(Walker):
    def loop(self, s: For) -> Stmt:
        found = tensor_copy_in_loop(s, self.analyzer) if s.annotations.get(BULK_COPY) else ""
        if not isinstance(found, TensorCopy):
            return super().loop(s)
        made = Eval(bulk_copy(found))
        return guarded(made, logical_and(*found.conditions)) if found.conditions else made


@record(frozen=True)
class BulkCopies(ThreadPass):
    """Replace annotated loop nests by tensor copies. A nest that no longer has the form of a copy is kept."""

    name: ClassVar[str] = "bulk_copies"

    def change(self, func: PrimFunc) -> PrimFunc:
        return _CopyReplacer(func).rebuilt()


__all__ = ["BulkCopies"]
