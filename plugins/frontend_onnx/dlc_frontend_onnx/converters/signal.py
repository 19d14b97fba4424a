"""Discrete Fourier transforms as products with matrices of cosines and sines."""

from __future__ import annotations

import numpy as np

from dlc_core.graph.node import Node, get_item
from dlc_core.op import std
from dlc_frontend_onnx.converters.base import Call, converter

MAX_LENGTH = 4096
"""Places of a transform at most: its matrices have the square of that."""


@converter("DFT", 17)
def dft_17(c: Call, x: Node, length: Node | None = None) -> Node:
    return _dft(c, x, length, c.integer("axis", 1))


@converter("DFT", 20)
def dft(c: Call, x: Node, length: Node | None = None, axis: Node | None = None) -> Node:
    return _dft(c, x, length, -2 if axis is None else c.number(axis, "the axis"))


def _dft(c: Call, x: Node, length: Node | None, axis: int) -> Node:
    """x is [..., 1] of real or [..., 2] of complex numbers."""
    rank = len(x.shape)
    if rank < 2 or x.shape[-1] not in (1, 2):
        raise c.error(f"the last dim of {x.type} must be 1 or 2")
    place = c.check_axis(axis, rank)
    if place == rank - 1:
        raise c.error("the axis of the transform holds the parts of the numbers")
    inverse, onesided = c.flag("inverse"), c.flag("onesided")
    have = x.shape[place]
    given = None if length is None else c.number(length, "the length")
    if not isinstance(have, int):
        raise c.unsupported(f"a transform along a dim of {have}", hint="pin the dim with shapes={...}")
    halves = inverse and onesided
    size = given if given is not None else 2 * (have - 1) if halves else have
    used = size // 2 + 1 if halves else size
    if not 0 < size <= MAX_LENGTH:
        raise c.unsupported(f"a transform of {size} places; at most {MAX_LENGTH} are supported")
    fitted = _fitted(x, place, have, used)
    real, imaginary = _parts(c, fitted)
    order = (*(k for k in range(rank - 1) if k != place), place)
    rows = [None if part is None else std.transpose(part, axes=order) for part in (real, imaginary)]
    made = _halves(c, rows, size, used) if halves else _whole(c, rows, size, inverse, onesided)
    back = tuple(order.index(k) for k in range(rank - 1))
    return std.stack(*(std.transpose(part, axes=back) for part in made), axis=-1)


def _fitted(x: Node, axis: int, have: int, size: int) -> Node:
    """Cut, or filled with zeros."""
    if size <= have:
        return x if size == have else std.slice(x, begins=(0,), ends=(size,), axes=(axis,))
    pads = [0] * (2 * len(x.shape))
    pads[len(x.shape) + axis] = size - have
    return std.pad(x, pads=tuple(pads))


def _parts(c: Call, x: Node) -> tuple[Node, Node | None]:
    if x.shape[-1] == 1:
        return std.squeeze(x, axes=(-1,)), None
    split = std.split(x, sizes=(1, 1), axis=-1)
    return std.squeeze(get_item(split, 0), axes=(-1,)), std.squeeze(get_item(split, 1), axes=(-1,))


def _matrices(c: Call, size: int, columns: int, dtype: str) -> tuple[Node, Node]:
    angles = 2 * np.pi / size * (np.outer(np.arange(size), np.arange(columns)) % size)
    return c.const(np.cos(angles), dtype), c.const(np.sin(angles), dtype)


def _whole(c: Call, rows: list[Node | None], size: int, inverse: bool, onesided: bool) -> tuple[Node, Node]:
    """exp(-i angle) from every place to every frequency; the inverse has the other sign and divides."""
    real, imaginary = rows
    assert real is not None
    dtype = real.dtype.name
    cosines, sines = _matrices(c, size, size // 2 + 1 if onesided else size, dtype)
    sign = 1 if inverse else -1
    above = std.matmul(real, cosines)
    below = std.matmul(real, sines)
    below = below if sign > 0 else std.neg(below)
    if imaginary is not None:
        turned = std.matmul(imaginary, sines)
        above = std.sub(above, turned) if sign > 0 else std.add(above, turned)
        below = std.add(below, std.matmul(imaginary, cosines))
    if inverse:
        whole = c.const(size, dtype)
        return std.div(above, whole), std.div(below, whole)
    return above, below


def _halves(c: Call, rows: list[Node | None], size: int, used: int) -> tuple[Node]:
    """The real signal of half a spectrum, whose other half is its mirror image."""
    real, imaginary = rows
    assert real is not None
    dtype = real.dtype.name
    weights = np.full(used, 2.0)
    weights[0] = 1.0
    if size % 2 == 0:
        weights[-1] = 1.0
    angles = 2 * np.pi / size * (np.outer(np.arange(used), np.arange(size)) % size)
    total = std.matmul(real, c.const(np.cos(angles) * weights[:, None] / size, dtype))
    if imaginary is not None:
        turned = std.matmul(imaginary, c.const(np.sin(angles) * weights[:, None] / size, dtype))
        total = std.sub(total, turned)
    return (total,)
