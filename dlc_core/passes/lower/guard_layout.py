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
class GuardLayout:
    """The mode, and the alignment of values in bytes."""

    mode: str
    align: int
    numbers_calls: bool
    """Whether entries record the number of each call. Those that only launch kernels do not."""

    @staticmethod
    def of(context: PassContext, machine: Description | None) -> GuardLayout | None:
        """Return the guard settings of a compile; None outside of guard mode."""
        mode = context.config.get(GUARD)
        if mode is None:
            return None
        if machine is None:
            return GuardLayout(mode, 1, numbers_calls=True)
        return GuardLayout(mode, machine.access_align, numbers_calls=not machine.thread_axes)

    def align_of(self, dtype: DType) -> int:
        """Return the alignment of values of a dtype in bytes."""
        return max(self.align, dtype.itemsize)

    def page_bytes(self, size: Expr) -> Expr:
        """Return the bytes of the pages that hold a value."""
        return (size + (PAGE - 1)) // PAGE * PAGE

    def padding_before(self, size: Expr) -> Expr:
        """Return the bytes before a value in its first page."""
        if self.mode == BEGIN:
            return const(0)
        aligned = size if self.align == 1 else (size + (self.align - 1)) // self.align * self.align
        return self.page_bytes(size) - aligned

    def plan(self, sizes: Sequence[Expr], begin: int = 0) -> tuple[list[Expr], Expr]:
        """Return the byte offset of each value, and their end. A guard page at `begin` comes first."""
        offsets: list[Expr] = []
        offset: Expr = const(begin + PAGE)
        for size in sizes:
            offsets.append(offset + self.padding_before(size))
            offset = offset + self.page_bytes(size) + PAGE
        return offsets, offset

    def allocate(self, requests: Sequence[Request]) -> tuple[list[Expr], Expr]:
        """Return the byte offset of each request of a memory plan, and the total bytes."""
        return self.plan([request.size for request in requests])

    def pair(self, size: Expr) -> tuple[Expr, Expr]:
        """Return the bytes of two values of equal size with a guard page between, and their distance."""
        step = self.page_bytes(size) + PAGE
        return step + self.page_bytes(size), step

    def refills(self, arena: Buffer, slots: Sequence[Slot]) -> list[Stmt]:
        """Return statements that overwrite dead values, for entries that do more than launch kernels."""
        if not self.numbers_calls:
            return []
        found: list[Stmt] = []
        for one in slots:
            i = Var("i")
            found.append(
                For(i, const(0), one.size, Store(arena, (one.offset + i,), const(one.fill, "uint8")))
            )
        return found

    def description(self, slots: Sequence[Slot], calls: Sequence[Site]) -> Guard:
        """Return the guard description for the caller of an entry, without its constants."""
        return Guard(self.mode, PAGE, self.align, tuple(slots), (), tuple(calls))


def slot(name: str, offset: Expr, size: Expr, dtype: DType) -> Slot:
    """Return the slot of a value."""
    return Slot(name, offset, size, fill_of(dtype))


__all__ = ["PAGE", "GuardLayout", "slot"]
