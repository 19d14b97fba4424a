"""Sampling grids, and images assembled from columns; sizes may be data-dependent."""

from __future__ import annotations

from collections.abc import Sequence

from dlc_core.graph.node import Node
from dlc_core.ir.expr import as_expr, eq, maximum
from dlc_core.ir.types import Dim
from dlc_core.op import std
from dlc_core.op.infer import product
from dlc_frontend_onnx.converters.base import Call, converter
from dlc_frontend_onnx.shapes import simple


@converter("AffineGrid", 20)
def affine_grid(c: Call, theta: Node, size: Node) -> Node:
    """Apply affine maps [batch, rank, rank + 1] to positions from -1 to 1: [batch, spatial dims, rank]."""
    wanted = c.sizes(size, "the size")
    rank = len(wanted) - 2
    if rank not in (2, 3) or len(theta.shape) != 3:
        raise c.error(f"an affine grid of {len(wanted)} sizes by {theta.type}")
    theta = c.fixed(theta, (theta.shape[0], rank, rank + 1), f"maps of {rank} dims are {rank} by {rank + 1}")
    batch, _, *dims = wanted
    c.require(eq(as_expr(batch), theta.shape[0]), "the batch of the size differs from that of the maps")
    align = c.flag("align_corners")
    dtype = theta.dtype if theta.dtype.name == "float64" else "float32"
    maps = c.cast(theta, dtype)
    made = _column(maps, rank, rank)
    for axis, dim in enumerate(dims):
        positions = _from_minus_one(c, dim, align, dtype)
        spread = std.unsqueeze(positions, axes=(0, *(k + 1 for k in range(rank) if k != axis), rank + 1))
        # The first coordinate belongs to the last dim.
        made = std.add(made, std.mul(_column(maps, rank - 1 - axis, rank), spread))
    return c.cast(made, theta.dtype)


def _column(maps: Node, index: int, rank: int) -> Node:
    """Column `index` of the maps, as [batch, 1…, rank]."""
    taken = std.squeeze(std.slice(maps, begins=(index,), ends=(index + 1,), axes=(2,)), axes=(2,))
    return std.unsqueeze(taken, axes=tuple(range(1, 1 + rank)))


def _from_minus_one(c: Call, dim: Dim, align: bool, dtype: object) -> Node:
    """`dim` positions from -1 to 1: the centres of elements, or with `align` including both ends."""
    count = c.cast(c.number_of(dim), str(dtype))
    one, two = c.const(1.0, str(dtype)), c.const(2.0, str(dtype))
    positions = std.arange(stop=dim, dtype=str(dtype))
    if align:
        return std.sub(std.div(std.mul(positions, two), std.maximum(std.sub(count, one), one)), one)
    return std.sub(std.div(std.add(std.mul(positions, two), one), count), one)


def dynamic_image(
    c: Call,
    x: Node,
    image: Sequence[Dim],
    block: Sequence[Dim],
    strides: Sequence[int],
    dilation: Sequence[int],
    pads: Sequence[int],
) -> Node:
    """Overlapping blocks [batch, channels * block, blocks] summed to an image of possibly data-dependent
    size.
    """
    rank = len(image)
    for k in block:
        c.require(as_expr(k) >= 1, "a block is empty")
    block = [c.size(k, "a block's size") for k in block]
    whole = [simple(as_expr(n) + pads[k] + pads[rank + k]) for k, n in enumerate(image)]
    counts: list[Dim] = []
    rows: list[Node] = []
    for n, k, s, d in zip(whole, block, strides, dilation, strict=True):
        spare = as_expr(n) - (as_expr(k) - 1) * d - 1
        c.require(spare >= 0, "a block is larger than the image")
        counts.append(c.size(maximum(spare // s + 1, 0), "a number of blocks"))
    taps, blocks = product(tuple(block)), product(tuple(counts))
    batch, columns = x.shape[0], as_expr(x.shape[1])
    c.require(eq(columns % taps, 0), "the number of columns is not a multiple of the block size")
    c.require(eq(as_expr(x.shape[2]), blocks), "the number of blocks does not match the image")
    channels = c.size(columns // taps, "the channels")
    steps: Dim = 1
    for axis in reversed(range(rank)):
        inner = std.mul(std.arange(stop=block[axis], dtype="int64"), c.const(dilation[axis], "int64"))
        outer = std.mul(std.arange(stop=counts[axis], dtype="int64"), c.const(strides[axis], "int64"))
        inner = std.unsqueeze(inner, axes=tuple(k for k in range(2 * rank) if k != axis))
        outer = std.unsqueeze(outer, axes=tuple(k for k in range(2 * rank) if k != rank + axis))
        rows.append(std.mul(std.add(inner, outer), c.number_of(steps)))
        steps = simple(as_expr(steps) * whole[axis])
    position = rows[0]
    for row in rows[1:]:
        position = std.add(position, row)
    images = simple(as_expr(batch) * channels)
    values = std.reshape(x, shape=(images, *block, *counts))
    positions = std.broadcast_to(std.unsqueeze(position, axes=(0,)), shape=(images, *block, *counts))
    flat = (images, simple(as_expr(taps) * blocks))
    zeros = std.full(shape=(images, steps), value=0.0, dtype=x.dtype)
    summed = std.scatter_elements(
        zeros, std.reshape(positions, shape=flat), std.reshape(values, shape=flat), axis=1, reduction="add"
    )
    made = std.reshape(summed, shape=(batch, channels, *whole))
    ends = tuple(simple(as_expr(n) + pads[k]) for k, n in enumerate(image))
    return std.slice(made, begins=tuple(pads[:rank]), ends=ends, axes=tuple(range(2, 2 + rank)))


__all__ = ["dynamic_image"]
