"""What kernels in OpenCL C have besides those of the C family: the size of their groups, fences."""

from __future__ import annotations

from dataclasses import replace

from dlc_backend_opencl.kind import AXES, WIDEST
from dlc_core.backend.kernels import KernelWriter
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.dtype import DType
from dlc_core.ir.expr import const_value
from dlc_core.tir.functor import exprs_of, loads_in, stmts
from dlc_core.tir.stmt import For, PrimFunc, Store, View
from dlc_core.tir.threads import THREAD, level_of

_BOTH = "barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE)"


class OpenclWriter(KernelWriter):
    """Writes a kernel."""

    def _has_type(self, type_: DType, lanes: int) -> bool:
        return super()._has_type(type_, lanes) and type_.bits * lanes <= WIDEST

    def kernel(self, func: PrimFunc, symbol: str) -> str:
        """The text of a PrimFunc that is one launch; compilers know the size of groups where it is fixed."""
        sizes = _group(func)
        if sizes is not None:
            named = ", ".join(map(str, sizes))
            head = f"__attribute__((reqd_work_group_size({named})))\n{self.words.head}"
            self.words = replace(self.words, head=head)
        if _meets_in_global(func):
            self.words = replace(self.words, words={**self.words.words, "barrier": _BOTH})
        return super().kernel(func, symbol)


def _group(func: PrimFunc) -> tuple[int, ...] | None:
    """Threads of a group along each axis; None where that depends on the call."""
    sizes = dict.fromkeys(AXES, 1)
    for stmt in stmts(func.body):
        if isinstance(stmt, For) and stmt.kind == "thread" and level_of(stmt.thread) == THREAD:
            extent = const_value(stmt.extent)
            if not isinstance(extent, int) or extent < 1:
                return None
            axis = stmt.thread.removeprefix("thread.")
            sizes[axis] = max(sizes[axis], extent)
    return tuple(sizes.values())


def _meets_in_global(func: PrimFunc) -> bool:
    """Whether threads may read from the caller's memory what others wrote there."""
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
