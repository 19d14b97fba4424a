"""Bands of an axis, read and written in place, for depth-first tiling by rows.

If the elements of a band are contiguous, `band` is a view of its input, and the inputs of `join_bands` are
computed in place. Neither copies. Otherwise they copy, like `slice` and `concat`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dlc_core import te
from dlc_core.graph.node import Node
from dlc_core.ir.expr import const_value
from dlc_core.ir.types import TensorType
from dlc_core.op.declare import ALL, MOVED, Attr, ErrorSample, NDArray, Sample, Tensor, op
from dlc_core.op.infer import Attrs, axis_of, fail, of_input
from dlc_core.op.lower import compute, replaced
from dlc_core.op.std.slicing import CONCAT


def _band_infer(x: TensorType, attrs: Attrs) -> TensorType:
    axis = axis_of(attrs["axis"], x.ndim)
    begin, end, size = attrs["begin"], attrs["end"], const_value(x.shape[axis])
    if size is None or not 0 <= begin <= end <= size:
        raise fail(f"the band from {begin} to {end} is not inside dim {axis} of {x.shape[axis]}")
    return TensorType((*x.shape[:axis], end - begin, *x.shape[axis + 1 :]), x.dtype)


def _band_reference(x: NDArray, *, axis: int, begin: int, end: int) -> NDArray:
    where = [slice(None)] * x.ndim
    where[axis] = slice(begin, end)
    return x[tuple(where)]


def _band_lower(type_: TensorType, attrs: Attrs, x: te.Tensor) -> te.Tensor:
    axis = axis_of(attrs["axis"], type_.ndim)
    begin = attrs["begin"]
    return compute(type_.shape, lambda *i: x[replaced(i, axis, i[axis] + begin)], "band")


BAND = op(
    "band",
    "elements begin to end of an axis of known size, in place where they are contiguous",
    ["x"],
    [Attr("axis", "int"), Attr("begin", "int"), Attr("end", "int")],
    kind="injective",
    infer=of_input(_band_infer, MOVED),
    reference=_band_reference,
    lower=_band_lower,
    dtypes=ALL,
    samples=(
        Sample((Tensor((1, 4, 6)),), {"axis": 1, "begin": 1, "end": 3}),
        Sample((Tensor((3, 4)),), {"axis": -1, "begin": 2, "end": 4}),
        Sample((Tensor((4, 16)),), {"axis": 0, "begin": 3, "end": 3}, ("float32", "int8")),
    ),
    error_samples=[
        ErrorSample((Tensor((4,)),), {"axis": 0, "begin": 2, "end": 5}, "not inside"),
        ErrorSample((Tensor((4,)),), {"axis": 1, "begin": 0, "end": 1}, "out of range"),
    ],
)

JOIN_BANDS = op(
    "join_bands",
    "tensors joined along an axis, each computed in place where its own kernel writes it",
    ["*xs"],
    [Attr("axis", "int")],
    kind="opaque",
    infer=CONCAT.infer,
    reference=CONCAT.reference,
    lower=CONCAT.lower,
    dtypes=ALL,
    samples=(
        Sample((Tensor((2, 3)), Tensor((2, 1)), Tensor((2, 4))), {"axis": 1}),
        Sample((Tensor((1, 3, 2)), Tensor((1, 1, 2))), {"axis": 1}),
    ),
    error_samples=[ErrorSample((Tensor((2,)), Tensor((2, 1))), {"axis": 0}, "rank")],
)


def elements_of_step(shape: Sequence[Any], axis: int) -> int | None:
    """The number of elements per index of an axis whose bands are contiguous: all dims before it are 1, and
    those after it are known. None if bands are not contiguous.
    """
    axis %= len(shape)
    sizes = [const_value(d) for d in shape]
    if any(size != 1 for size in sizes[:axis]):
        return None
    count = 1
    for size in sizes[axis + 1 :]:
        if size is None:
            return None
        count *= size
    return count


def band_offset(value: Node) -> int | None:
    """The offset of a band's first element in its input; None if the band is not contiguous."""
    step = elements_of_step(value.args[0].shape, value.attrs["axis"])
    return None if step is None else step * int(value.attrs["begin"])


def join_offsets(value: Node) -> list[int] | None:
    """The offset of each joined tensor's first element; None if the tensors are not consecutive in memory."""
    axis = value.attrs["axis"] % len(value.shape)
    step = elements_of_step(value.shape, axis)
    sizes = [const_value(arg.shape[axis]) for arg in value.args]
    if step is None or any(size is None for size in sizes):
        return None
    offsets, begin = [], 0
    for size in sizes:
        offsets.append(step * begin)
        begin += size or 0
    return offsets


OPS = (BAND, JOIN_BANDS)
