"""Operators with data-dependent indices: gathers, scatters, one-hot."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dlc_core.graph.node import Node
from dlc_core.ir.dtype import BOOL
from dlc_core.op import std
from dlc_frontend_onnx.converters.base import Call, converter


@converter("Gather", 1)
def gather(c: Call, x: Node, indices: Node) -> Node:
    return std.gather(x, indices, axis=c.integer("axis", 0))


@converter("GatherElements", 11)
def gather_elements(c: Call, x: Node, indices: Node) -> Node:
    return std.gather_elements(x, indices, axis=c.integer("axis", 0))


@converter("GatherND", 11)
def gather_nd(c: Call, x: Node, indices: Node) -> Node:
    return std.gather_nd(x, indices, batch_dims=c.integer("batch_dims", 0))


_REDUCTIONS = ("none", "add", "mul", "min", "max")


@converter("Scatter", 9)
@converter("ScatterElements", 11)
def scatter_elements(c: Call, x: Node, indices: Node, updates: Node) -> Node:
    axis = c.integer("axis", 0)
    return _scattered(
        c, x, updates, lambda x, y, how: std.scatter_elements(x, indices, y, axis=axis, reduction=how)
    )


@converter("ScatterND", 11)
def scatter_nd(c: Call, x: Node, indices: Node, updates: Node) -> Node:
    return _scattered(c, x, updates, lambda x, y, how: std.scatter_nd(x, indices, y, reduction=how))


def _scattered(c: Call, x: Node, updates: Node, scatter: Callable[[Node, Node, str], Node]) -> Node:
    """`scatter` of x, updates and the reduction; booleans are reduced as 0 and 1."""
    reduction = c.choice("reduction", "none", _REDUCTIONS)
    if x.dtype is not BOOL or reduction == "none":
        return scatter(x, updates, reduction)
    kept = {"add": "max", "mul": "min"}.get(reduction, reduction)
    return c.cast(scatter(c.cast(x, "uint8"), c.cast(updates, "uint8"), kept), BOOL)


@converter("OneHot", 9)
def one_hot(c: Call, indices: Node, depth: Node, values: Node) -> Node:
    number = depth if depth.dtype.is_int else std.cast(depth, to="int64")
    (size,) = c.sizes(std.reshape(number, shape=(1,)), "the depth")
    if len(values.shape) != 1:
        raise c.error(f"the values must be two, not {values.type}")
    values = c.fixed(values, (2,), "there are two values: off and on")
    hot = std.one_hot(c.cast(indices, "int64"), depth=size, axis=c.integer("axis", -1), dtype="bool")
    found = c.array(values)
    if found is not None and np.array_equal(found, np.array([0, 1], found.dtype)):
        return c.cast(hot, values.dtype)
    off, on = (std.gather(values, c.const(index, "int64")) for index in (0, 1))
    return std.where(hot, on, off)


@converter("TensorScatter", 24)
def tensor_scatter(c: Call, past: Node, update: Node, indices: Node | None = None) -> Node:
    """A cache with the update written along an axis, at an index for each row of the batch."""
    rank = len(past.shape)
    axis = c.axis("axis", -2, rank)
    mode = c.choice("mode", "linear", ("linear", "circular"))
    if axis == 0 or len(update.shape) != rank:
        raise c.error(f"an update of {update.type} along axis {axis} of {past.type}")
    batch, steps, limit = past.shape[0], update.shape[axis], past.shape[axis]
    c.at_least(limit, steps, "a cache is at least as long as its update")
    start = (
        std.full(shape=(batch,), value=0.0, dtype="int64") if indices is None else c.cast(indices, "int64")
    )
    offset = std.arange(stop=steps, dtype="int64")
    position = std.add(std.unsqueeze(start, axes=(1,)), offset)
    if mode == "circular":
        position = std.mod(position, std.squeeze(c.dims_tensor((limit,)), axes=(0,)))
    if indices is not None:
        # Negative indices are out of range; they do not count from the end.
        first = std.unsqueeze(start, axes=(1,))
        position = std.where(std.less(first, c.const(0, "int64")), c.in_order(first, limit), position)
    row = std.broadcast_to(
        std.unsqueeze(std.arange(stop=batch, dtype="int64"), axes=(1,)), shape=(batch, steps)
    )
    order = (0, axis, *(k for k in range(1, rank) if k != axis))
    positions = std.stack(row, position, axis=-1)
    moved = std.scatter_nd(std.transpose(past, axes=order), positions, std.transpose(update, axes=order))
    return std.transpose(moved, axes=tuple(order.index(k) for k in range(rank)))
