"""Maximum pools with the positions of the maxima, and their gradients.

The index is that of the first maximum in a window, or of the last NaN. It is an index into the flattened
spatial dims of the input.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dlc_core.graph.node import Node
from dlc_core.op import std
from dlc_core.op.infer import product
from dlc_core.support.record import record
from dlc_frontend_torch.aten.pooling import (
    adaptive_windows,
    as_given,
    batched,
    on_axis,
    sizes_of,
    spatial_dims,
    window_numbers,
)
from dlc_frontend_torch.aten.results import is_used
from dlc_frontend_torch.call import Call
from dlc_frontend_torch.registry import aten

MAX_UNROLLED = 16
"""The largest window whose elements are compared one after the other. Others are gathered first."""


@record(frozen=True)
class Axis:
    """The windows along an axis of `size` elements. Window k has `taps` elements at `begins[k]` and every
    `step` after it; those before 0 and from `ends[k]` on do not belong to it.
    """

    size: int
    begins: tuple[int, ...]
    ends: tuple[int, ...]
    taps: int
    step: int

    @property
    def positions(self) -> Any:
        """The index of each tap of each window, [windows, taps]."""
        return np.array(self.begins, np.int64)[:, None] + np.arange(self.taps) * self.step

    @property
    def inside(self) -> Any:
        """Which taps belong to their window, [windows, taps]."""
        return (self.positions >= 0) & (self.positions < np.array(self.ends, np.int64)[:, None])

    @property
    def clipped(self) -> Any:
        """`positions` with those outside moved to the ends of the axis."""
        return self.positions.clip(0, max(self.size - 1, 0))

    @property
    def first(self) -> Any:
        """The first element of each window."""
        return self.positions[np.arange(len(self.begins)), self.inside.argmax(1)]


def _regular(
    sizes: Sequence[int], counts: Sequence[int], kernel: Sequence[int], strides: Sequence[int],
    pads: Sequence[int], dilation: Sequence[int],
) -> list[Axis]:  # fmt: skip
    """The axes of a pool."""
    found = []
    for size, count, taps, stride, pad, step in zip(
        sizes, counts, kernel, strides, pads, dilation, strict=True
    ):
        begins = tuple(place * stride - pad for place in range(count))
        found.append(Axis(size, begins, (size,) * count, taps, step))
    return found


def _adaptive(sizes: Sequence[int], counts: Sequence[int]) -> list[Axis]:
    """The axes of an adaptive pool."""
    found = []
    for size, count in zip(sizes, counts, strict=True):
        windows = adaptive_windows(size, count)
        taps = max((end - begin for begin, end in windows), default=1)
        begins, ends = (tuple(window[side] for window in windows) for side in (0, 1))
        found.append(Axis(size, begins, ends, taps, 1))
    return found


def _lowest(c: Call, x: Node) -> Node:
    return c.const(-math.inf if x.dtype.is_float else np.iinfo(x.dtype.numpy).min, x.dtype)


def _flat(axes: Sequence[Axis], positions: Sequence[Any]) -> Any:
    """Indices into the flattened spatial dims, from arrays of the windows of each axis."""
    made: Any = 0
    for number, (axis, found) in enumerate(zip(axes, positions, strict=True)):
        made = made * axis.size + on_axis(found, number, len(axes))
    return np.asarray(made, np.int64)


def _taken(c: Call, x: Node, axes: Sequence[Axis], tap: Sequence[int]) -> Node:
    """One element of each window, or the lowest number where the tap is outside."""
    made, inside = x, np.array(True)
    for number, (axis, place) in enumerate(zip(axes, tap, strict=True)):
        made = std.gather(made, c.const(axis.clipped[:, place], "int64"), axis=number + 2)
        inside = inside & on_axis(axis.inside[:, place], number, len(axes))
    return made if inside.all() else std.where(c.const(inside, "bool"), made, _lowest(c, x))


def _compared(c: Call, x: Node, axes: Sequence[Axis]) -> tuple[Node, Node]:
    """The maxima and their positions, by comparisons of the elements of the windows in order."""
    best = index = None
    for tap in itertools.product(*(range(axis.taps) for axis in axes)):
        value = _taken(c, x, axes, tap)
        positions = _flat(axes, [axis.positions[:, place] for axis, place in zip(axes, tap, strict=True)])
        if best is None or index is None:
            # If all elements are -inf, the index is that of the first one in the window.
            first = _flat(axes, [axis.first for axis in axes])
            best, index = value, c.broadcast(c.const(first, "int64"), value.shape)
            continue
        better = std.greater(value, best)
        if x.dtype.is_float:
            better = std.logical_or(better, std.isnan(value))
        best, index = std.where(better, value, best), std.where(better, c.const(positions, "int64"), index)
    assert best is not None
    assert index is not None
    return best, index


def _matched(c: Call, x: Node, best: Node, axes: Sequence[Axis], strides: Sequence[int]) -> Node:
    """The positions of known maxima, as one pass over the taps: slices of the padded input are compared with
    the maxima. The first equal tap is the position, or the last NaN.
    """
    rank = len(axes)
    before = tuple(-axis.begins[0] for axis in axes)
    reach = [axis.begins[-1] + (axis.taps - 1) * axis.step + 1 for axis in axes]
    after = tuple(max(end - axis.size, 0) for end, axis in zip(reach, axes, strict=True))
    lowest = _lowest(c, x)
    pads = (0, 0, *before, 0, 0, *after)
    value = float(lowest.attrs["value"].data)
    padded = std.pad(x, pads=pads, value=value) if any(pads) else x
    spatial = tuple(range(2, 2 + rank))
    taps = list(itertools.product(*(range(axis.taps) for axis in axes)))
    values, offsets = [], []
    for tap in taps:
        begins = tuple(place * axis.step for place, axis in zip(tap, axes, strict=True))
        ends = tuple(
            begin + (len(axis.begins) - 1) * stride + 1
            for begin, axis, stride in zip(begins, axes, strides, strict=True)
        )
        values.append(std.slice(padded, begins=begins, ends=ends, strides=tuple(strides), axes=spatial))
        offset = 0
        for begin, axis in zip(begins, axes, strict=True):
            offset = offset * axis.size + begin
        offsets.append(c.const(offset, "int32"))
    found = offsets[-1]
    for each, own in zip(values[-2::-1], offsets[-2::-1], strict=True):
        found = std.where(std.equal(each, best), own, found)
    if x.dtype.is_float:
        unknown = offsets[0]
        for each, own in zip(values[1:], offsets[1:], strict=True):
            unknown = std.where(std.isnan(each), own, unknown)
        found = std.where(std.isnan(best), unknown, found)
    origin = _flat(axes, [np.array(axis.begins, np.int64) for axis in axes])
    index = std.add(c.cast(found, "int64"), c.const(origin, "int64"))
    # Padding is as low as a window without larger elements: its first element counts.
    first = c.const(_flat(axes, [axis.first for axis in axes]), "int64")
    return std.where(std.equal(best, lowest), first, index)


def _searched(c: Call, x: Node, axes: Sequence[Axis]) -> tuple[Node, Node]:
    """The maxima and their positions, by a reduction over gathered windows."""
    rank = len(axes)
    made, inside = x, np.array(True)
    for number, axis in enumerate(axes):
        made = std.gather(made, c.const(axis.clipped, "int64"), axis=2 + 2 * number)
        shape = [1] * (2 * rank)
        shape[2 * number : 2 * number + 2] = axis.clipped.shape
        inside = inside & axis.inside.reshape(shape)
    if not inside.all():
        made = std.where(c.const(inside, "bool"), made, _lowest(c, x))
    order = (0, 1, *range(2, 2 + 2 * rank, 2), *range(3, 2 + 2 * rank, 2))
    counts, taps = tuple(len(axis.begins) for axis in axes), [axis.taps for axis in axes]
    windows = std.reshape(std.transpose(made, axes=order), shape=(*x.shape[:2], *counts, math.prod(taps)))
    best = std.reduce_max(windows, axes=(-1,))
    found = std.argmax(windows, axis=-1)
    if x.dtype.is_float:
        unknown = c.cast(std.isnan(windows), "uint8")
        found = std.where(std.isnan(best), std.argmax(unknown, axis=-1, select_last=True), found)
    index = rest = None
    for number in reversed(range(rank)):
        axis = axes[number]
        place = found if rest is None else rest
        begins = c.const(on_axis(np.array(axis.begins, np.int64), number, rank), "int64")
        own = std.mod(place, c.const(taps[number], "int64")) if number else place
        rest = std.floordiv(place, c.const(taps[number], "int64"))
        at = std.add(std.mul(own, c.const(axis.step, "int64")), begins)
        at = std.mul(at, c.const(math.prod(other.size for other in axes[number + 1 :]), "int64"))
        index = at if index is None else std.add(index, at)
    assert index is not None
    first = c.const(_flat(axes, [axis.first for axis in axes]), "int64")
    return best, std.where(std.equal(best, _lowest(c, x)), first, index)


def _with_indices(c: Call, x: Node, axes: Sequence[Axis]) -> tuple[Node, Node]:
    if math.prod(axis.taps for axis in axes) <= MAX_UNROLLED:
        return _compared(c, x, axes)
    return _searched(c, x, axes)


@aten("max_pool2d_with_indices max_pool3d_with_indices")
def max_pool(
    c: Call, x: Node, kernel: Any, stride: Any = (), padding: Any = (0,), dilation: Any = (1,),
    ceil_mode: bool = False,
) -> tuple[Node, Node | None]:  # fmt: skip
    spatial = spatial_dims(c)
    window, pads, steps = (window_numbers(c, spatial, each) for each in (kernel, padding, dilation))
    strides = window_numbers(c, spatial, stride) if stride else window
    full = batched(x, spatial)
    best = std.max_pool(
        full, kernel=window, strides=strides, padding=(*pads, *pads), dilation=steps, ceil_mode=ceil_mode
    )
    index = None
    if is_used(c, 1):
        sizes, counts = (sizes_of(c, each, spatial) for each in (full.shape, best.shape))
        axes = _regular(sizes, counts, window, strides, pads, steps)
        if math.prod(window) <= MAX_UNROLLED and 0 not in sizes and 0 not in counts:
            found = _matched(c, full, best, axes, strides)
        else:
            found = _with_indices(c, full, axes)[1]
        index = as_given(found, x)
    return as_given(best, x), index


@aten("adaptive_max_pool2d adaptive_max_pool3d")
def adaptive_max_pool(c: Call, x: Node, counts: Any) -> tuple[Node, Node]:
    spatial = spatial_dims(c)
    full = batched(x, spatial)
    axes = _adaptive(sizes_of(c, x.shape, spatial), c.numbers(counts, "an adaptive pool of a size"))
    best, index = _with_indices(c, full, axes)
    return as_given(best, x), as_given(index, x)


@aten("max_pool2d_with_indices_backward max_pool3d_with_indices_backward")
@aten("adaptive_max_pool2d_backward adaptive_max_pool3d_backward")
def max_pool_backward(c: Call, grad: Node, x: Node, *given: Any) -> Node:
    """Add the gradient of each window at the place of its maximum, whose index is the last argument."""
    spatial, index = spatial_dims(c), given[-1]
    images = product(x.shape[: len(x.shape) - spatial])
    size = product(x.shape[len(x.shape) - spatial :])
    count = product(grad.shape[len(grad.shape) - spatial :])
    zeros = c.full((images, size), 0, x.dtype)
    made = std.scatter_elements(
        zeros,
        std.reshape(index, shape=(images, count)),
        std.reshape(grad, shape=(images, count)),
        axis=1,
        reduction="add",
    )
    return std.reshape(made, shape=tuple(x.shape))
