"""Memory of a host program in C: which values share a slot of the workspace or of a device."""

from __future__ import annotations

from dlc_core.ir.expr import Expr, as_expr, const, const_value

ALIGN = 64


def rounded(size: Expr) -> Expr:
    """A number of bytes, rounded up to the alignment of slots."""
    known = const_value(size)
    if known is not None:
        return const(-(-int(known) // ALIGN) * ALIGN)
    return (size + (ALIGN - 1)) // ALIGN * ALIGN


class Slots:
    """Slots for values. A slot is reused after the last use of its value.

    A value of a constant size gets the free slot that fits best, or enlarges the largest one. A value of a
    symbolic size gets a slot of the same expression.
    """

    def __init__(self) -> None:
        self.sizes: list[Expr] = []
        self._free: list[int] = []

    def take(self, size: Expr) -> int:
        """A slot for a value of `size` bytes."""
        size = rounded(size)
        found = self._found(size)
        if found is None:
            self.sizes.append(size)
            return len(self.sizes) - 1
        self._free.remove(found)
        known = const_value(size)
        if known is not None and int(known) > self._bytes(found):
            self.sizes[found] = size
        return found

    def give(self, slot: int) -> None:
        """Free a slot."""
        self._free.append(slot)

    def _found(self, size: Expr) -> int | None:
        known = const_value(size)
        if known is None:
            return next((s for s in self._free if self.sizes[s] == size), None)
        fixed = [s for s in self._free if const_value(self.sizes[s]) is not None]
        fitting = [s for s in fixed if self._bytes(s) >= int(known)]
        if fitting:
            return min(fitting, key=self._bytes)
        return max(fixed, key=self._bytes, default=None)

    def _bytes(self, slot: int) -> int:
        return int(const_value(self.sizes[slot]) or 0)

    def offsets(self, first: Expr) -> tuple[list[Expr], Expr]:
        """The offset of each slot if they follow one another from `first` on, and the end of the last."""
        found, at = [], first
        for size in self.sizes:
            found.append(at)
            at = as_expr(at + size)
        return found, at


__all__ = ["ALIGN", "Slots", "rounded"]
