"""The gradient of a convolution's weights: `weight_gradient`.

    dw[o, i, k] = sum over n and y of small[n, o, y] large[n, i, y stride + k dilation - padding]

`small` is the gradient of the result and `large` the input. For a transposed convolution, `small` is the
input and `large` the gradient of the result.
"""

from __future__ import annotations

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
        window = tuple(static_dim(size, "the window") for size in shape[2:])
        return std.conv_weight_gradient(
            _covered(large, small, window, strides, padding, dilation),
            small,
            window=window,
            strides=tuple(strides),
            padding=(*padding, *padding),
            dilation=tuple(dilation),
        )
    return _by_convolution(small, large, shape, strides, padding, dilation, groups)


def _covered(
    large: Node, small: Node, window: Sequence[int], strides: Sequence[int], padding: Sequence[int],
    dilation: Sequence[int],
) -> Node:  # fmt: skip
    """`large` without the elements after the last window, if more windows would fit: the output padding of a
    transposed convolution may be larger than its stride.
    """
    ends = {}
    for axis, (size, count) in enumerate(zip(large.shape[2:], small.shape[2:], strict=True)):
        if isinstance(size, int) and isinstance(count, int):
            covered = (count - 1) * strides[axis] + dilation[axis] * (window[axis] - 1) + 1
            if size + 2 * padding[axis] - covered >= strides[axis]:
                ends[2 + axis] = max(covered - 2 * padding[axis], 0)
    if not ends:
        return large
    return std.slice(large, begins=(0,) * len(ends), ends=tuple(ends.values()), axes=tuple(ends))


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
