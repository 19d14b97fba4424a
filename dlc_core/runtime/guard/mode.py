"""Guard mode: values are separated by protected pages, so that every access outside of a value is detected.

Every value (an input, an output, a constant, a value in the arena) has its own pages. It ends where its pages
end (mode `end`), or begins where they begin (mode `begin`). The pages between values are protected: an access
there ends the process. The rest of a value's pages, and memory that has not been written yet, hold a pattern:
NaN for floats, a large odd number for integers.

`Guard` describes the layout of the scratch memory and the weights of an executable, and is saved with it.
`Layout` is the layout of one block of memory with constant sizes, which `GuardedMemory` allocates.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from dlc_core.diag import UsageError
from dlc_core.ir.dtype import DType
from dlc_core.ir.expr import Expr, Var, const_value
from dlc_core.runtime.guard.failures import Site
from dlc_core.support.lazy import lazy
from dlc_core.support.record import record

if TYPE_CHECKING:
    from dlc_core import arith
else:
    arith = lazy("dlc_core.arith")

OFF, END, BEGIN = "off", "end", "begin"
MODES = (END, BEGIN)
GUARD = "guard"
"""The setting of pass contexts: one of the modes."""
PAGE = max(4096, mmap.PAGESIZE)
"""Bytes of a page here."""

NAN_BYTE = 0xFF
"""Floats that consist of this byte are NaN."""
INTEGER_BYTE = 0x6B
"""Integers that consist of this byte are large and odd."""


@record(frozen=True)
class Slot:
    """The position of a value in the scratch memory or in the weights: offset and size in bytes, which may be
    symbolic. `fill` is the byte that its memory consists of before it is written.
    """

    name: str
    offset: Expr
    size: Expr
    fill: int


@record(frozen=True)
class Guard:
    """The layout of an executable's values in guard mode."""

    mode: str
    page: int
    """The bytes of a page; no two values share a page."""
    align: int
    """The alignment in bytes that code for the target assumes for values, in addition to that of elements."""
    arena: tuple[Slot, ...] = ()
    weights: tuple[Slot, ...] = ()
    calls: tuple[Site, ...] = ()
    """The calls of kernels, in the order of their numbers, which begin with 1. In guard mode the record of
    failed checks has the number of the call that began last."""


@record(frozen=True)
class SizedSlot:
    """A slot with constant offset and size in bytes."""

    name: str
    offset: int
    size: int
    fill: int

    @property
    def end(self) -> int:
        return self.offset + self.size


@record(frozen=True)
class Layout:
    """The layout of `size` bytes of memory that begin at a page boundary. Only the pages of slots may be
    accessed. `begin` is the offset of the address that the user of the memory gets.
    """

    size: int
    slots: tuple[SizedSlot, ...]
    begin: int = 0
    calls: tuple[Site, ...] = ()
    """The calls of kernels that the numbers in the record at the beginning of this memory refer to."""

    def pages(self) -> Iterator[tuple[SizedSlot, int, int]]:
        """Each slot in order of offsets, with the begin and end offsets of its pages."""
        for slot in sorted(self.slots, key=lambda one: one.offset):
            yield slot, slot.offset // PAGE * PAGE, -(-slot.end // PAGE) * PAGE


def mode_of(text: str) -> str | None:
    """The mode that the setting selects; None if guard mode is off."""
    if text in ("", OFF, "0"):
        return None
    mode = END if text == "1" else text
    if mode not in MODES:
        raise UsageError(f"guard is {text!r}", hint=f"one of {OFF}, {', '.join(MODES)}")
    return mode


def fill_of(dtype: DType) -> int:
    """The fill byte for values of a dtype."""
    return NAN_BYTE if dtype.is_float else INTEGER_BYTE


def padding_before(size: int, mode: str, align: int, page: int = PAGE) -> int:
    """The bytes from the beginning of a value's first page to the value."""
    return 0 if mode == BEGIN else -(-size // page) * page - -(-size // align) * align


def single_value_layout(name: str, size: int, fill: int, mode: str, align: int) -> Layout:
    """The layout of one value."""
    padding = padding_before(size, mode, align)
    return Layout(padding + size, (SizedSlot(name, padding, size, fill),), padding)


def sized_slots(slots: Sequence[Slot], sizes: Mapping[Var, int]) -> tuple[SizedSlot, ...]:
    """The slots with the values of symbolic dims inserted."""
    return tuple(SizedSlot(s.name, _size_of(s.offset, sizes), _size_of(s.size, sizes), s.fill) for s in slots)


def _size_of(size: Expr, sizes: Mapping[Var, int]) -> int:
    constant = const_value(size)
    return int(arith.eval_expr(size, sizes) if constant is None else constant)


__all__ = [
    "BEGIN",
    "END",
    "GUARD",
    "MODES",
    "OFF",
    "PAGE",
    "Guard",
    "Layout",
    "SizedSlot",
    "Slot",
    "fill_of",
    "mode_of",
    "padding_before",
    "single_value_layout",
    "sized_slots",
]
