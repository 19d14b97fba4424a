"""Operators on images except pooling: indices of maxima, unpooling, Col2Im, sampling at a grid."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np

from dlc_core.graph.node import Node
from dlc_core.ir.expr import as_expr
from dlc_core.ir.types import Dim
from dlc_core.op import std
from dlc_frontend_onnx.converters.base import Call, converter
from dlc_frontend_onnx.converters.grids import dynamic_image
from dlc_frontend_onnx.converters.nn import check_image, per_dim, pool_window
from dlc_frontend_onnx.shapes import simple

MAX_TAPS = 256
"""Limit of window elements for the indices of maxima, because each element is compared separately."""


@converter("MaxPool", 8)
def max_pool(c: Call, x: Node) -> tuple[Node, Node | None]:
    column_major = c.integer("storage_order", 0) == 1
    window = pool_window(c, x)
    made = std.max_pool(x, **window)
    return made, _flat_indices(c, x, made, window, column_major) if c.uses_output(1) else None


def _flat_indices(c: Call, x: Node, made: Node, window: dict[str, object], column_major: bool) -> Node:
    """The index of each maximum in the flattened tensor: the first element of the window that equals it."""
    batch, channels, *sizes = c.static(x, "the input of MaxPool with indices")
    counts = c.static(made, "the result of MaxPool")[2:]
    kernel, strides, padding, dilation = (
        _ints(window[name]) for name in ("kernel", "strides", "padding", "dilation")
    )
    rank = len(kernel)
    kernel = tuple(
        min(k, (size - 1 + low) // d + 1) for k, size, low, d in zip(kernel, sizes, padding, dilation)
    )  # without the elements that lie beyond the input at every position
    if math.prod(kernel) > MAX_TAPS:
        raise c.unsupported(f"indices of the maxima of windows of {kernel}")
    steps = [1] * rank
    for axis in range(1, rank) if column_major else range(rank - 2, -1, -1):
        steps[axis] = steps[axis - 1] * sizes[axis - 1] if column_major else steps[axis + 1] * sizes[axis + 1]
    grids = np.meshgrid(*(np.arange(n) * s for n, s in zip(sizes, steps)), indexing="ij")
    flat = np.sum(grids, axis=0) if grids else np.zeros((), np.int64)
    lowest = -np.inf if x.dtype.is_float else x.dtype.int_range()[0]
    ends = [
        (n - 1) * s + (k - 1) * d + 1 - size - low
        for n, s, k, d, size, low in zip(counts, strides, kernel, dilation, sizes, padding)
    ]
    after = [max(end, 0) for end in ends]
    padded = std.pad(x, pads=(0, 0, *padding[:rank], 0, 0, *after), value=lowest)
    positions = np.pad(flat, list(zip(padding[:rank], after)), constant_values=-1)
    best = c.const(np.full((1, 1, *counts), -1), "int64")
    for tap in reversed(list(itertools.product(*map(range, kernel)))):
        begins = [t * d for t, d in zip(tap, dilation)]
        last = [b + (n - 1) * s + 1 for b, n, s in zip(begins, counts, strides)]
        axes = tuple(range(2, 2 + rank))
        part = std.slice(padded, begins=tuple(begins), ends=tuple(last), strides=strides, axes=axes)
        where = positions[tuple(slice(b, e, s) for b, e, s in zip(begins, last, strides))]
        inside = c.const((where >= 0).reshape(1, 1, *counts), "bool")
        same = std.logical_and(std.equal(part, made), inside)
        best = std.where(same, c.const(where.reshape(1, 1, *counts), "int64"), best)
    image = math.prod(sizes)
    offsets = np.arange(batch * channels).reshape(batch, channels, *(1,) * rank) * image
    return std.add(best, c.const(offsets, "int64"))


def _ints(value: object) -> tuple[int, ...]:
    if not isinstance(value, tuple):
        raise AssertionError("a window has tuples of numbers")
    return tuple(int(item) for item in value)


@converter("MaxUnpool", 9)
def max_unpool(c: Call, x: Node, positions: Node, shape: Node | None = None) -> Node:
    """Zeros with the values of x at the given indices, which refer to the tensor without padding."""
    rank = check_image(c, x)
    kernel = tuple(c.integers("kernel_shape"))
    strides = per_dim(c, "strides", rank)
    pads = tuple(c.integers("pads", None) or (0,) * (2 * rank))
    if len(kernel) != rank or len(pads) != 2 * rank:
        raise c.error(f"kernel_shape {kernel} and pads {pads} for {rank} spatial dims")
    batch, channels, *sizes = c.static(x, "the input of MaxUnpool")
    natural = [
        (size - 1) * stride + k - low - high
        for size, stride, k, low, high in zip(sizes, strides, kernel, pads[:rank], pads[rank:])
    ]
    total: list[Dim] = [batch, channels, *natural]
    if shape is not None:
        total = list(c.sizes(shape, "the shape"))
    if len(total) != rank + 2:
        raise c.error(f"a shape of {len(total)} sizes for {x.type}")
    for wanted, least in zip(total, [batch, channels, *natural]):
        c.require(as_expr(wanted) >= least, f"the shape is smaller than {[batch, channels, *natural]}")
    zeros = std.full(shape=(batch * channels * math.prod(natural),), value=0.0, dtype=x.dtype)
    where = c.in_order(std.reshape(positions, shape=(-1,)), zeros.shape[0])
    flat = std.scatter_elements(zeros, where, std.reshape(x, shape=(-1,)))
    made = std.reshape(flat, shape=(batch, channels, *natural))
    more = [simple(t - n) for t, n in zip(total, made.tensor_type.static_shape() or ())]
    if all(size == 0 for size in more):
        return made
    return std.pad(made, pads=(*(0,) * (rank + 2), *(c.offset(size, "a border") for size in more)))


@converter("Col2Im", 18)
def col2im(c: Call, x: Node, image: Node, block: Node) -> Node:
    """Overlapping blocks summed, as a transposed convolution whose kernels have a single 1."""
    sizes, block_sizes = c.sizes(image, "the image's shape"), c.elements(block, "the block's shape")
    rank = len(sizes)
    strides, dilation = per_dim(c, "strides", rank), per_dim(c, "dilations", rank)
    pads = tuple(c.integers("pads", None) or (0,) * (2 * rank))
    if len(block_sizes) != rank or len(pads) != 2 * rank or len(x.shape) != 3:
        raise c.error(f"blocks of {block_sizes} for an image of {sizes}")
    size = [n for n in sizes if isinstance(n, int)]
    kernel = [n for n in block_sizes if isinstance(n, int)]
    if len(size) + len(kernel) < 2 * rank or not isinstance(x.shape[1], int):
        return dynamic_image(c, x, sizes, block_sizes, strides, dilation, pads)
    counts = [
        (n + low + high - (k - 1) * d - 1) // s + 1
        for n, k, s, d, low, high in zip(size, kernel, strides, dilation, pads[:rank], pads[rank:])
    ]
    taps = math.prod(kernel)
    columns = x.shape[1]
    if not isinstance(columns, int) or taps < 1 or columns % taps or min(counts) < 1:
        raise c.error(f"{x.type} does not hold blocks of {kernel}")
    channels = columns // taps
    weights = np.tile(np.eye(taps).reshape(taps, 1, *kernel), (channels, *(1,) * (rank + 1)))
    spread = std.reshape(x, shape=(x.shape[0], columns, *counts))
    extra = tuple(
        n - ((m - 1) * s + (k - 1) * d + 1 - low - high)
        for n, m, k, s, d, low, high in zip(size, counts, kernel, strides, dilation, pads[:rank], pads[rank:])
    )
    return std.conv_transpose(
        spread,
        c.const(weights, x.dtype),
        strides=strides,
        padding=pads,
        dilation=dilation,
        groups=channels,
        output_padding=extra,
    )


@converter("GridSample", 16)
def grid_sample(c: Call, x: Node, grid: Node) -> Node:
    """Samples of x at the coordinates of a grid, whose last coordinate belongs to the first spatial axis."""
    rank = check_image(c, x)
    names = {"bilinear": "linear", "bicubic": "cubic"}
    default = "linear" if c.version >= 20 else "bilinear"
    mode = c.choice("mode", default, ("linear", "bilinear", "nearest", "cubic", "bicubic"))
    mode = names.get(mode, mode)
    border = c.choice("padding_mode", "zeros", ("zeros", "border", "reflection"))
    if len(grid.shape) == rank + 2 and not isinstance(grid.shape[-1], int):
        raise c.unsupported(f"a grid of {grid.type}", hint="pin its last dim with shapes={...}")
    if len(grid.shape) != rank + 2 or grid.shape[-1] != rank:
        raise c.error(f"a grid of {grid.type} for {x.type}")
    if mode == "cubic" and rank != 2:
        raise c.unsupported(f"cubic sampling of {rank} spatial dims")
    sampler = Sampler(c, x, grid, border, c.flag("align_corners"))
    axes = [sampler.taps(axis, mode) for axis in range(rank)]
    every = list(itertools.product(*axes))
    # A single channel has no neighbours to read with, so its positions are vectorised.  Integers are only
    # moved.
    if x.shape[1] != 1 and x.dtype.is_float:
        made = std.transpose(gathered(c, x, sampler.sizes, every), axes=(0, 2, 1))
        return std.reshape(made, shape=(x.shape[0], x.shape[1], *grid.shape[1:-1]))
    total: Node | None = None
    for taps in every:
        part = values_at(c, x, sampler.sizes, [position for position, _ in taps])
        for _, weight in taps:
            part = part if weight is None else std.mul(part, std.unsqueeze(weight, axes=(1,)))
        total = part if total is None else std.add(total, part)
    assert total is not None
    return total


Tap = tuple[Node, "Node | None"]


class Sampler:
    """Coordinates of a grid in an image, and the image's values there."""

    def __init__(self, c: Call, x: Node, grid: Node, border: str, align: bool) -> None:
        self.c = c
        self.x = x
        self.grid = c.cast(grid, "float64" if x.dtype.name == "float64" else "float32")
        self.border = border
        self.align = align
        self.sizes = [size for size in x.shape[2:] if isinstance(size, int)]
        if len(self.sizes) < len(x.shape) - 2:
            raise c.unsupported(f"GridSample of {x.type}", hint="pin its spatial dims with shapes={...}")
        self.rank = len(self.sizes)

    def number(self, value: float) -> Node:
        return self.c.const(value, self.grid.dtype)

    def coordinate(self, axis: int) -> Node:
        """The coordinate along a spatial axis, in elements."""
        last = self.rank - 1 - axis
        picked = std.slice(self.grid, begins=(last,), ends=(last + 1,), axes=(self.rank + 1,))
        position = std.squeeze(picked, axes=(self.rank + 1,))
        size = self.sizes[axis]
        if self.align:
            return std.mul(std.add(position, self.number(1)), self.number((size - 1) / 2))
        return std.mul(
            std.sub(std.mul(std.add(position, self.number(1)), self.number(size)), self.number(1)),
            self.number(0.5),
        )

    def inside(self, position: Node, axis: int) -> Node:
        """A coordinate mapped into the image by the border mode; unchanged for zeros."""
        size = self.sizes[axis]
        if self.border == "border":
            return std.clip(position, min=0.0, max=size - 1)
        if self.border == "reflection":
            low, high = (0.0, size - 1.0) if self.align else (-0.5, size - 0.5)
            span = high - low
            if span == 0:
                return std.mul(position, self.number(0))
            offset = std.mod(std.abs(std.sub(position, self.number(low))), self.number(2 * span))
            folded = std.minimum(offset, std.sub(self.number(2 * span), offset))
            return std.clip(std.add(folded, self.number(low)), min=0.0, max=size - 1)
        return position

    def taps(self, axis: int, mode: str) -> list[Tap]:
        """Integer positions along an axis, as floats, with their weights."""
        position = self.coordinate(axis)
        if mode == "nearest":
            return [(self.inside(std.round(self.inside(position, axis)), axis), None)]
        if mode == "linear":
            moved = self.inside(position, axis)
            base = std.floor(moved)
            part = std.sub(moved, base)
            above = std.add(base, self.number(1))
            return [(base, std.sub(self.number(1), part)), (above, part)]
        base = std.floor(position)
        part = std.sub(position, base)
        found: list[Tap] = []
        for step, weight in zip(range(-1, 3), self.cubic(part)):
            found.append((self.inside(std.add(base, self.number(step)), axis), weight))
        return found

    def cubic(self, part: Node) -> Sequence[Node]:
        """Weights of the four neighbours (a = -3/4)."""
        a = -0.75

        def polynomial(distance: Node, factors: Sequence[float]) -> Node:
            result = self.number(factors[0])
            for factor in factors[1:]:
                result = std.add(std.mul(result, distance), self.number(factor))
            return result

        near: Callable[[Node], Node] = lambda d: polynomial(d, (a + 2, -(a + 3), 0, 1))  # noqa: E731
        far: Callable[[Node], Node] = lambda d: polynomial(d, (a, -5 * a, 8 * a, -4 * a))  # noqa: E731
        one = self.number(1)
        rest = std.sub(one, part)
        return far(std.add(part, one)), near(part), near(rest), far(std.add(rest, one))


def flat_indices(c: Call, sizes: Sequence[int], positions: Sequence[Node]) -> tuple[Node, Node]:
    """Whether integer positions, floats [batch, ...] per axis, are inside an image, and their flat
    indices.
    """
    valid: Node | None = None
    flat: Node | None = None
    for axis, position in enumerate(positions):
        size = sizes[axis]
        limited = std.clip(position, min=0.0, max=size - 1)
        here = std.equal(limited, position)
        valid = here if valid is None else std.logical_and(valid, here)
        index = std.cast(limited, to="int64")
        flat = index if flat is None else std.add(std.mul(flat, c.const(size, "int64")), index)
    assert valid is not None
    assert flat is not None
    return valid, flat


def values_at(c: Call, x: Node, sizes: Sequence[int], positions: Sequence[Node]) -> Node:
    """Values of images [batch, channels, sizes...] at integer positions, floats [batch, ...] per axis; 0
    outside.
    """
    valid, flat = flat_indices(c, sizes, positions)
    batch, channels = x.shape[0], x.shape[1]
    image = std.reshape(x, shape=(batch, channels, math.prod(sizes)))
    count = std.reshape(flat, shape=(batch, 1, -1))
    spread = std.broadcast_to(count, shape=(batch, channels, count.shape[2]))
    picked = std.gather_elements(image, spread, axis=2)
    values = std.reshape(picked, shape=(batch, channels, *flat.shape[1:]))
    return std.where(std.unsqueeze(valid, axes=(1,)), values, c.const(0, values.dtype))


def gathered(c: Call, x: Node, sizes: Sequence[int], taps: Sequence[Sequence[Tap]]) -> Node:
    """Images [batch, channels, sizes...] at positions [batch, ...] per axis, as weighted sums over all taps.

    Positions outside give 0. The result is [batch, positions, channels], so that the channels of a pixel are
    contiguous.
    """
    batch, channels = x.shape[:2]
    pixels = std.transpose(std.reshape(x, shape=(batch, channels, math.prod(sizes))), axes=(0, 2, 1))
    positions, weights = [], []
    for axes in taps:
        valid, flat = flat_indices(c, sizes, [position for position, _ in axes])
        outside = std.where(valid, flat, c.const(-1, "int64"))
        positions.append(std.reshape(outside, shape=(1, batch, -1)))
        weight: Node | None = None
        for _, own in axes:
            weight = own if weight is None or own is None else std.mul(weight, own)
        if weight is not None:
            weights.append(std.reshape(weight, shape=(1, batch, -1)))
    position = std.concat(*positions, axis=0)
    one = c.const(1, "float32")
    weight = std.concat(*weights, axis=0) if weights else std.broadcast_to(one, shape=position.shape)
    return std.gather_sum(pixels, position, weight)
