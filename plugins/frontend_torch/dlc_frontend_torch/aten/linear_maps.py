"""Linear maps along an axis, given by matrices that are known at compile time: `along`.

Average pools, interpolations, paddings and their gradients are such maps along each spatial axis. An element
of the result is a short sum, so it reads its few terms instead of a whole row. Elements with the weight 0 are
not read: they may be infinite.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dlc_core.graph.node import Node, constant
from dlc_core.op import std

Matrix = np.ndarray[Any, Any]

MAX_UNROLLED = 8
"""The largest number of terms that are written out. Longer sums are reductions over gathered elements."""


def along(x: Node, axis: int, matrix: Matrix) -> Node:
    """The tensor with the axis mapped: `matrix` is [new size, old size], and x has a float dtype."""
    new, old = matrix.shape
    if new == old and bool((matrix == np.eye(new)).all()):
        return x
    index, weight = terms(matrix)
    count = index.shape[1]
    if count == 0:
        shape = (*x.shape[:axis], new, *x.shape[axis + 1 :])
        return std.broadcast_to(constant(np.zeros((), x.dtype.numpy)), shape=shape)
    if count <= MAX_UNROLLED:
        made = _term(x, axis, index[:, 0], weight[:, 0])
        for number in range(1, count):
            made = std.add(made, _term(x, axis, index[:, number], weight[:, number]))
        return made
    return std.reduce_sum(_term(x, axis, index, weight), axes=(axis + 1,))


def terms(matrix: Matrix) -> tuple[Matrix, Matrix]:
    """The columns and the values of the nonzero elements of each row, both [rows, most in a row]. Rows with
    fewer elements are filled with the value 0.
    """
    counts = (matrix != 0).sum(1)
    most = int(counts.max(initial=0))
    index, weight = np.zeros((len(matrix), most), np.int64), np.zeros((len(matrix), most))
    for row, count in enumerate(counts):
        (found,) = matrix[row].nonzero()
        index[row, :count], weight[row, :count] = found, matrix[row, found]
    return index, weight


def _term(x: Node, axis: int, index: Matrix, weight: Matrix) -> Node:
    """The elements at `index` along an axis times their weights."""
    taken = std.gather(x, constant(index), axis=axis)
    shape = (*index.shape, *(1,) * (len(x.shape) - axis - 1))
    if bool((weight == 1).all()):
        return taken
    if not bool(((weight == 1) | (weight == 0)).all()):
        taken = std.mul(taken, constant(weight.reshape(shape).astype(x.dtype.numpy)))
    if bool((weight != 0).all()):
        return taken
    read = constant((weight != 0).reshape(shape))
    return std.where(read, taken, constant(np.zeros((), x.dtype.numpy)))


__all__ = ["Matrix", "along", "terms"]
