"""Discrete Fourier transforms along the last dim of pairs of real and imaginary parts.

A transform of few samples, or of a prime number of samples, is a GEMM with matrices of cosines and sines. One
of n = a b samples consists of a transforms of b samples and b of a samples, with a rotation between them
(Cooley and Tukey, "An algorithm for the machine calculation of complex Fourier series", 1965).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from dlc_core.graph.node import Node, constant
from dlc_core.op import std

MAX_DIRECT = 4096
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
    """Whether a transform of this size consists of GEMMs of at most `MAX_DIRECT`."""
    if not 0 < size <= MAX_SAMPLES:
        return False
    first = _factor(size)
    return size <= MAX_DIRECT if first == 1 else can_transform(first) and can_transform(size // first)


def transformed(parts: Parts, sign: int, count: int) -> tuple[Node, Node]:
    """The first `count` of the sums of x[t] exp(sign 2 pi i t k / n) over the n samples t."""
    real = parts[0]
    size = real.shape[-1]
    assert isinstance(size, int)
    first = _factor(size)
    if first == 1:
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


def _rotated(above: Node, below: Node, angles: Array, sign: int) -> tuple[Node, Node]:
    """The elements times exp(sign i angles)."""
    cosines, sines = _constant(np.cos(angles), above), _constant(sign * np.sin(angles), above)
    real = std.sub(std.mul(above, cosines), std.mul(below, sines))
    return real, std.add(std.mul(above, sines), std.mul(below, cosines))


def _swapped(x: Node) -> Node:
    """x with the last two dims exchanged."""
    rank = len(x.shape)
    return std.transpose(x, axes=(*range(rank - 2), rank - 1, rank - 2))


def _leading(x: Node, count: int) -> Node:
    return x if x.shape[-1] == count else std.slice(x, begins=(0,), ends=(count,), axes=(-1,))


__all__ = ["MAX_DIRECT", "MAX_SAMPLES", "can_transform", "halved", "mirrored", "transformed"]
