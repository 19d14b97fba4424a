"""The reuse distances of the operands of kernel calls: which cache level still holds them.

    traffic = traffic_of([[Operand("arena", 0, 4096, 0), ...], ...])       for each call

The reuse distance of an access is the number of distinct bytes that were accessed since its memory was
accessed last [1]; a cache holds the data if it is as large.  Calls are repeated, so what a call accesses
first was accessed last by an earlier call of the same run or by the run before.

[1] Mattson, Gecsei, Slutz, Traiger: Evaluation techniques for storage hierarchies, IBM Systems Journal 9 (2),
1970.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dlc_core.support.record import record

OPERANDS = "operands"
"""The key of a kernel call's record with its operands: of each its block, its offset, and the bytes that are
read and written."""
_EXACT = 16
"""The number of calls in between whose distinct bytes are counted. The bytes of further calls are added, up
to those of a whole run: unions of many ranges take long."""


@record(frozen=True)
class Operand:
    """The memory of one operand of a call: `begin` is its offset in bytes in the memory block `block`."""

    block: str
    begin: int
    reads: int
    """Bytes that the call reads."""
    writes: int
    """Bytes that the call writes."""

    @property
    def end(self) -> int:
        """The offset of the first byte after it."""
        return self.begin + max(self.reads, self.writes)


@record(frozen=True)
class Traffic:
    """Bytes that a call reads or writes, and the reuse distances of the first and of the last of them."""

    bytes: int
    is_written: bool
    first: int
    last: int

    def held(self, size: int) -> float:
        """The part of the bytes that a cache of this size still holds."""
        low, high = sorted((self.first, self.last))
        if size >= high:
            return 1.0
        return 0.0 if size < low else (size - low) / (high - low)


def traffic_of(calls: Sequence[Sequence[Operand]]) -> list[tuple[Traffic, ...]]:
    """The traffic of each call of a run that is repeated, in the order of execution."""
    sizes = [_distinct(call) for call in calls]
    total = _distinct([operand for call in calls for operand in call])
    return [
        tuple(_traffic(calls, sizes, total, index, one) for one in _merged(call))
        for index, call in enumerate(calls)
    ]


def _distinct(operands: Iterable[Operand]) -> int:
    """The number of distinct bytes of operands."""
    blocks: dict[str, list[tuple[int, int]]] = {}
    for one in operands:
        blocks.setdefault(one.block, []).append((one.begin, one.end))
    total = 0
    for ranges in blocks.values():
        covered = 0
        for begin, end in sorted(ranges):
            total += max(0, end - max(begin, covered))
            covered = max(covered, end)
    return total


def _merged(call: Sequence[Operand]) -> list[Operand]:
    """Join operands of the same memory, such as an input that an output overwrites."""
    found: dict[tuple[str, int], Operand] = {}
    for one in call:
        known = found.get((one.block, one.begin))
        if known is not None:
            one = Operand(one.block, one.begin, max(known.reads, one.reads), max(known.writes, one.writes))
        found[one.block, one.begin] = one
    return [one for one in found.values() if one.reads or one.writes]


def _traffic(
    calls: Sequence[Sequence[Operand]], sizes: Sequence[int], total: int, index: int, operand: Operand
) -> Traffic:
    between: list[Operand] = []
    further = 0
    for back in range(1, len(calls) + 1):
        earlier = (index - back) % len(calls)
        if any(_overlap(one, operand) for one in calls[earlier]):
            break
        if back <= _EXACT:
            between += calls[earlier]
        else:
            further += sizes[earlier]
    distance = min(total, _distinct(between) + further)
    number = max(operand.reads, operand.writes)
    return Traffic(number, operand.writes > 0, distance + sizes[earlier], distance + sizes[index])


def _overlap(a: Operand, b: Operand) -> bool:
    return a.block == b.block and a.begin < b.end and b.begin < a.end


__all__ = ["OPERANDS", "Operand", "Traffic", "traffic_of"]
