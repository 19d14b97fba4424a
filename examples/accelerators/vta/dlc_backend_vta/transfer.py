"""Where the elements of a transfer are, and how long it takes."""

from __future__ import annotations

from typing import Any

import numpy as np

from dlc_backend_vta.config import Config
from dlc_backend_vta.isa import Transfer
from dlc_core.diag import RuntimeFailure

NDArray = np.ndarray[Any, Any]


def size_of(one: Transfer) -> int:
    """Bytes of an element on the card."""
    return 4 if one.wide else 1


def reach(one: Transfer) -> int:
    """The first byte behind all that a transfer touches on the card."""
    if not (one.z and one.y and one.x and one.a and one.b):
        return one.offset
    last = (one.z - 1) * one.zs + (one.y - 1) * one.ys + (one.x - 1) * one.xs
    return one.offset + last + (one.a - 1) * one.as_ + (one.b - 1) * one.bs + size_of(one)


def on_card(one: Transfer, memory: NDArray, stamp: bool = False) -> NDArray:
    """The elements on the card as a view [z, y, x, a, b] of its memory, an array of bytes.

    With `stamp` the memory has one item of any dtype for each byte, and the view the first of each element.
    RuntimeFailure for what is outside, or not aligned.
    """
    if reach(one) > memory.shape[0]:
        raise RuntimeFailure(
            f"{one}: bytes {one.offset}:{reach(one)} are outside the {memory.shape[0]} of base {one.base}"
        )
    strides = (one.zs, one.ys, one.xs, one.as_, one.bs)
    shape = (one.z, one.y, one.x, one.a, one.b)
    if stamp:
        byte_strides = tuple(stride * memory.itemsize for stride in strides)
        return np.lib.stride_tricks.as_strided(memory[one.offset :], shape, byte_strides)
    if one.wide and (one.offset % 4 or any(stride % 4 for stride in strides)):
        raise RuntimeFailure(f"{one}: elements of 4 bytes are not aligned")
    data = memory[one.offset :]
    typed = data[: len(data) // 4 * 4].view(np.int32) if one.wide else data.view(np.int8)
    return np.lib.stride_tricks.as_strided(typed, shape, strides)


def on_chip(one: Transfer, config: Config) -> NDArray:
    """The entries that a transfer fills or reads, with its border, as indices [z, y, x]."""
    z = np.arange(one.z)[:, None, None] * one.z_pitch
    y = np.arange(one.top + one.y + one.bottom)[:, None] * one.y_pitch
    found = one.sram + z + y + np.arange(one.left + one.x + one.right)
    rows, columns = config.shapes[one.memory]
    if int(found[-1, -1, -1]) >= config.entries[one.memory] or one.a > rows or one.b > columns:
        raise RuntimeFailure(f"{one}: entry {int(found[-1, -1, -1])} is outside its memory")
    return found


def beats(one: Transfer, config: Config) -> int:
    """Cycles in which the bus is busy: each run of bytes without a gap begins a cycle of its own.

    Elements are moved in the order of their addresses; loops whose strides join without a gap are one run.
    """
    run, runs = size_of(one), 1
    counts = ((one.bs, one.b), (one.as_, one.a), (one.xs, one.x), (one.ys, one.y), (one.zs, one.z))
    for stride, count in sorted(counts):
        if count == 1 or (stride == 0 and count):  # what is read once and spread is moved once
            continue
        if stride == run and runs == 1:
            run *= count
        else:
            runs *= count
    return runs * -(-run // config.bus_bytes)


__all__ = ["beats", "on_card", "on_chip", "reach", "size_of"]
