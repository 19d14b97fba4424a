"""Discrete Fourier transforms of signals and of their frames; mel filters."""

from __future__ import annotations

import math

import numpy as np

from dlc_core.graph.node import Node
from dlc_core.ir.dtype import DType
from dlc_core.ir.expr import Expr, eq
from dlc_core.ir.types import Dim
from dlc_core.op import std
from dlc_core.op.fourier import (
    MAX_SAMPLES,
    Parts,
    can_transform,
    halved,
    mirrored,
    transformed,
)
from dlc_frontend_onnx.converters.base import MICROSOFT, Call, converter
from dlc_frontend_onnx.converters.dynamic_fourier import (
    MAX_FILTERS,
    dynamic_dft,
    dynamic_filters,
    dynamic_frames,
    signal_axis,
    split_parts,
)


@converter("DFT", 17)
def dft_17(c: Call, x: Node, length: Node | None = None) -> Node:
    return _dft(c, x, length, c.integer("axis", 1))


@converter("DFT", 20)
def dft(c: Call, x: Node, length: Node | None = None, axis: Node | None = None) -> Node:
    return _dft(c, x, length, -2 if axis is None else c.element(axis, "the axis"))


def _dft(c: Call, x: Node, length: Node | None, axis: Dim) -> Node:
    """x is [..., 1] for real or [..., 2] for complex numbers."""
    rank = len(x.shape)
    if rank < 2 or (isinstance(x.shape[-1], int) and x.shape[-1] not in (1, 2)):
        raise c.error(f"the last dim of {x.type} must be 1 or 2")
    if not isinstance(x.shape[-1], int):
        what = f"the last dim of {x.type} must be static: it is 1 for real numbers"
        raise c.unsupported(what, hint="pin the dim with shapes={...}")
    given = None if length is None else c.element(length, "the length")
    inverse, onesided = c.flag("inverse"), c.flag("onesided")
    position = c.check_axis(axis, rank) if isinstance(axis, int) else None
    if position == rank - 1:
        raise c.error("the axis of the transform holds the parts of the numbers")
    sizes = [size for size in x.shape[:-1] if isinstance(size, int) and can_transform(size)]
    if position is None and length is None and not onesided and len(sizes) == rank - 1:
        # If all sizes are static, compute the fast transform along each axis and select one of them.
        along = signal_axis(c, axis, rank)
        made = _transformed(c, x, 0, None, inverse=inverse, onesided=False)
        for other in range(1, rank - 1):
            here = _transformed(c, x, other, None, inverse=inverse, onesided=False)
            made = std.where(c.number_of(eq(along, other)), here, made)
        return made
    if position is None or isinstance(given, Expr):
        return dynamic_dft(c, x, axis, given, inverse=inverse, onesided=onesided)
    return _transformed(c, x, position, given, inverse=inverse, onesided=onesided)


def _transformed(
    c: Call, x: Node, position: int, given: int | None, *, inverse: bool, onesided: bool
) -> Node:
    """The transform along an axis of a signal that is cropped or zero-padded to a length."""
    rank = len(x.shape)
    have = x.shape[position]
    if not isinstance(have, int):
        return dynamic_dft(c, x, position, given, inverse=inverse, onesided=onesided)
    halves = inverse and onesided
    size = given if given is not None else 2 * (have - 1) if halves else have
    used = size // 2 + 1 if halves else size
    if not can_transform(size):
        raise c.unsupported(
            f"a transform of {size} samples",
            why=f"at most {MAX_SAMPLES} are supported",
        )
    fitted = _fitted(x, position, have, used)
    real, imaginary = split_parts(fitted)
    order = (*(k for k in range(rank - 1) if k != position), position)
    rows = tuple(None if part is None else std.transpose(part, axes=order) for part in (real, imaginary))
    assert rows[0] is not None
    made = _spectrum((rows[0], rows[1]), size, 1 if inverse else -1, onesided=onesided, halves=halves)
    if inverse:
        whole = c.const(size, x.dtype)
        made = (std.div(made[0], whole), std.div(made[1], whole))
    back = tuple(order.index(k) for k in range(rank - 1))
    return std.stack(*(std.transpose(part, axes=back) for part in made[: 2 - halves]), axis=-1)


def _spectrum(parts: Parts, size: int, sign: int, *, onesided: bool, halves: bool) -> tuple[Node, Node]:
    """The whole spectrum of a signal, or half of it, or the signal of half a spectrum (`halves`)."""
    half = size // 2 + 1
    if halves:
        return transformed(mirrored(parts, size), sign, size)
    if parts[1] is not None:
        return transformed(parts, sign, half if onesided else size)
    real, imaginary = (halved if onesided else mirrored)(transformed(parts, sign, half), size)
    assert imaginary is not None
    return real, imaginary


def _fitted(x: Node, axis: int, have: int, size: int) -> Node:
    """The axis cropped or zero-padded to `size`."""
    if size <= have:
        return x if size == have else std.slice(x, begins=(0,), ends=(size,), axes=(axis,))
    pads = [0] * (2 * len(x.shape))
    pads[len(x.shape) + axis] = size - have
    return std.pad(x, pads=tuple(pads))


@converter("Rfft Irfft", 1, MICROSOFT)
def rfft(c: Call, x: Node) -> Node:
    """Transforms of real signals along their last dims, to or from half spectra [..., 2]."""
    dims = c.integer("signal_ndim")
    if c.integer("normalized", 0) or not c.flag("onesided", True):
        raise c.unsupported(f"{c.node.op} that is normalized or two-sided")
    inverse = c.node.op == "Irfft"
    rank = len(x.shape) - inverse
    if not 1 <= dims <= rank or (inverse and x.shape[-1] != 2):
        raise c.error(f"{c.node.op} of {dims} dims of {x.type}")
    made = x if inverse else std.unsqueeze(x, axes=(-1,))
    axes = range(rank - dims, rank)
    for position in axes if inverse else reversed(axes):
        made = _transformed(c, made, position, None, inverse=inverse, onesided=position == rank - 1)
    return std.squeeze(made, axes=(-1,)) if inverse else made


@converter("STFT", 17)
def stft(c: Call, x: Node, step: Node, window: Node | None = None, length: Node | None = None) -> Node:
    """Transform frames of a signal [batch, samples, 1 or 2] at regular steps."""
    onesided = c.flag("onesided", True)
    if len(x.shape) != 3 or x.shape[-1] not in (1, 2):
        raise c.error(f"a signal of {x.type}", why="it must be [batch, samples, 1 or 2]")
    if window is not None and len(window.shape) != 1:
        raise c.error(f"a window of {window.type}", why="it must be a vector")
    positions, hop = x.shape[1], c.element(step, "the frame_step")
    size = positions if length is None else c.element(length, "the frame_length")
    own = size if window is None else window.shape[0]
    if not (
        isinstance(positions, int) and isinstance(hop, int) and isinstance(size, int) and isinstance(own, int)
    ):
        return dynamic_frames(c, x, hop, None if length is None else size, window, onesided=onesided)
    if window is not None:
        if length is not None and own != size:
            raise c.error(f"a window of {own} samples for frames of {size}")
        size = own
    if hop < 1 or not 1 <= size <= positions:
        raise c.error(f"frames of {size} samples, one every {hop}, of a signal of {positions}")
    count = (positions - size) // hop + 1
    if count * size > MAX_FILTERS:
        raise c.unsupported(f"{count} frames of {size} samples", why=f"at most {MAX_FILTERS} are supported")
    where = np.arange(count)[:, None] * hop + np.arange(size)
    frames = std.gather(x, c.const(where, "int64"), axis=1)
    if window is not None:
        frames = std.mul(frames, std.unsqueeze(window, axes=(-1,)))
    return _transformed(c, frames, 2, size, inverse=False, onesided=onesided)


@converter("MelWeightMatrix", 17)
def mel_weight_matrix(c: Call, bins: Node, length: Node, rate: Node, low: Node, high: Node) -> Node:
    """Triangular filters, evenly spaced in mels, over the bins of a spectrum: [length / 2 + 1, mel bins]."""
    dtype = c.dtype("output_datatype", 1) if "output_datatype" in c.node.attrs else DType("float32")
    given = ((bins, "num_mel_bins"), (length, "dft_length"), (rate, "sample_rate"))
    count, size, samples = (c.element(value, what) for value, what in given)
    if not (isinstance(count, int) and isinstance(size, int) and isinstance(samples, int)) or any(
        c.array(edge) is None for edge in (low, high)
    ):
        return dynamic_filters(c, count, size, samples, low, high, dtype.name)
    ends = [c.scalar(value, what) for value, what in ((low, "the lower edge"), (high, "the upper edge"))]
    positive = count > 0 and size > 0 and samples > 0
    if not positive or not all(-700 < edge < math.inf for edge in ends) or count * size > MAX_FILTERS:
        raise c.error(f"{count} mel bins of a transform of {size} samples at {samples} Hz from {ends}")
    first, last = (2595 * np.log10(1 + edge / 700) for edge in ends)
    mels = first + np.arange(count + 2) * ((last - first) / (count + 2))
    positions = np.floor((size + 1) * (700 * (10 ** (mels / 2595) - 1)) / samples).astype(np.int64)
    lows, centres, highs = positions[:-2], positions[1:-1], positions[2:]
    spectrum = np.arange(size // 2 + 1)[:, None]
    rising = np.where(lows == centres, spectrum == centres, (spectrum - lows) / np.maximum(centres - lows, 1))
    falling = (highs - spectrum) / np.maximum(highs - centres, 1)
    inside = (spectrum >= lows) & (spectrum < np.maximum(highs, centres + 1))
    weights = np.where(inside, np.where((spectrum < centres) | (highs == centres), rising, falling), 0)
    return c.const(weights, dtype)
