"""Discrete Fourier transforms along the last dim of pairs of real and imaginary parts.

A transform of few samples, or of a prime number of samples, is a GEMM with matrices of cosines and sines. One
of n = a b samples consists of a transforms of b samples and b of a samples, with a rotation between them
(Cooley and Tukey, "An algorithm for the machine calculation of complex Fourier series", 1965). One of a large
prime number of samples is a convolution, by transforms of a power of two of samples (Bluestein, "A linear
filtering approach to the computation of discrete Fourier transform", 1970). So n samples take O(n log n)
operations.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from dlc_core.graph.node import Node, constant
from dlc_core.op import std

MAX_DIRECT = 512
"""Limit of samples of a transform by one product; its matrices have the square of this size."""

MAX_SAMPLES = 1 << 24
"""Limit of samples of a transform."""

_DIRECT = 8
"""Transforms of up to this many samples are not factored."""

_FACTOR = 32
"""The first factor is the largest one up to this, so that the products are few and large."""

Array = npt.NDArray[Any]

Parts = tuple[Node, Node | None]
"""Real and imaginary parts of the same shape; None means zeros."""


def can_transform(size: int) -> bool:
    """Whether a transform has a supported number of samples."""
    return 0 < size <= MAX_SAMPLES


def transformed(parts: Parts, sign: int, count: int) -> tuple[Node, Node]:
    """The first `count` of the sums of x[t] exp(sign 2 pi i t k / n) over the n samples t."""
    real = parts[0]
    size = real.shape[-1]
    assert isinstance(size, int)
    if len(real.shape) == 1:
        rows = tuple(None if part is None else std.unsqueeze(part, axes=(0,)) for part in parts)
        assert rows[0] is not None
        above, below = transformed((rows[0], rows[1]), sign, count)
        return std.squeeze(above, axes=(0,)), std.squeeze(below, axes=(0,))
    first = _factor(size)
    if first == 1:
        if size > MAX_DIRECT:
            return _convolved(parts, sign, count)
        return _product(parts, _angles(size, count, size), sign)
    second = size // first
    shape = (*real.shape[:-1], first, second)
    grid = tuple(None if part is None else _swapped(std.reshape(part, shape=shape)) for part in parts)
    assert grid[0] is not None
    above, below = map(_swapped, transformed((grid[0], grid[1]), sign, first))
    rotated = _rotated(above, below, _angles(first, second, size), sign)
    columns = -(-count // first)
    made = transformed(rotated, sign, columns)
    whole = (*real.shape[:-1], columns * first)
    above, below = (std.reshape(_swapped(part), shape=whole) for part in made)
    return _leading(above, count), _leading(below, count)


def halved(parts: Parts, size: int) -> Parts:
    """The first half of the spectrum of a real signal, size // 2 + 1 frequencies, with exact zeros.

    The imaginary part is zero at frequency 0 and, for an even number of samples, in the middle.
    """
    real, imaginary = parts
    if imaginary is None:
        return parts
    positions = np.arange(size // 2 + 1)
    free = constant((positions > 0) & (positions <= (size - 1) // 2))
    return real, std.where(free, imaginary, _constant(np.zeros(()), imaginary))


def mirrored(parts: Parts, size: int) -> Parts:
    """The spectrum of a real signal of `size` samples from its first half, size // 2 + 1 frequencies."""
    real, imaginary = halved(parts, size)
    behind = constant(np.arange((size - 1) // 2, 0, -1))
    whole = std.concat(real, std.gather(real, behind, axis=-1), axis=-1)
    if imaginary is None:
        return whole, None
    return whole, std.concat(imaginary, std.neg(std.gather(imaginary, behind, axis=-1)), axis=-1)


def _factor(size: int) -> int:
    """The smaller of two factors; 1 if the transform is one product."""
    if size <= _DIRECT:
        return 1
    found = [k for k in range(2, math.isqrt(size) + 1) if size % k == 0]
    return max((k for k in found if k <= _FACTOR), default=min(found, default=1))


def _convolved(parts: Parts, sign: int, count: int) -> tuple[Node, Node]:
    """A transform as a convolution: t k = (t^2 + k^2 - (k - t)^2) / 2."""
    given = parts[0].dtype
    if given.bits < 32:
        real, imaginary = (None if part is None else std.cast(part, to="float32") for part in parts)
        assert real is not None
        above, below = _convolved((real, imaginary), sign, count)
        return std.cast(above, to=given), std.cast(below, to=given)
    real, imaginary = parts
    size = real.shape[-1]
    assert isinstance(size, int)
    squares = np.pi / size * (np.arange(size) ** 2 % (2 * size))
    above, below = _rotated(real, imaginary, squares, sign)
    whole = 1 << (2 * size - 2).bit_length()
    filters = np.zeros(whole, np.complex128)
    filters[:size] = np.exp(-1j * sign * squares)
    filters[whole - size + 1 :] = filters[size - 1 : 0 : -1]
    spectrum = np.fft.fft(filters) / whole
    padded = tuple(_padded(part, whole) for part in (above, below))
    above, below = transformed((padded[0], padded[1]), -1, whole)
    cosines, sines = _constant(spectrum.real, above), _constant(spectrum.imag, above)
    product = (
        std.sub(std.mul(above, cosines), std.mul(below, sines)),
        std.add(std.mul(above, sines), std.mul(below, cosines)),
    )
    above, below = transformed(product, 1, count)
    return _rotated(above, below, squares[:count], sign)


def _padded(x: Node, size: int) -> Node:
    rank = len(x.shape)
    pads = [0] * (2 * rank)
    pads[-1] = size - x.shape[-1]
    return std.pad(x, pads=tuple(pads))


def _angles(rows: int, columns: int, size: int) -> Array:
    return 2 * np.pi / size * (np.outer(np.arange(rows), np.arange(columns)) % size)


def _constant(values: Array, like: Node) -> Node:
    return constant(values.astype(like.dtype.numpy))


def _product(parts: Parts, angles: Array, sign: int) -> tuple[Node, Node]:
    """The vectors of both parts multiplied by exp(sign i angles)."""
    real, imaginary = parts
    cosines, sines = _constant(np.cos(angles), real), _constant(sign * np.sin(angles), real)
    above, below = std.matmul(real, cosines), std.matmul(real, sines)
    if imaginary is not None:
        above = std.sub(above, std.matmul(imaginary, sines))
        below = std.add(below, std.matmul(imaginary, cosines))
    return above, below


def _rotated(above: Node, below: Node | None, angles: Array, sign: int) -> tuple[Node, Node]:
    """The elements times exp(sign i angles)."""
    cosines, sines = _constant(np.cos(angles), above), _constant(sign * np.sin(angles), above)
    if below is None:
        return std.mul(above, cosines), std.mul(above, sines)
    real = std.sub(std.mul(above, cosines), std.mul(below, sines))
    return real, std.add(std.mul(above, sines), std.mul(below, cosines))


def _swapped(x: Node) -> Node:
    """x with the last two dims exchanged."""
    rank = len(x.shape)
    return std.transpose(x, axes=(*range(rank - 2), rank - 1, rank - 2))


def _leading(x: Node, count: int) -> Node:
    return x if x.shape[-1] == count else std.slice(x, begins=(0,), ends=(count,), axes=(-1,))


__all__ = ["MAX_DIRECT", "MAX_SAMPLES", "can_transform", "halved", "mirrored", "transformed"]
