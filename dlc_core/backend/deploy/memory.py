"""Memory of a host program in C: which values share a slot of the workspace or of a device."""

from __future__ import annotations

from collections.abc import Mapping

from dlc_core.backend.deploy.dims import scalars_of
from dlc_core.backend.deploy.values import tensors
from dlc_core.graph.node import Node
from dlc_core.ir.expr import Expr, as_expr, const, const_value, maximum
from dlc_core.runtime.guard.failures import Site
from dlc_core.runtime.interface.signature import Signature

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


class Memory:
    """The memory that all blocks of a program share. `signatures` are those of segments and regions,
    `devices` are the devices of regions, `base` is the address of the weights.
    """

    def __init__(self, signatures: Mapping[str, Signature], devices: Mapping[str, int], base: int) -> None:
        self.signatures = signatures
        self.devices = devices
        self.base = base
        self.regions = {name: i for i, name in enumerate(devices)}
        self.host = Slots()
        self.frame: list[int] = []
        """The device of each slot of the frame."""
        self.constants: list[tuple[int, int, int]] = []
        self.sites: list[Site] = []
        self.native_arena: int | None = None
        """The slot for the scratch memory of native segments."""
        self._first_sites: dict[str, int] = {}
        self._native_size: Expr = const(0)
        self._free: dict[int, list[tuple[Expr, int]]] = {}
        """The free slots of the frame by device, with the size of their last value."""
        self._sizes: list[Expr] = []
        self._arenas: dict[int, int] = {}

    def call(self, n: Node) -> None:
        """Take note of a call, before all blocks."""
        symbol = n.attrs["symbol"]
        if symbol not in self.devices:
            self._native_size = maximum(self._native_size, self.call_sizes(n)[1])
        if symbol not in self._first_sites:
            self._first_sites[symbol] = len(self.sites)
            self.sites += self.signatures[symbol].sites

    def begin(self) -> None:
        """Allocate what all blocks use."""
        if const_value(self._native_size) != 0:
            self.native_arena = self.host.take(self._native_size)

    def first_site(self, symbol: str) -> int | None:
        """The number of the first kernel with checks of a segment or region; None without checks."""
        return self._first_sites[symbol] if self.signatures[symbol].sites else None

    def call_sizes(self, n: Node) -> tuple[tuple[Expr, ...], Expr]:
        """The integers of a call, and the bytes of its scratch memory."""
        given = [t for arg in n.args for t in tensors(arg.type)]
        return scalars_of(self.signatures[n.attrs["symbol"]], given, n.attrs["symbol"])

    def take(self, device: int, size: Expr) -> int:
        """A slot of the frame. It grows to the largest value of a call."""
        free = self._free.setdefault(device, [])
        found = next((each for each in free if each[0] == size), free[0] if free else None)
        if found is not None:
            free.remove(found)
            slot = found[1]
            self._sizes[slot] = size
            return slot
        return self._new_slot(device, size)

    def give(self, device: int, slot: int) -> None:
        """Free a slot of the frame."""
        self._free.setdefault(device, []).append((self._sizes[slot], slot))

    def arena(self, device: int, size: Expr) -> int:
        """The slot for scratch memory of a device. Its launches do not overlap, so one is enough."""
        if device not in self._arenas:
            self._arenas[device] = self._new_slot(device, size)
        return self._arenas[device]

    def constant(self, device: int, offset: int, size: int) -> int:
        """The number of a constant that regions of a device read."""
        entry = (device, offset, size)
        if entry not in self.constants:
            self.constants.append(entry)
        return self.constants.index(entry)

    def _new_slot(self, device: int, size: Expr) -> int:
        self.frame.append(device)
        self._sizes.append(size)
        return len(self.frame) - 1


__all__ = ["ALIGN", "Memory", "Slots", "rounded"]
