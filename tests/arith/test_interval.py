"""Interval arithmetic against all pairs of small values."""

from __future__ import annotations

from itertools import combinations_with_replacement, product

import pytest

from dlc_core.arith import interval as iv
from dlc_core.arith.interval import EVERYTHING, INF, Interval
from dlc_core.ir.dtype import INDEX
from dlc_core.ir.fold import fold_binary

OPERATIONS = {
    "add": iv.add,
    "mul": iv.mul,
    "floordiv": iv.floordiv,
    "floormod": iv.floormod,
    "truncdiv": iv.truncdiv,
    "truncmod": iv.truncmod,
    "min": iv.minimum,
    "max": iv.maximum,
}
ENDS: tuple[float, ...] = (-INF, -5, -2, -1, 0, 1, 3, 6, INF)


def _members(a: Interval) -> range:
    """Values of the interval; a long finite interval represents an infinite one."""
    return range(int(max(a[0], -9)), int(min(a[1], 9)) + 1)


def _intervals() -> list[Interval]:
    pairs = combinations_with_replacement(ENDS, 2)
    return [
        (int(a) if abs(a) < INF else a, int(b) if abs(b) < INF else b)
        for a, b in pairs
        if abs(a + b) != 2 * INF
    ]


@pytest.mark.parametrize("op", OPERATIONS)
def test_results_are_inside(op: str) -> None:
    for a, b in product(_intervals(), repeat=2):
        low, high = OPERATIONS[op](a, b)
        assert low == low
        assert high == high
        for x, y in product(_members(a), _members(b)):
            value = fold_binary(op, x, y, INDEX)
            assert value is None or low <= value <= high, (op, a, b, x, y)


def test_scale_union_and_intersection() -> None:
    assert iv.scale((2, INF), -3) == (-INF, -6)
    assert iv.scale((-INF, INF), 0) == (0, 0)
    assert iv.union((1, 2), (5, 9)) == (1, 9)
    assert iv.intersect((1, 6), (5, 9)) == (5, 6)
    assert iv.add(EVERYTHING, (1, 1)) == EVERYTHING
