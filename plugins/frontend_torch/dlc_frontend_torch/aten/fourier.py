"""Discrete Fourier transforms along dimensions of numbers of samples that are known.

A transform takes O(n log n) operations for every number n of samples; see `dlc_core.op.fourier`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from dlc_core.graph.node import Node
from dlc_core.op import std
from dlc_core.op.fourier import MAX_SAMPLES, Parts, can_transform, halved, mirrored, transformed
from dlc_frontend_torch.aten.slicing import elements, sliced
from dlc_frontend_torch.call import Call
from dlc_frontend_torch.complex_value import Complex
from dlc_frontend_torch.registry import aten, complex_aten
from dlc_frontend_torch.weights import as_constant

NONE, ORTHOGONAL, BY_COUNT = range(3)
"""How results are normalized: not, by the root of the number of samples, or by this number."""


def _samples(c: Call, size: object) -> int:
    count = c.number(size, "a Fourier transform of a number of samples")
    if not can_transform(count):
        raise c.unsupported(f"a Fourier transform of {count} samples (1 to {MAX_SAMPLES} are)")
    return count


def _last(x: Parts, axis: int) -> tuple[Parts, tuple[int, ...]]:
    """The parts with an axis at the end, and the permutation back."""
    rank = len(x[0].shape)
    order = (*(k for k in range(rank) if k != axis), axis)
    moved = tuple(None if part is None else std.transpose(part, axes=order) for part in x)
    assert moved[0] is not None
    return (moved[0], moved[1]), tuple(order.index(k) for k in range(rank))


def _along(c: Call, x: Complex, axes: Sequence[int], sign: int) -> Complex:
    """Transforms of complex numbers along axes."""
    for axis in axes:
        moved, back = _last((x.real, x.imaginary), axis)
        count = _samples(c, x.shape[axis])
        x = Complex(*(std.transpose(part, axes=back) for part in transformed(moved, sign, count)))
    return x


def _normalized(c: Call, x: Complex, how: int, count: object) -> Complex:
    if how == NONE:
        return x
    whole = c.number(count, "a Fourier transform of a number of samples")
    factor = c.const(1 / (math.sqrt(whole) if how == ORTHOGONAL else whole), c.dtype)
    return x.map(lambda part: std.mul(part, factor))


@aten("fft_fftfreq fft_rfftfreq")
def frequencies(c: Call, count: object, d: float = 1.0, **_: object) -> Node:
    make = torch.fft.rfftfreq if "rfftfreq" in c.op else torch.fft.fftfreq
    return as_constant(make(c.number(count, "a number of frequencies"), d, dtype=c.value.dtype))


@complex_aten("_fft_c2c")
def fft_c2c(c: Call, x: Complex, dim: Sequence[int], normalization: int, forward: bool) -> Complex:
    axes = [c.axis(each, len(x.shape)) for each in dim]
    made = _along(c, x, axes, -1 if forward else 1)
    return _normalized(c, made, normalization, elements([x.shape[axis] for axis in axes]))


@complex_aten("_fft_r2c")
def fft_r2c(c: Call, x: Node, dim: Sequence[int], normalization: int, onesided: bool) -> Complex:
    """The last dim has a half spectrum, or a whole one, of which the other half are conjugates."""
    axes = [c.axis(each, len(x.shape)) for each in dim]
    size = _samples(c, x.shape[axes[-1]])
    moved, back = _last((x, None), axes[-1])
    half = transformed(moved, -1, size // 2 + 1)
    real, imaginary = (halved if onesided else mirrored)(half, size)
    assert imaginary is not None
    made = Complex(*(std.transpose(part, axes=back) for part in (real, imaginary)))
    made = _along(c, made, axes[:-1], -1)
    return _normalized(c, made, normalization, elements([x.shape[axis] for axis in axes]))


@complex_aten("_fft_c2r")
def fft_c2r(c: Call, x: Complex, dim: Sequence[int], normalization: int, last_dim_size: object) -> Node:
    """The last dim has a half spectrum of real numbers."""
    axes = [c.axis(each, len(x.shape)) for each in dim]
    size = _samples(c, last_dim_size)
    made = _along(c, x, axes[:-1], 1)
    kept = made.map(lambda part: sliced(part, axes[-1], 0, size // 2 + 1))
    moved, back = _last((kept.real, kept.imaginary), axes[-1])
    signal, other = transformed(mirrored(moved, size), 1, size)
    del other  # zeros
    found = Complex(std.transpose(signal, axes=back), std.transpose(signal, axes=back))
    count = elements([*(x.shape[axis] for axis in axes[:-1]), size])
    return _normalized(c, found, normalization, count).real
