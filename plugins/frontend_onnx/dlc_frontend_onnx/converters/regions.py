"""Operators that sample images at data-dependent positions: DeformConv, RoiAlign, pooling of regions."""

from __future__ import annotations

import itertools
import math

import numpy as np

from dlc_core.graph.node import Node
from dlc_core.ir.expr import as_expr, maximum
from dlc_core.ir.types import Dim
from dlc_core.op import std
from dlc_frontend_onnx.converters.base import MICROSOFT, Call, converter
from dlc_frontend_onnx.converters.nn import kernel_of, per_dim
from dlc_frontend_onnx.converters.spatial import Tap, gathered

MAX_SAMPLES = 1 << 24
"""Places of samples that are made constants at most."""


def _between(c: Call, x: Node, sizes: tuple[int, ...], positions: list[Node], share: Node | None) -> Node:
    """Linear interpolation of images along each axis, times a weight; 0 outside.

    Returns [batch, positions, channels].
    """
    one = c.const(1, positions[0].dtype)
    axes: list[tuple[Tap, Tap]] = []
    for position in positions:
        base = std.floor(position)
        part = std.sub(position, base)
        below, above = std.sub(one, part), part
        if share is not None and not axes:
            below, above = std.mul(below, share), std.mul(above, share)
        axes.append(((base, below), (std.add(base, one), above)))
    return gathered(c, x, sizes, list(itertools.product(*axes)))


@converter("DeformConv", 19)
def deform_conv(
    c: Call, x: Node, w: Node, offset: Node, bias: Node | None = None, mask: Node | None = None
) -> Node:
    """A convolution whose kernel elements are shifted by offsets and weighted by a mask at every output
    position.
    """
    rank = len(x.shape) - 2
    if rank < 1 or len(offset.shape) != rank + 2:
        raise c.error(f"DeformConv of {x.type} with offsets {offset.type}")
    _, channels, *sizes = c.static(x, "the input of DeformConv")
    counts = c.static(offset, "the offsets of DeformConv")[2:]
    kernel = kernel_of(c, x, w)
    strides, dilation = per_dim(c, "strides", rank), per_dim(c, "dilations", rank)
    pads = tuple(c.integers("pads", None) or (0,) * (2 * rank))
    groups, sets = c.integer("group", 1), c.integer("offset_group", 1)
    taps, area = math.prod(kernel), math.prod(counts)
    wanted = tuple(
        (n + low + high - (k - 1) * d - 1) // s + 1
        for n, k, s, d, low, high in zip(sizes, kernel, strides, dilation, pads[:rank], pads[rank:])
    )
    fits = offset.shape[1] == sets * taps * rank and counts == wanted and sets > 0 and channels % sets == 0
    if not fits or groups < 1:
        raise c.error(f"offsets {offset.type} do not fit {x.type} and weights {w.type}")
    c.equal(w.shape[1], channels // groups, "weights have the channels of a group")
    batch = x.shape[0]
    moves = std.reshape(offset, shape=(batch * sets, taps, rank, *counts))
    moves = moves if x.dtype.name == "float64" else c.cast(moves, "float32")
    if taps * area > MAX_SAMPLES:
        raise c.unsupported(f"offsets {offset.type}", why=f"at most {MAX_SAMPLES} positions are supported")
    moves = std.transpose(moves, axes=(0, *range(2, rank + 3), 1))
    positions = []
    for axis in range(rank):
        moved = std.squeeze(std.slice(moves, begins=(axis,), ends=(axis + 1,), axes=(1,)), axes=(1,))
        inner = np.indices(kernel)[axis].reshape(taps) * dilation[axis]
        outer = np.indices(counts)[axis][..., None] * strides[axis] - pads[axis]
        positions.append(std.add(moved, c.const(inner + outer, moved.dtype)))
    share: Node | None = None
    if mask is not None:
        share = std.reshape(c.cast(mask, moves.dtype), shape=(batch * sets, taps, *counts))
        share = std.transpose(share, axes=(0, *range(2, rank + 2), 1))
    images = std.reshape(c.cast(x, moves.dtype), shape=(batch * sets, channels // sets, *sizes))
    columns = _between(c, images, tuple(sizes), positions, share)
    own, filters = channels // groups, w.shape[0] // groups
    columns = std.reshape(columns, shape=(batch, sets, area, taps, channels // sets))
    columns = std.reshape(
        std.transpose(columns, axes=(0, 2, 3, 1, 4)), shape=(batch, area, taps, groups, own)
    )
    columns = std.reshape(
        std.transpose(columns, axes=(0, 3, 1, 2, 4)), shape=(batch, groups, area, taps * own)
    )
    kernels = std.reshape(c.cast(w, columns.dtype), shape=(groups, filters, own, taps))
    kernels = std.reshape(std.transpose(kernels, axes=(0, 3, 2, 1)), shape=(groups, taps * own, filters))
    made = std.transpose(std.matmul(columns, kernels), axes=(0, 1, 3, 2))
    made = c.cast(std.reshape(made, shape=(batch, w.shape[0], *counts)), x.dtype)
    return made if bias is None else std.add(made, std.reshape(bias, shape=(-1, *(1,) * rank)))


def _samples(c: Call, begin: Node, length: Node, bins: int, ratio: int, size: int) -> tuple[Node, Node, Node]:
    """For each region, bin and sample along an axis: two neighbours as int64, and the weight of the upper
    one.

    The shape is [regions, bins ratio]. The weight is NaN if the sample is more than one element outside.
    """
    steps = (np.arange(bins * ratio) + 0.5) / ratio / bins
    begin, length = (std.unsqueeze(value, axes=(1,)) for value in (begin, length))
    position = std.add(begin, std.mul(length, c.const(steps, "float32")))
    outside = std.logical_or(
        std.less(position, c.const(-1, "float32")), std.greater(position, c.const(size, "float32"))
    )
    inside = std.clip(position, min=0.0, max=size - 1)
    base = std.floor(inside)
    low = std.cast(base, to="int64")
    high = std.minimum(std.add(low, c.const(1, "int64")), c.const(size - 1, "int64"))
    part = std.where(outside, c.const(math.nan, "float32"), std.sub(inside, base))
    return low, high, part


@converter("RoiAlign", 10)
def roi_align(c: Call, x: Node, rois: Node, batches: Node) -> Node:
    """Regions of images divided into equal bins. A bin is the mean or maximum of its samples."""
    mode = c.choice("mode", "avg", ("avg", "max"))
    default = "half_pixel" if c.version >= 16 else "output_half_pixel"
    modes = ("half_pixel", "output_half_pixel")
    half = c.choice("coordinate_transformation_mode", default, modes) == "half_pixel"
    rows, columns = c.integer("output_height", 1), c.integer("output_width", 1)
    ratio, scale = c.integer("sampling_ratio", 0), c.real("spatial_scale", 1.0)
    if ratio < 1:
        raise c.unsupported("RoiAlign whose number of samples depends on the sizes of the regions")
    if max(rows, columns) * ratio > MAX_SAMPLES:
        raise c.unsupported(f"RoiAlign of {rows} by {columns} bins with {ratio} samples along each axis")
    if len(x.shape) != 4 or len(rois.shape) != 2 or rois.shape[1] != 4 or rows < 1 or columns < 1:
        raise c.error(f"RoiAlign of {x.type} at {rois.type}")
    _, channels, height, width = x.shape
    if not isinstance(height, int) or not isinstance(width, int):
        raise c.unsupported(f"RoiAlign of {x.type}", hint="pin the dims with shapes={...}")
    ends = std.mul(c.cast(rois, "float32"), c.const(scale, "float32"))
    ends = std.sub(ends, c.const(0.5, "float32")) if half else ends
    left, top, right, bottom = (
        std.squeeze(std.slice(ends, begins=(k,), ends=(k + 1,), axes=(1,)), axes=(1,)) for k in range(4)
    )
    spans = [std.sub(bottom, top), std.sub(right, left)]
    if not half:
        spans = [std.maximum(span, c.const(1, "float32")) for span in spans]
    axes = [
        _samples(c, begin, span, bins, ratio, size)
        for begin, span, bins, size in zip((top, left), spans, (rows, columns), (height, width))
    ]
    if mode == "avg":
        sides = [_weighted(c, axis, bins, ratio) for axis, bins in zip(axes, (rows, columns), strict=True)]
        return _bins(c, x, batches, sides)
    positions = (channels, rois.shape[0], rows, ratio, columns, ratio)
    best: Node | None = None
    for value in _corners(c, x, batches, axes):
        value = std.reshape(value, shape=positions)
        best = value if best is None else std.maximum(best, value)
    assert best is not None
    made = std.reduce_max(best, axes=(3, 5))
    return c.cast(std.transpose(made, axes=(1, 0, 2, 3)), x.dtype)


def _weighted(c: Call, axis: tuple[Node, Node, Node], bins: int, ratio: int) -> tuple[Node, Node]:
    """The neighbours of `_samples` with their weights in a mean: [regions, bins, 2 ratio] each."""
    low, high, part = axis
    one, share = c.const(1, "float32"), c.const(1 / ratio, "float32")
    outside = std.isnan(part)
    weights = [
        std.where(outside, c.const(0, "float32"), std.mul(weight, share))
        for weight in (std.sub(one, part), part)
    ]
    shape = (low.shape[0], bins, ratio)
    positions, shares = (
        std.concat(*(std.reshape(value, shape=shape) for value in pair), axis=2)
        for pair in ((low, high), weights)
    )
    return positions, shares


def _bins(c: Call, x: Node, batches: Node, sides: list[tuple[Node, Node]]) -> Node:
    """The bins of regions from the positions along both axes and their weights."""
    (rows, row_weights), (columns, column_weights) = sides
    images = c.in_order(std.reshape(batches, shape=(-1,)), x.shape[0])
    last = std.transpose(x, axes=(0, 2, 3, 1))
    made = std.region_taps(last, images, rows, row_weights, columns, column_weights)
    return std.transpose(made, axes=(0, 3, 1, 2))


def _corners(c: Call, x: Node, batches: Node, axes: list[tuple[Node, Node, Node]]) -> list[Node]:
    """The four neighbours of each sample times their weights: [channels, regions, rows, columns]."""
    count, channels, height, width = x.shape
    flat = std.reshape(std.transpose(x, axes=(1, 0, 2, 3)), shape=(channels, count * height * width))
    image = c.in_order(std.reshape(batches, shape=(-1, 1, 1)), count)
    one, zero = c.const(1, "float32"), c.const(0, "float32")
    made = []
    for upper in itertools.product((False, True), repeat=2):
        rows, columns = (
            std.unsqueeze(axis[int(up)], axes=(position,)) for axis, up, position in zip(axes, upper, (2, 1))
        )
        where = std.add(std.mul(image, c.const(height, "int64")), rows)
        where = std.add(std.mul(where, c.const(width, "int64")), columns)
        parts = [
            std.unsqueeze(axis[2] if up else std.sub(one, axis[2]), axes=(position,))
            for axis, up, position in zip(axes, upper, (2, 1))
        ]
        weight = std.mul(*parts)
        weight = std.where(std.isnan(weight), zero, weight)
        values = c.cast(std.gather(flat, where, axis=1), "float32")
        made.append(std.mul(values, std.unsqueeze(weight, axes=(0,))))
    return made


def _positions(c: Call, begin: Node, end: Node, count: Dim, size: int) -> Node:
    """Equidistant positions along an axis of `size` elements, from begin to end of each region: [regions,
    count].
    """
    begin, end = (std.unsqueeze(value, axes=(1,)) for value in (begin, end))
    last = c.const(size - 1, "float32")
    if count == 1:
        return std.mul(std.mul(std.add(begin, end), c.const(0.5, "float32")), last)
    spaces = c.cast(c.number_of(maximum(as_expr(count) - 1, 1)), "float32")
    step = std.div(std.mul(std.sub(end, begin), last), spaces)
    positions = std.add(std.mul(begin, last), std.mul(step, std.arange(stop=count, dtype="float32")))
    if isinstance(count, int):
        return positions
    middle = std.mul(std.mul(std.add(begin, end), c.const(0.5, "float32")), last)
    return std.where(c.number_of(count > 1), positions, middle)


@converter("CropAndResize", 1, MICROSOFT)
def crop_and_resize(c: Call, x: Node, rois: Node, batches: Node, sizes: Node) -> Node:
    """Regions of images, given as fractions (y1, x1, y2, x2), resized to one size."""
    nearest = c.choice("mode", "bilinear", ("bilinear", "nearest")) == "nearest"
    outside = c.real("extrapolation_value", 0.0)
    given = c.elements(sizes, "the crop_size")
    if len(x.shape) != 4 or len(rois.shape) != 2 or rois.shape[1] != 4 or len(given) != 2:
        raise c.error(f"CropAndResize of {x.type} at {rois.type} to {given}")
    for size in given:
        c.require(as_expr(size) >= 1, "a crop is empty")
    wanted = [c.size(size, "the crop_size") for size in given]
    height, width = x.shape[2:]
    if not isinstance(height, int) or not isinstance(width, int):
        raise c.unsupported(f"CropAndResize of {x.type}", hint="pin the dims with shapes={...}")
    ends = [
        std.squeeze(std.slice(c.cast(rois, "float32"), begins=(k,), ends=(k + 1,), axes=(1,)), axes=(1,))
        for k in range(4)
    ]
    axes, valid = [], []
    for k, size in enumerate((height, width)):
        position = _positions(c, ends[k], ends[k + 2], wanted[k], size)
        within = std.logical_and(
            std.greater_equal(position, c.const(0, "float32")),
            std.less_equal(position, c.const(size - 1, "float32")),
        )
        valid.append(std.unsqueeze(within, axes=(2 - k,)))
        position = std.clip(position, min=0.0, max=size - 1)
        base = std.floor(std.add(position, c.const(0.5, "float32")) if nearest else position)
        low = std.cast(base, to="int64")
        high = std.minimum(std.add(low, c.const(1, "int64")), c.const(size - 1, "int64"))
        part = std.sub(position, position if nearest else base)
        axes.append((low, low if nearest else high, part))
    made, *others = _corners(c, x, batches, axes)
    for other in () if nearest else others:
        made = std.add(made, other)
    made = std.transpose(made, axes=(1, 0, 2, 3))
    inside = std.unsqueeze(std.logical_and(*valid), axes=(1,))
    return c.cast(std.where(inside, made, c.const(outside, "float32")), x.dtype)


@converter("MaxRoiPool", 1)
def max_roi_pool(c: Call, x: Node, rois: Node) -> Node:
    return std.region_max(x, rois, size=tuple(c.integers("pooled_shape")), scale=c.real("spatial_scale", 1.0))
