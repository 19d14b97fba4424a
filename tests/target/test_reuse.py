"""Reuse distances of operands of kernel calls."""

from __future__ import annotations

from dlc_core.target.reuse import Operand, Traffic, traffic_of

SIZE = 1 << 10


def reads(*numbers: int) -> list[Operand]:
    """Operands that are read, at these multiples of SIZE."""
    return [Operand("arena", number * SIZE, SIZE, 0) for number in numbers]


def test_reuse_distances_are_the_bytes_accessed_in_between():
    first, second, third = traffic_of([reads(0), reads(1, 2), reads(0)])
    # Calls are repeated: the first one reads what the last one read, and the second one what it read before.
    assert [(one.bytes, one.first, one.last) for one in first] == [(SIZE, SIZE, SIZE)]
    assert [(one.bytes, one.first, one.last) for one in second] == [(SIZE, 3 * SIZE, 3 * SIZE)] * 2
    assert [(one.bytes, one.first, one.last) for one in third] == [(SIZE, 3 * SIZE, 3 * SIZE)]


def test_memory_that_several_calls_access_counts_once_in_a_reuse_distance():
    overlapping = Operand("arena", SIZE + SIZE // 2, 0, SIZE)
    other = Operand("weights", 0, SIZE, 0)
    traffic = traffic_of([reads(0), reads(1), reads(1), [overlapping], [other], reads(0)])
    between = 5 * SIZE // 2
    assert traffic[-1] == (Traffic(SIZE, False, SIZE + between, between + SIZE),)
    assert traffic[3] == (Traffic(SIZE, True, SIZE, SIZE),)


def test_an_operand_that_is_overwritten_counts_once():
    written = Operand("arena", 0, 0, SIZE)
    assert traffic_of([[*reads(0), written]]) == [(Traffic(SIZE, True, SIZE, SIZE),)]
    assert traffic_of([[], [Operand("x", 0, 0, 0)]]) == [(), ()]


def test_a_cache_holds_a_part_of_what_is_read_at_growing_distances():
    one = Traffic(100, False, 1000, 3000)
    assert [one.held(size) for size in (500, 1000, 2000, 3000, 5000)] == [0, 0, 0.5, 1, 1]
    assert Traffic(100, False, 3000, 1000).held(2000) == 0.5
