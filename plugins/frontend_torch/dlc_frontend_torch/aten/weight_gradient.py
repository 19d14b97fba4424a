"""The gradient of a convolution's weights: `weight_gradient`.

    dw[o, i, k] = sum over n and y of small[n, o, y] large[n, i, y stride + k dilation - padding]

`small` is the gradient of the result and `large` the input. For a transposed convolution, `small` is the
input and `large` the gradient of the result.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from dlc_core.graph.node import Node
from dlc_core.ir.types import Dim
from dlc_core.op import std
from dlc_core.op.infer import product
from dlc_core.op.std.window import static_dim


def weight_gradient(
    small: Node, large: Node, shape: Sequence[Dim], strides: Sequence[int], padding: Sequence[int],
    dilation: Sequence[int], groups: int,
) -> Node:  # fmt: skip
    """The gradient, of the weights' shape [outputs, inputs / groups, window...]."""
    if groups == 1:
        return _by_matmul(small, large, shape, strides, padding, dilation)
    return _by_convolution(small, large, shape, strides, padding, dilation, groups)


def _by_matmul(
    small: Node, large: Node, shape: Sequence[Dim], strides: Sequence[int], padding: Sequence[int],
    dilation: Sequence[int],
) -> Node:  # fmt: skip
    """One GEMM over all pixels, with the windows of all pixels as columns (im2col)."""
    outputs, inputs, *sizes = shape
    window = tuple(static_dim(size, "the window") for size in sizes)
    spatial = len(window)
    to_last = (0, *range(2, spatial + 2), 1)
    rows = std.transpose(small, axes=to_last)
    pixels = std.transpose(large, axes=to_last)
    if any(padding):
        pixels = std.pad(pixels, pads=(0, *padding, 0, 0, *padding, 0))
    counts = small.shape[2:]
    axes = tuple(range(1, spatial + 1))
    taps = []
    for tap in itertools.product(*(range(size) for size in window)):
        begins = tuple(at * step for at, step in zip(tap, dilation, strict=True))
        ends = tuple(
            (count - 1) * step + begin + 1 for count, step, begin in zip(counts, strides, begins, strict=True)
        )
        taps.append(std.slice(pixels, begins=begins, ends=ends, axes=axes, strides=tuple(strides)))
    columns = std.concat(*taps, axis=spatial + 1) if len(taps) > 1 else taps[0]
    count = product([small.shape[0], *counts])
    made = std.matmul(
        std.reshape(rows, shape=(count, outputs)),
        std.reshape(columns, shape=(count, product([*window, inputs]))),
        transpose_a=True,
    )
    split = std.reshape(made, shape=(outputs, *window, inputs))
    return std.transpose(split, axes=(0, spatial + 1, *range(1, spatial + 1)))


def _by_convolution(
    small: Node, large: Node, shape: Sequence[Dim], strides: Sequence[int], padding: Sequence[int],
    dilation: Sequence[int], groups: int,
) -> Node:  # fmt: skip
    """A convolution whose reduced channels are the samples, and whose window is all of `small`."""
    _, inputs, *window = shape
    samples, sizes = large.shape[0], large.shape[2:]
    spatial = len(window)
    split = std.reshape(large, shape=(samples, groups, inputs, *sizes))
    moved = std.transpose(split, axes=(2, 1, 0, *range(3, spatial + 3)))
    made = std.conv(
        std.reshape(moved, shape=(inputs, product([groups, samples]), *sizes)),
        std.transpose(small, axes=(1, 0, *range(2, spatial + 2))),
        strides=tuple(dilation),
        dilation=tuple(strides),
        padding=(*padding, *padding),
        groups=groups,
    )
    axes = tuple(range(2, spatial + 2))
    kept = std.slice(made, begins=(0,) * spatial, ends=tuple(window), axes=axes)
    return std.transpose(kept, axes=(1, 0, *axes))


__all__ = ["weight_gradient"]
