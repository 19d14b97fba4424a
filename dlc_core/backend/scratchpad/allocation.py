"""Placement of tiles in a scratchpad, by live ranges, with banks and alignment.

    place([Request("a", 4096, 0, 5), Request("b", 4096, 6, 9)], scope)     -> (0, 0)      disjoint live ranges
    place([Request("a", 4096, 0, 5), Request("b", 4096, 3, 9)], scope)     -> (0, 4096)

A tile takes whole banks, so that a copy to one tile and a computation on another one do not meet in a bank.
Tiles that do not fit in this way share banks: the slots of one allocation alternate between banks, and a tile
spans consecutive banks if no bank has room for it.
"""

from __future__ import annotations

from collections.abc import Sequence

from dlc_core.support.record import record
from dlc_core.target.units import MemoryScope


@record(frozen=True)
class Request:
    """A tile of `size` bytes that is in use from step `begin` to step `end`, both included."""

    name: str
    size: int
    begin: int
    end: int
    align: int = 1
    slot: int = 0
    """The number of the slot among those of its allocation, which take turns."""


def place(requests: Sequence[Request], scope: MemoryScope, in_banks: bool = True) -> tuple[int, ...] | None:
    """The offset of each tile. Tiles whose live ranges overlap are disjoint. None if they do not fit.

    With `in_banks` each tile has banks of its own, if the scope has several. Without, tiles share banks: slot
    0 of an allocation goes to the first bank if there is room, slot 1 to the second, and so on. Larger tiles
    are placed first, each at the lowest offset that is free.
    """
    if in_banks or scope.banks == 1 or not scope.bytes:
        return _placed(requests, scope, in_banks and scope.banks > 1, False)
    return _placed(requests, scope, False, True) or _placed(requests, scope, False, False)


def _placed(
    requests: Sequence[Request], scope: MemoryScope, in_banks: bool, alternate: bool
) -> tuple[int, ...] | None:
    found: dict[int, tuple[int, int]] = {}
    order = sorted(range(len(requests)), key=lambda i: (-requests[i].size, requests[i].begin, i))
    for i in order:
        own = requests[i]
        unit = scope.bank_bytes if in_banks else max(scope.align, own.align)
        size = -(-own.size // unit) * unit if in_banks else own.size
        busy = [
            span for j, span in found.items() if requests[j].begin <= own.end and own.begin <= requests[j].end
        ]
        first = scope.bank_bytes * (own.slot % scope.banks) if alternate else 0
        edges = {0, first, *(end for _, end in busy)}
        starts = sorted(-(-start // unit) * unit for start in edges)
        free = [s for s in starts if all(s + size <= low or s >= high for low, high in busy)]
        wanted = [s for s in free if first <= s and s + size <= first + scope.bank_bytes] if alternate else []
        offset = next(iter([*wanted, *free]), 0)
        if scope.bytes and offset + size > scope.bytes:
            return None
        found[i] = offset, offset + size
    return tuple(found[i][0] for i in range(len(requests)))


def place_next(requests: Sequence[Request], size: int) -> tuple[int, ...] | Request:
    """The offset of each tile in a memory of `size`, next to the tile before it if there is room.

    For tiles in the order of their first use, of which nothing else is known: loads of a tile then run while
    an earlier one is in use, where both fit. Returns the first request that does not fit.
    """
    found: list[int] = []
    last = 0
    for number, own in enumerate(requests):
        busy = [
            (offset, offset + other.size)
            for other, offset in zip(requests[:number], found, strict=True)
            if other.end >= own.begin
        ]
        free = (
            start
            for start in (last, 0, *(end for _, end in busy))
            if start + own.size <= size
            and all(start + own.size <= low or start >= high for low, high in busy)
        )
        offset = next(free, None)
        if offset is None:
            return own
        found.append(offset)
        last = offset + own.size
    return tuple(found)


def aligned(size: int, scope: MemoryScope) -> int:
    """The bytes that a tile of `size` bytes takes if it shares banks with others."""
    return -(-size // scope.align) * scope.align


def needed(requests: Sequence[Request]) -> int:
    """The most bytes that are in use at once, without alignment."""
    return max((sum(r.size for r in requests if r.begin <= at.begin <= r.end) for at in requests), default=0)


__all__ = ["Request", "aligned", "needed", "place", "place_next"]
