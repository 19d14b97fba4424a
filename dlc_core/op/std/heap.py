"""Heaps in memory: the statement that puts an item in its place."""

from __future__ import annotations

from collections.abc import Callable

from dlc_core.ir.buffer import Buffer
from dlc_core.ir.expr import Expr, Var, load, logical_and, minimum, select
from dlc_core.tir.stmt import Let, Stmt, While, seq, store


def sunk(
    items: Callable[[Expr], Expr],
    put: Callable[[Expr, Expr], Stmt],
    size: Expr,
    root: Expr,
    hole: Buffer,
    above: Callable[[Expr, Expr], Expr],
) -> Stmt:
    """The item at `root` moved below those that belong above it, where both parts below are heaps already.

    `items(place)` is the int64 item at a place and `put(place, item)` writes it; the heap has `size` items,
    `above(a, b)` says whether an item belongs above another.  `hole`, an int64 of its own, is where it would
    be put.
    """
    item, now = Var("item", "int64"), load(hole, [0])
    last = size - 1
    left, right = minimum(now * 2 + 1, last), minimum(now * 2 + 2, last)
    better = select(above(items(right), items(left)), right, left)
    going = logical_and(now * 2 + 1 < size, above(items(better), item))
    place = Var("place", "int64")
    down = Let(place, better, seq(put(now, items(place)), store(hole, [0], place)))
    moved = seq(store(hole, [0], root), While(going, down), put(now, item))
    return Let(item, items(root), moved)


__all__ = ["sunk"]
