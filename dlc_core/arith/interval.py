"""Arithmetic of integer intervals whose ends may be infinite.

An interval is `(low, high)` with ints, or -inf and inf if there is no bound.  Every operation returns an
interval that contains all results for operands in the given ones.
"""

from __future__ import annotations

import math

Num = int | float
"""An int, or one of the two infinities."""
Interval = tuple[Num, Num]

INF = math.inf
EVERYTHING: Interval = (-INF, INF)


def add(a: Interval, b: Interval) -> Interval:
    return a[0] + b[0], a[1] + b[1]


def _times(x: Num, y: Num) -> Num:
    return 0 if x == 0 or y == 0 else x * y


def scale(a: Interval, k: int) -> Interval:
    if k == 1:
        return a
    low, high = _times(a[0], k), _times(a[1], k)
    return (low, high) if k >= 0 else (high, low)


def mul(a: Interval, b: Interval) -> Interval:
    corners = (_times(a[0], b[0]), _times(a[0], b[1]), _times(a[1], b[0]), _times(a[1], b[1]))
    return min(corners), max(corners)


def _floordiv(x: Num, y: Num) -> Num:
    if x in (INF, -INF):
        return x if y > 0 else -x
    if y in (INF, -INF):
        return -1 if (x > 0) != (y > 0) and x != 0 else 0
    return x // y


def floordiv(a: Interval, b: Interval) -> Interval:
    """Bounds of the quotient. Divisors of zero are left out, because they have no result."""
    if b[0] <= 0 <= b[1]:
        if b[0] == b[1]:
            return EVERYTHING
        if b[0] == 0 and b[1] > 0:
            b = (1, b[1])
        elif b[1] == 0 and b[0] < 0:
            b = (b[0], -1)
        else:
            reach = max(abs(a[0]), abs(a[1]))
            return -reach, reach
    corners = (_floordiv(a[0], b[0]), _floordiv(a[0], b[1]), _floordiv(a[1], b[0]), _floordiv(a[1], b[1]))
    return min(corners), max(corners)


def floormod(a: Interval, b: Interval) -> Interval:
    low: Num = 0
    high: Num = 0
    if b[1] > 0:
        smallest = max(b[0], 1)
        if b[0] > 0 and a[0] >= 0 and a[1] < smallest:
            return a
        if b[0] == b[1] and a[0] != -INF and a[1] != INF and a[0] // b[0] == a[1] // b[0]:
            return a[0] % b[0], a[1] % b[0]
        high = b[1] - 1
        if a[0] >= 0:
            high = min(high, a[1])
    if b[0] < 0:
        low = b[0] + 1
    return low, high


def truncdiv(a: Interval, b: Interval) -> Interval:
    if a[0] >= 0 and b[0] >= 0:
        return floordiv(a, b)
    reach = max(abs(a[0]), abs(a[1]))
    return -reach, reach


def truncmod(a: Interval, b: Interval) -> Interval:
    """Bounds of the remainder. It has the dividend's sign, and its magnitude is less than the divisor's."""
    reach = max(0, min(max(abs(b[0]), abs(b[1])) - 1, max(abs(a[0]), abs(a[1]))))
    return (0 if a[0] >= 0 else -reach), (0 if a[1] <= 0 else reach)


def minimum(a: Interval, b: Interval) -> Interval:
    return min(a[0], b[0]), min(a[1], b[1])


def maximum(a: Interval, b: Interval) -> Interval:
    return max(a[0], b[0]), max(a[1], b[1])


def union(a: Interval, b: Interval) -> Interval:
    return min(a[0], b[0]), max(a[1], b[1])


def intersect(a: Interval, b: Interval) -> Interval:
    return max(a[0], b[0]), min(a[1], b[1])
