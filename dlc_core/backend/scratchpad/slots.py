"""The addresses of tiles: the tiles of one allocation take turns in slots.

With several slots, a copy for a later iteration runs while units use the tile of an earlier one. Each
allocation gets as many slots as it has tiles, up to `MOST_SLOTS`, as long as all fit; small ones come first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dlc_core.backend.scratchpad.allocation import Request, needed, place
from dlc_core.diag import CodegenError
from dlc_core.ir.buffer import Buffer
from dlc_core.support.record import record
from dlc_core.target.description import Description

MOST_SLOTS = 4
"""The most tiles of one allocation that exist at once."""


@record(frozen=True)
class Tile:
    """One execution of an allocation: its kernel call, its buffer, and the commands that use it."""

    call: int
    kernel: str
    buffer: Buffer
    size: int
    first: int
    last: int


def place_tiles(tiles: Mapping[int, Tile], machine: Description) -> tuple[dict[int, int], dict[str, int]]:
    """The address of each tile, and the number of slots of each buffer. Calls are placed one by one."""
    found: dict[int, int] = {}
    slots: dict[str, int] = {}
    groups: dict[tuple[int, str], list[int]] = {}
    for number, tile in tiles.items():
        groups.setdefault((tile.call, tile.buffer.scope), []).append(number)
    for (_, scope_name), numbers in groups.items():
        own = {number: tiles[number] for number in sorted(numbers)}
        sites: dict[Buffer, list[int]] = {}
        for number, tile in own.items():
            sites.setdefault(tile.buffer, []).append(number)
        counts = dict.fromkeys(sites, 1)
        in_banks = _try(own, sites, counts, machine, scope_name, True) is not None
        best = _try(own, sites, counts, machine, scope_name, in_banks)
        if best is None:
            raise _too_large(own, sites, machine, scope_name)
        by_size = sorted(sites, key=lambda b: own[sites[b][0]].size)
        scope = machine.scope(scope_name)
        # In shared banks, two slots of each buffer keep the tiles of one step in one bank.
        most = MOST_SLOTS if in_banks or scope is None or scope.banks == 1 else 2
        for depth in range(2, most + 1):
            for buffer in by_size:
                if len(sites[buffer]) < depth or counts[buffer] < depth - 1:
                    continue
                made = _try(own, sites, {**counts, buffer: depth}, machine, scope_name, in_banks)
                if made is not None:
                    best, counts[buffer] = made, depth
        found.update(best)
        for buffer, count in counts.items():
            slots[f"{own[sites[buffer][0]].kernel}.{buffer.name}"] = count
    return found, slots


def _requests(
    tiles: Mapping[int, Tile], sites: Mapping[Buffer, Sequence[int]], counts: Mapping[Buffer, int]
) -> list[tuple[list[int], Request]]:
    """The slots: the tiles that take turns in each, and when the slot is in use."""
    made = []
    for buffer, numbers in sites.items():
        for slot in range(counts[buffer]):
            own = list(numbers[slot :: counts[buffer]])
            begin, end = min(tiles[n].first for n in own), max(tiles[n].last for n in own)
            size = tiles[own[0]].size
            made.append((own, Request(buffer.name, size, begin, end, buffer.align, slot)))
    return made


def _try(
    tiles: Mapping[int, Tile],
    sites: Mapping[Buffer, Sequence[int]],
    counts: Mapping[Buffer, int],
    machine: Description,
    scope_name: str,
    in_banks: bool,
) -> dict[int, int] | None:
    """The addresses with a number of slots for each buffer; None if they do not fit."""
    scope = machine.scope(scope_name)
    if scope is None:
        known = ", ".join(machine.scope_names)
        raise CodegenError(f"there is no memory {scope_name!r}", hint=f"scopes: {known}")
    requests = _requests(tiles, sites, counts)
    offsets = place([request for _, request in requests], scope, in_banks)
    if offsets is None:
        return None
    return {n: offset for (own, _), offset in zip(requests, offsets, strict=True) for n in own}


def _too_large(
    tiles: Mapping[int, Tile], sites: Mapping[Buffer, Sequence[int]], machine: Description, scope_name: str
) -> CodegenError:
    first = next(iter(tiles.values()))
    requests = [request for _, request in _requests(tiles, sites, dict.fromkeys(sites, 1))]
    largest = max(requests, key=lambda r: r.size)
    capacity = machine.capacities.get(scope_name, 0)
    return CodegenError(
        f"{first.kernel}: its tiles need {needed(requests):,} bytes of {scope_name} at once",
        why=f"it has {capacity:,} bytes; the largest buffer is {largest.name} of {largest.size:,} bytes",
        hint="use smaller tiles",
    )


__all__ = ["MOST_SLOTS", "Tile", "place_tiles"]
