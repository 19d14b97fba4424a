"""The writer of OpenCL C kernels: group sizes and memory fences, in addition to the C family."""

from __future__ import annotations

from dataclasses import replace

from dlc_backend_opencl.kind import AXES
from dlc_core.backend.kernels import group_extents
from dlc_core.backend.vectors import VectorWriter
from dlc_core.ir.buffer import Buffer
from dlc_core.tir.functor import exprs_of, loads_in, stmts
from dlc_core.tir.stmt import PrimFunc, Store, View

_BOTH = "barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE)"


class OpenclWriter(VectorWriter):
    """Writes a kernel in OpenCL C."""

    def kernel(self, func: PrimFunc, symbol: str) -> str:
        """The text of a PrimFunc that is one launch. A constant group size is an attribute, for
        the compiler.
        """
        sizes = group_extents(func)
        if sizes is not None:
            named = ", ".join(str(sizes.get(f"thread.{axis}", 1)) for axis in AXES)
            head = f"__attribute__((reqd_work_group_size({named})))\n{self.words.head}"
            self.words = replace(self.words, head=head)
        if _has_global_barrier(func):
            self.words = replace(self.words, words={**self.words.words, "barrier": _BOTH})
        return super().kernel(func, symbol)


def _has_global_barrier(func: PrimFunc) -> bool:
    """Whether a barrier must order accesses of the caller's memory by different threads."""
    roots: dict[Buffer, Buffer] = {b: b for b in func.buffers}
    written: set[Buffer | None] = set()
    read: set[Buffer | None] = set()
    for stmt in stmts(func.body):
        if isinstance(stmt, View) and stmt.base in roots:
            roots[stmt.buffer] = roots[stmt.base]
        if isinstance(stmt, Store):
            written.add(roots.get(stmt.buffer))
        read |= {roots.get(load.buffer) for load in loads_in(*exprs_of(stmt))}
    return bool((written & read) - {None})


__all__ = ["OpenclWriter"]
