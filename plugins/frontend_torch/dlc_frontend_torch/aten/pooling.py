"""Average pools and adaptive average pools, and their gradients."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dlc_core.graph.node import Node
from dlc_core.ir.types import Dim
from dlc_core.op import std
from dlc_frontend_torch.aten.linear_maps import Matrix, along
from dlc_frontend_torch.call import Call
from dlc_frontend_torch.registry import aten

Ints = tuple[int, ...]


def spatial_dims(c: Call) -> int:
    """The number of spatial dims of a pool, from the name of its operator: "...2d..." has 2."""
    return next(number for number in (1, 2, 3) if f"{number}d" in c.op)


def on_axis(values: Any, axis: int, rank: int) -> Any:
    """An array of one axis in a shape of `rank` dims that broadcasts."""
    return values.reshape([len(values) if place == axis else 1 for place in range(rank)])


def window_numbers(c: Call, rank: int, given: Any) -> Ints:
    """The numbers of an argument of a pool, one for each spatial dim."""
    found = c.numbers(given, "a window")
    return found * rank if len(found) == 1 else found


def batched(x: Node, spatial: int) -> Node:
    """The tensor with a dim for the samples."""
    return x if len(x.shape) == spatial + 2 else std.unsqueeze(x, axes=(0,))


def as_given(made: Node, x: Node) -> Node:
    """The result for an input without a dim for the samples."""
    return made if len(made.shape) == len(x.shape) else std.squeeze(made, axes=(0,))


def sizes_of(c: Call, x: Sequence[Dim], spatial: int) -> Ints:
    """The spatial sizes. Raises UnsupportedError if they are symbolic."""
    return c.numbers(tuple(x[len(x) - spatial :]), "a pool of a size")


def accumulating(c: Call, x: Node) -> Node:
    """The values in the dtype of sums. Raises UnsupportedError for integers."""
    if not x.dtype.is_float:
        raise c.unsupported(f"the mean of elements of {x.dtype}")
    return c.cast(x, "float32") if x.dtype.bits < 32 else x


@aten("avg_pool1d avg_pool2d avg_pool3d")
def avg_pool(
    c: Call, x: Node, kernel: Any, stride: Any = (), padding: Any = 0, ceil_mode: bool = False,
    count_include_pad: bool = True, divisor_override: int | None = None,
) -> Node:  # fmt: skip
    spatial = spatial_dims(c)
    window, pads = window_numbers(c, spatial, kernel), window_numbers(c, spatial, padding)
    options: dict[str, Any] = {
        "kernel": window,
        "strides": window_numbers(c, spatial, stride) if stride else window,
        "padding": (*pads, *pads),
        "ceil_mode": ceil_mode,
        "count_include_pad": count_include_pad,
    }
    full = batched(x, spatial)
    if not x.dtype.is_float:
        made = _pool_of_integers(
            c, full, window, options["strides"], pads, divisor_override, count_include_pad
        )
        return as_given(made, x)
    if divisor_override is None:
        return as_given(std.avg_pool(full, **options), x)
    # The mean over whole windows: the end is padded as far as the last window reaches.
    strides, sizes = options["strides"], sizes_of(c, x.shape, spatial)
    counts = c.numbers(c.shape[-spatial:], "a pool of a size")
    ends = [
        max((count - 1) * step + size - pad - own, 0)
        for count, step, size, pad, own in zip(counts, strides, window, pads, sizes, strict=True)
    ]
    wide = std.pad(accumulating(c, full), pads=(0, 0, *pads, 0, 0, *ends))
    made = std.avg_pool(wide, kernel=window, strides=strides)
    scaled = std.mul(made, c.const(math.prod(window) / divisor_override, made.dtype))
    kept = std.slice(scaled, begins=(0,) * spatial, ends=counts, axes=tuple(range(2, spatial + 2)))
    return as_given(c.cast(kept, x.dtype), x)


def _pool_of_integers(
    c: Call, x: Node, window: Ints, strides: Ints, pads: Ints, divisor: int | None, whole: bool
) -> Node:
    """The sums of windows divided by numbers of elements, rounded towards zero. `whole`: elements of the pads
    are counted.
    """
    spatial = len(window)
    sizes, counts = sizes_of(c, x.shape, spatial), c.numbers(c.shape[-spatial:], "a pool of a size")
    number = np.ones((), np.int64)
    for axis in range(spatial):
        step, size, pad, own, count = (each[axis] for each in (strides, window, pads, sizes, counts))
        begins = np.arange(count) * step - pad
        ends = np.minimum(begins + size, own + pad)
        members = ends - begins if whole else np.minimum(ends, own) - np.maximum(begins, 0)
        number = number[..., None] * members
        after = max((count - 1) * step + size - pad - own, 0)
        padding = [0] * (2 * spatial + 4)
        padding[axis + 2], padding[spatial + axis + 4] = pad, after
        padded = std.pad(x, pads=tuple(padding))
        parts = [
            std.slice(
                padded, begins=(first,), ends=(first + (count - 1) * step + 1,), strides=(step,),
                axes=(axis + 2,),
            )
            for first in range(size)
        ]  # fmt: skip
        x = parts[0]
        for part in parts[1:]:
            x = std.add(x, part)
    return std.div(x, c.const(number if divisor is None else divisor, x.dtype))


def _members(size: int, count: int, kernel: int, stride: int, padding: int) -> Matrix:
    """Which elements of an axis are in each window: [count, size]."""
    begins = np.arange(count)[:, None] * stride - padding
    places = np.arange(size)[None]
    return ((places >= begins) & (places < begins + kernel)).astype(float)


@aten("avg_pool2d_backward avg_pool3d_backward")
def avg_pool_backward(
    c: Call, grad: Node, x: Node, kernel: Any, stride: Any, padding: Any, ceil_mode: bool,
    count_include_pad: bool, divisor_override: int | None,
) -> Node:  # fmt: skip
    spatial = spatial_dims(c)
    window, pads = window_numbers(c, spatial, kernel), window_numbers(c, spatial, padding)
    strides = window_numbers(c, spatial, stride) if stride else window
    sizes, counts = sizes_of(c, x.shape, spatial), sizes_of(c, grad.shape, spatial)
    made = accumulating(c, batched(grad, spatial))
    places = zip(sizes, counts, window, strides, pads, strict=True)
    members = [_members(*place) for place in places]
    for axis, member in enumerate(members):
        number = member.sum(1)
        if divisor_override is not None:
            number = np.full(counts[axis], 1.0)
        elif count_include_pad:
            begins = np.arange(counts[axis]) * strides[axis] - pads[axis]
            number = np.minimum(begins + window[axis], sizes[axis] + pads[axis]) - begins
        if not (number == 1).all():
            made = _divided(c, made, number, axis, spatial)
        made = along(made, axis + 2, member.T)
    if divisor_override is not None:
        made = std.div(made, c.const(divisor_override, made.dtype))
    return as_given(c.cast(made, c.dtype), x)


def adaptive_windows(size: int, count: int) -> list[tuple[int, int]]:
    """The begins and ends of the windows of an adaptive pool along an axis."""
    return [(place * size // count, -(-(place + 1) * size // count)) for place in range(count)]


def _adaptive_members(size: int, count: int) -> Matrix:
    members = np.zeros((count, size))
    for place, (begin, end) in enumerate(adaptive_windows(size, count)):
        members[place, begin:end] = 1
    return members


def _divided(c: Call, x: Node, numbers: Any, axis: int, spatial: int) -> Node:
    """The tensor divided by numbers along a spatial axis."""
    return std.div(x, c.const(on_axis(numbers, axis, spatial), x.dtype))


@aten("_adaptive_avg_pool2d adaptive_avg_pool2d _adaptive_avg_pool3d adaptive_avg_pool3d")
def adaptive_avg_pool(c: Call, x: Node, counts: Any) -> Node:
    spatial = spatial_dims(c)
    full = batched(x, spatial)
    if all(isinstance(count, int) and count == 1 for count in counts):
        axes = tuple(range(2, spatial + 2))
        if not x.dtype.is_float:
            raise c.unsupported(f"the mean of elements of {x.dtype}")
        return as_given(std.reduce_mean(full, axes=axes, keepdims=True), x)
    wanted, sizes = c.numbers(counts, "an adaptive pool of a size"), sizes_of(c, x.shape, spatial)
    pairs = list(zip(sizes, wanted, strict=True))
    if all(count and size % count == 0 for size, count in pairs):
        kernel = tuple(size // count for size, count in pairs)
        if x.dtype.is_float:
            return as_given(std.avg_pool(full, kernel=kernel, strides=kernel), x)
    made = accumulating(c, full)
    for axis, (size, count) in enumerate(pairs):
        members = _adaptive_members(size, count)
        made = _divided(c, along(made, axis + 2, members), members.sum(1), axis, spatial)
    return as_given(c.cast(made, x.dtype), x)


@aten("_adaptive_avg_pool2d_backward _adaptive_avg_pool3d_backward")
def adaptive_avg_pool_backward(c: Call, grad: Node, x: Node) -> Node:
    spatial = spatial_dims(c)
    sizes, counts = sizes_of(c, x.shape, spatial), sizes_of(c, grad.shape, spatial)
    made = accumulating(c, batched(grad, spatial))
    for axis, (size, count) in enumerate(zip(sizes, counts, strict=True)):
        members = _adaptive_members(size, count)
        made = along(_divided(c, made, members.sum(1), axis, spatial), axis + 2, members.T)
    return as_given(c.cast(made, c.dtype), x)
