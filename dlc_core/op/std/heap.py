"""Binary heaps: the statements that sift an item down."""

from __future__ import annotations

from collections.abc import Callable

from dlc_core.ir.buffer import Buffer
from dlc_core.ir.expr import Expr, Var, load, logical_and, minimum, select
from dlc_core.tir.stmt import Let, Stmt, While, seq, store


def sift_down(
    items: Callable[[Expr], Expr],
    write: Callable[[Expr, Expr], Stmt],
    size: Expr,
    root: Expr,
    hole: Buffer,
    above: Callable[[Expr, Expr], Expr],
) -> Stmt:
    """Move the item at `root` down until the heap order holds; both subtrees are heaps already.

    `items(index)` is the int64 item at an index, and `write(index, item)` stores it. The heap has `size`
    items. `above(a, b)` is the heap order. `hole` is an int64 variable.
    """
    item, position = Var("item", "int64"), load(hole, [0])
    last = size - 1
    left, right = minimum(position * 2 + 1, last), minimum(position * 2 + 2, last)
    child = select(above(items(right), items(left)), right, left)
    unordered = logical_and(position * 2 + 1 < size, above(items(child), item))
    index = Var("place", "int64")
    down = Let(index, child, seq(write(position, items(index)), store(hole, [0], index)))
    sifted = seq(store(hole, [0], root), While(unordered, down), write(position, item))
    return Let(item, items(root), sifted)


__all__ = ["sift_down"]
