"""Discrete Fourier transforms and mel filters with data-dependent lengths or axes: products with matrices
that are computed at run time.
"""

from __future__ import annotations

import math

from dlc_core.graph.node import Node, get_item
from dlc_core.ir.expr import Expr, as_expr, eq, logical_and, maximum, minimum, ne, select
from dlc_core.ir.types import Dim
from dlc_core.op import std
from dlc_frontend_onnx.converters.axes import checked_axis
from dlc_frontend_onnx.converters.base import Call
from dlc_frontend_onnx.converters.rescaling import real
from dlc_frontend_onnx.shapes import simple

MAX_DYNAMIC = 4096
"""Limit of the samples of a transform of data-dependent length; its matrices have the square of this size."""

MAX_FILTERS = 1 << 24
"""Limit of the elements of a matrix of mel filters, and of the samples of all frames."""


def split_parts(x: Node) -> tuple[Node, Node | None]:
    """Real and imaginary parts of [..., 1] or [..., 2]."""
    if x.shape[-1] == 1:
        return std.squeeze(x, axes=(-1,)), None
    split = std.split(x, sizes=(1, 1), axis=-1)
    return std.squeeze(get_item(split, 0), axes=(-1,)), std.squeeze(get_item(split, 1), axes=(-1,))


def dynamic_transform(c: Call, x: Node, size: Dim, *, inverse: bool, onesided: bool) -> Node:
    """Transform [..., samples, parts] along the samples, cropped or zero-padded to a possibly data-dependent
    size.

    Returns [..., frequencies, 2], or the signal [..., size, 1] of half a spectrum.
    """
    period = as_expr(size)
    what = f"a transform of data-dependent length has at most {MAX_DYNAMIC} samples"
    c.require(logical_and(period >= 1, period <= MAX_DYNAMIC), what)
    size = c.size(size, "the length")
    period = as_expr(size)
    halves = inverse and onesided
    used = period // 2 + 1 if halves else period
    rank = len(x.shape)
    rows = c.size(minimum(used, x.shape[-2]), "the samples")
    kept = std.slice(x, begins=(0,), ends=(rows,), axes=(rank - 2,))
    above, imaginary = split_parts(kept)
    count = c.size(period if inverse or not onesided else period // 2 + 1, "the frequencies")
    dtype = "float64" if x.dtype.name == "float64" else "float32"
    time = std.unsqueeze(std.arange(stop=rows, dtype="int64"), axes=(1,))
    revolutions = std.mod(std.mul(time, std.arange(stop=count, dtype="int64")), c.number_of(period))
    angle = std.div(c.const(2 * math.pi, dtype), c.cast(c.number_of(period), dtype))
    angles = std.mul(std.cast(revolutions, to=dtype), angle)
    # Cosines of quarter turns and sines of half turns are exactly 0; rounded angles would give tiny values.
    half, quarter = (
        std.equal(
            std.mod(std.mul(revolutions, c.const(k, "int64")), c.number_of(period)), c.const(0, "int64")
        )
        for k in (2, 4)
    )
    zero = c.const(0.0, dtype)
    cosines = std.where(std.logical_and(quarter, std.logical_not(half)), zero, std.cos(angles))
    sines = std.where(half, zero, std.sin(angles))
    if not inverse:
        sines = std.neg(sines)
    else:
        share = std.div(c.const(1.0, dtype), c.cast(c.number_of(period), dtype))
        if halves:
            # Each frequency counts twice, except the first and, for an even length, the middle one.
            alone = std.logical_or(
                std.equal(time, c.const(0, "int64")),
                std.equal(std.mul(time, c.const(2, "int64")), c.number_of(period)),
            )
            share = std.where(alone, share, std.mul(share, c.const(2.0, dtype)))
        cosines, sines = std.mul(cosines, share), std.mul(sines, share)
    cosines, sines = c.cast(cosines, x.dtype), c.cast(sines, x.dtype)
    above, below = std.matmul(above, cosines), std.matmul(above, sines)
    if imaginary is not None:
        above = std.sub(above, std.matmul(imaginary, sines))
        below = std.add(below, std.matmul(imaginary, cosines))
    return std.stack(*((above,) if halves else (above, below)), axis=-1)


def signal_axis(c: Call, axis: Dim, rank: int) -> Expr:
    """A possibly data-dependent axis of a signal [..., parts], checked at run time, in [0, rank - 1)."""
    position = checked_axis(c, axis, rank)
    c.require(ne(position, rank - 1), "the axis of the transform holds the parts of the numbers")
    return position


def dynamic_dft(c: Call, x: Node, axis: Dim, length: Dim | None, *, inverse: bool, onesided: bool) -> Node:
    """As `dynamic_transform`, along a possibly data-dependent axis."""
    rank = len(x.shape)
    position = signal_axis(c, axis, rank)
    before, here, behind = as_expr(1), as_expr(0), as_expr(1)
    for k, dim in enumerate(x.shape[:-1]):
        before = before * select(position > k, dim, 1)
        here = select(eq(position, k), dim, here)
        behind = behind * select(position < k, dim, 1)
    outer, have, inner = (c.size(simple(dim), "a dim") for dim in (before, here, behind))
    grid = std.transpose(std.reshape(x, shape=(outer, have, inner, x.shape[-1])), axes=(0, 2, 1, 3))
    size = length
    if size is None:
        size = simple(maximum((as_expr(have) - 1) * 2, 1)) if inverse and onesided else have
    made = dynamic_transform(c, grid, size, inverse=inverse, onesided=onesided)
    count = made.shape[2]
    dims = [
        c.size(simple(select(eq(position, k), count, dim)), "a dim") for k, dim in enumerate(x.shape[:-1])
    ]
    return std.reshape(std.transpose(made, axes=(0, 2, 1, 3)), shape=(*dims, made.shape[3]))


def dynamic_frames(
    c: Call, x: Node, hop: Dim, length: Dim | None, window: Node | None, *, onesided: bool
) -> Node:
    """Transform frames of a signal [batch, samples, 1 or 2] at regular steps; all sizes may be
    data-dependent.
    """
    positions = as_expr(x.shape[1])
    size = as_expr(x.shape[1] if length is None else length)
    if window is not None:
        if length is not None:
            c.require(eq(size, window.shape[0]), "the lengths of the window and the frames differ")
        size = as_expr(window.shape[0])
    step = as_expr(hop)
    c.require(step >= 1, "the frame_step is not positive")
    c.require(logical_and(size >= 1, size <= positions), "a frame is empty, or longer than the signal")
    each = c.size(size, "the frame_length")
    count = c.size(maximum((positions - size) // maximum(step, 1) + 1, 0), "the number of frames")
    starts = std.unsqueeze(std.mul(std.arange(stop=count, dtype="int64"), c.number_of(step)), axes=(1,))
    frames = std.gather(x, std.add(starts, std.arange(stop=each, dtype="int64")), axis=1)
    if window is not None:
        frames = std.mul(frames, std.unsqueeze(window, axes=(-1,)))
    return dynamic_transform(c, frames, each, inverse=False, onesided=onesided)


def dynamic_filters(c: Call, bins: Dim, length: Dim, rate: Dim, low: Node, high: Node, dtype: str) -> Node:
    """Triangular filters, evenly spaced in mels, over the bins of a spectrum: [length / 2 + 1, mel bins]."""
    numbers = [as_expr(value) for value in (bins, length, rate)]
    for given, what in zip(numbers, ("num_mel_bins", "dft_length", "sample_rate"), strict=True):
        c.require(logical_and(given >= 1, given <= MAX_FILTERS), f"{what} is not positive, or too large")
    c.require(numbers[0] * numbers[1] <= MAX_FILTERS, "the filters have too many elements")
    for edge in (low, high):
        (value,) = c.floats(std.reshape(c.cast(edge, "float32"), shape=(1,)), "an edge")
        lowest, highest = real(value) > -700.0, real(value) < 1e30
        c.require(logical_and(lowest, highest), "an edge is below -700 Hz, or NaN")
    count = c.size(numbers[0], "num_mel_bins")
    ln10, wide = math.log(10.0), "float64"

    def number(value: float) -> Node:
        return c.const(value, wide)

    def in_mels(edge: Node) -> Node:
        hertz = c.cast(std.reshape(edge, shape=()), wide)
        return std.mul(std.log(std.add(std.div(hertz, number(700.0)), number(1.0))), number(2595 / ln10))

    first, last = in_mels(low), in_mels(high)
    spacing = std.div(std.sub(last, first), c.cast(c.number_of(numbers[0] + 2), wide))
    above, samples = (c.cast(c.number_of(value), wide) for value in (numbers[1] + 1, numbers[2]))

    def position(behind: float) -> Node:
        """The bins at which the triangles begin, or those `behind` mel steps later."""
        steps = std.add(std.arange(stop=count, dtype=wide), number(behind))
        mels = std.add(first, std.mul(steps, spacing))
        hertz = std.mul(std.sub(std.exp(std.mul(mels, number(ln10 / 2595))), number(1.0)), number(700.0))
        return std.floor(std.div(std.mul(hertz, above), samples))

    lows, centres, highs = map(position, (0.0, 1.0, 2.0))
    rows = std.arange(stop=c.size(numbers[1] // 2 + 1, "the bins"), dtype=wide)
    spectrum = std.unsqueeze(rows, axes=(1,))
    one, zero = number(1.0), number(0.0)
    slope = std.div(std.sub(spectrum, lows), std.maximum(std.sub(centres, lows), one))
    peak = std.cast(std.equal(spectrum, centres), to=wide)
    rising = std.where(std.equal(lows, centres), peak, slope)
    falling = std.div(std.sub(highs, spectrum), std.maximum(std.sub(highs, centres), one))
    inside = std.logical_and(
        std.greater_equal(spectrum, lows), std.less(spectrum, std.maximum(highs, std.add(centres, one)))
    )
    left = std.logical_or(std.less(spectrum, centres), std.equal(highs, centres))
    return std.cast(std.where(inside, std.where(left, rising, falling), zero), to=dtype)


__all__ = ["MAX_FILTERS", "dynamic_dft", "dynamic_filters", "dynamic_frames", "signal_axis", "split_parts"]
