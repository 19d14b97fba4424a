"""Layouts of the codes of a group in bytes, for quantisation formats.

A layout has NumPy functions that pack and unpack codes, and an expression of one code, from which the inner
loop of a kernel reads it. `BitStream` is the usual one. A vendor's own layout is another class with the same
attributes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from dlc_core.diag import PluginError
from dlc_core.ir.expr import Expr, cast_to
from dlc_core.support.record import record

NDArray = np.ndarray[Any, Any]


class Layout(Protocol):
    """The arrangement of the codes of a group of `group` elements of `bits` bits."""

    def size(self, group: int, bits: int) -> int:
        """The bytes of a group."""
        ...

    def pack(self, codes: NDArray, bits: int) -> NDArray:
        """Pack codes [groups, group, columns] into bytes [groups, size, columns]."""
        ...

    def unpack(self, packed: NDArray, group: int, bits: int) -> NDArray:
        """The inverse of `pack`: uint8, or uint16 for more than 8 bits."""
        ...

    def axes(self, group: int, bits: int) -> tuple[int, ...]:
        """The extents of the loops over a group; their product is `group`, and their row-major index is the
        element's."""
        ...

    def code(self, byte: Callable[[Any], Expr], axes: Sequence[Expr], group: int, bits: int) -> Expr:
        """The code of the element at the loops' indices. `byte(i)` loads byte i of the group. Schedules need
        loads whose indices are linear in the loops' indices."""
        ...


@record(frozen=True)
class BitStream:
    """The codes one after the other, without gaps; the first code and its lowest bit are lowest in a byte.

    A group must end at the end of a byte. Elements of up to 16 bits; a period of elements (the fewest that
    end at the end of a byte) has at most 8 bytes.
    """

    def size(self, group: int, bits: int) -> int:
        if group * bits % 8:
            raise PluginError(f"a group of {group} codes of {bits} bits", why="it does not end with a byte")
        return group * bits // 8

    def pack(self, codes: NDArray, bits: int) -> NDArray:
        wide = codes.astype(np.uint16)[:, :, None, :] >> np.arange(bits, dtype=np.uint16)[:, None]
        single = (wide & 1).astype(np.uint8).reshape(codes.shape[0], -1, codes.shape[2])
        return np.packbits(single, axis=1, bitorder="little")

    def unpack(self, packed: NDArray, group: int, bits: int) -> NDArray:
        single = np.unpackbits(packed, axis=1, bitorder="little")
        single = single.reshape(packed.shape[0], group, bits, packed.shape[2]).astype(np.uint16)
        codes: NDArray = (single << np.arange(bits, dtype=np.uint16)[:, None]).sum(axis=2, dtype=np.uint16)
        return codes if bits > 8 else codes.astype(np.uint8)

    def axes(self, group: int, bits: int) -> tuple[int, ...]:
        period = 8 // math.gcd(bits, 8)
        return group // period, period

    def code(self, byte: Callable[[Any], Expr], axes: Sequence[Expr], group: int, bits: int) -> Expr:
        """The bytes of a period as one word, shifted and masked."""
        period, element = axes
        count = bits // math.gcd(bits, 8)
        kind = "int32" if count < 4 else "int64"
        word = cast_to(kind, byte(period * count))
        for i in range(1, count):
            word = word | (cast_to(kind, byte(period * count + i)) << 8 * i)
        if count * 8 > bits:
            word = (word >> cast_to(kind, element * bits)) & ((1 << bits) - 1)
        return cast_to("int32", word)


__all__ = ["BitStream", "Layout"]
