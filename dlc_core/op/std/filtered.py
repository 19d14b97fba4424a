"""What convolutions by minimal filtering share: where windows lie, and what transformed weights must be.

The input is [n, height, width, channels], the transformed weights end in [channels, outputs].
"""

from __future__ import annotations

from collections.abc import Sequence

from dlc_core.graph.node import Op
from dlc_core.ir.types import TensorType, Type
from dlc_core.op.declare import tensor_types
from dlc_core.op.infer import Attrs, check_rank, fail, merge_dims
from dlc_core.op.std.window import Window, known


def window_of(kernel: Sequence[int], attrs: Attrs) -> Window:
    """The window of an op that steps by `stride` in both directions, checked."""
    strides = (attrs["stride"],) * len(kernel)
    return Window.of(kernel, {"strides": strides, "padding": attrs["padding"], "dilation": None})


def check_operands(
    types: Sequence[Type], lead: Sequence[int], rank: int, tile: int, maker: Op
) -> tuple[TensorType, TensorType]:
    """The types of input and weights; ShapeError unless the weights are of `rank` dims, begin with those of
    `lead`, as `maker` makes them for such tiles, and channels and dtypes agree, those of a bias as well.
    """
    x, u, *bias = tensor_types(types)
    check_rank(x, 4)
    check_rank(u, rank)
    if any(other.dtype is not x.dtype for other in (u, *bias)):
        raise fail("inputs of different dtypes")
    if tuple(known(size, "the transformed window") for size in u.shape[: len(lead)]) != tuple(lead):
        raise fail(f"weights {list(u.shape)} for tiles of {tile}", f"make them with {maker.name}")
    merge_dims(x.shape[3], u.shape[-2], "input channels")
    for each in bias:
        check_rank(each, 1)
        merge_dims(each.shape[0], u.shape[-1], "output channels")
    return x, u
