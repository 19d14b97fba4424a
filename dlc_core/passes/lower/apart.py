"""Memory planning in guard mode: every value has its own pages, and there is a protected page between two
values.

    | record | page | value 0, as many pages as it takes | page | value 1 … | page |

A value ends where its pages end, or begins where they begin (see `runtime.guard.mode`). Values do not reuse
memory. After the last step that reads a value, its memory is filled with the initial pattern again.
"""

from __future__ import annotations

from collections.abc import Sequence

from dlc_core.ir.buffer import Buffer
from dlc_core.ir.dtype import DType
from dlc_core.ir.expr import Expr, Var, const
from dlc_core.passes.base import PassContext
from dlc_core.passes.lower.arena import Request
from dlc_core.runtime.guard.failures import Site
from dlc_core.runtime.guard.mode import BEGIN, GUARD, PAGE, Guard, Slot, fill_of
from dlc_core.support.record import record
from dlc_core.target.description import Description
from dlc_core.tir.stmt import For, Stmt, Store


@record(frozen=True)
class Apart:
    """The mode, and the bytes that addresses of values are multiples of."""

    mode: str
    align: int
    notes: bool
    """Whether entries note which call they make: where they do more than launch kernels."""

    @staticmethod
    def of(context: PassContext, machine: Description | None) -> Apart | None:
        """Return the guard settings of a compile; None outside of guard mode."""
        mode = context.config.get(GUARD)
        if mode is None:
            return None
        if machine is None:
            return Apart(mode, 1, notes=True)
        return Apart(mode, machine.access_align, notes=not machine.thread_axes)

    def align_of(self, dtype: DType) -> int:
        """Return the alignment of values of a dtype in bytes."""
        return max(self.align, dtype.itemsize)

    def span(self, size: Expr) -> Expr:
        """Return the bytes of the pages that hold a value."""
        return (size + (PAGE - 1)) // PAGE * PAGE

    def lead(self, size: Expr) -> Expr:
        """Return the bytes before a value in its first page."""
        if self.mode == BEGIN:
            return const(0)
        taken = size if self.align == 1 else (size + (self.align - 1)) // self.align * self.align
        return self.span(size) - taken

    def plan(self, sizes: Sequence[Expr], begin: int = 0) -> tuple[list[Expr], Expr]:
        """Return the byte offset of each value, and their end. A guard page at `begin` comes first."""
        offsets: list[Expr] = []
        at: Expr = const(begin + PAGE)
        for size in sizes:
            offsets.append(at + self.lead(size))
            at = at + self.span(size) + PAGE
        return offsets, at

    def allocate(self, requests: Sequence[Request]) -> tuple[list[Expr], Expr]:
        """Return the byte offset of each request of a memory plan, and the total bytes."""
        return self.plan([request.size for request in requests])

    def pair(self, size: Expr) -> tuple[Expr, Expr]:
        """Return the bytes of two values of equal size with a guard page between, and their distance."""
        step = self.span(size) + PAGE
        return step + self.span(size), step

    def refilled(self, arena: Buffer, slots: Sequence[Slot]) -> list[Stmt]:
        """Return statements that overwrite dead values, for entries that do more than launch kernels."""
        if not self.notes:
            return []
        found: list[Stmt] = []
        for one in slots:
            i = Var("i")
            found.append(
                For(i, const(0), one.size, Store(arena, (one.offset + i,), const(one.fill, "uint8")))
            )
        return found

    def guard(self, slots: Sequence[Slot], calls: Sequence[Site]) -> Guard:
        """Return the guard description for the caller of an entry, without its constants."""
        return Guard(self.mode, PAGE, self.align, tuple(slots), (), tuple(calls))


def slot(name: str, offset: Expr, size: Expr, dtype: DType) -> Slot:
    """Return the slot of a value."""
    return Slot(name, offset, size, fill_of(dtype))


__all__ = ["PAGE", "Apart", "slot"]
