"""Binary heaps in memory: the sift-down statement."""

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
    """Move the item at `root` down until the heap order holds; both subtrees are heaps already.

    `items(index)` is the int64 item at an index, and `put(index, item)` writes it. The heap has `size` items.
    `above(a, b)` is the heap order. `hole` is an int64 variable for the current position.
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
