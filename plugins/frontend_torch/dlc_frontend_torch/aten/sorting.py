"""Orders: sort, topk, order statistics, searches in sorted sequences.

Sorts are stable. NaN is larger than all numbers.
"""

from __future__ import annotations

from typing import Any

from dlc_core.graph.node import Node
from dlc_core.op import std
from dlc_frontend_torch.aten.promotion import ordered
from dlc_frontend_torch.aten.slicing import elements, sliced
from dlc_frontend_torch.call import Call
from dlc_frontend_torch.registry import aten


def _swapped(x: Node, axis: int) -> Node:
    """The axis in the last place."""
    rank = len(x.shape)
    axes = list(range(rank))
    axes[axis], axes[-1] = axes[-1], axes[axis]
    return std.transpose(x, axes=tuple(axes)) if axis != rank - 1 else x


def ranked(c: Call, x: Node, dim: int, count: Any, largest: bool) -> tuple[Node, Node]:
    """The first elements of a sorted dimension, and their indices."""
    if not x.shape:
        return x, c.const(0, "int64")
    axis = c.axis(dim, len(x.shape))
    values = _swapped(x, axis)
    if 0 in values.shape or count == 0:
        shape = tuple(count if k == axis else size for k, size in enumerate(x.shape))
        return c.full(shape, 0, x.dtype), c.full(shape, 0, "int64")
    keys = c.cast(values, ordered(x.dtype))
    places = std.top_indices(keys, count=count, largest=largest)
    found = std.gather_elements(values, places, axis=len(x.shape) - 1)
    return _swapped(found, axis), _swapped(places, axis)


@aten("sort")
def sort(c: Call, x: Node, dim: int = -1, descending: bool = False) -> tuple[Node, Node]:
    return ranked(c, x, dim, x.shape[c.axis(dim, len(x.shape))] if x.shape else 1, descending)


@aten("sort.stable")
def sort_stable(
    c: Call, x: Node, *, stable: bool | None = None, dim: int = -1, descending: bool = False
) -> tuple[Node, Node]:
    return sort(c, x, dim, descending)


@aten("argsort argsort.stable")
def argsort(
    c: Call, x: Node, *given: Any, stable: bool = False, dim: int = -1, descending: bool = False
) -> Node:
    if given:
        dim, descending = given[0], given[1] if len(given) > 1 else descending
    return sort(c, x, dim, descending)[1]


@aten("topk")
def topk(
    c: Call, x: Node, k: Any, dim: int = -1, largest: bool = True, *_: Any, **__: Any
) -> tuple[Node, Node]:
    return ranked(c, x, dim, k, largest)


@aten("kthvalue")
def kthvalue(c: Call, x: Node, k: Any, dim: int = -1, keepdim: bool = False) -> tuple[Node, Node]:
    if not x.shape:
        return x, c.const(0, "int64")
    axis = c.axis(dim, len(x.shape))
    number = c.number(k, "the rank of an element")
    found = ranked(c, x, dim, number, False)
    return tuple(_only(each, axis, number - 1, keepdim) for each in found)  # type: ignore[return-value]


def _only(x: Node, axis: int, place: int, keepdim: bool) -> Node:
    made = sliced(x, axis, place, place + 1)
    return made if keepdim else std.squeeze(made, axes=(axis,))


@aten("median.dim")
def median_dim(c: Call, x: Node, dim: int, keepdim: bool = False) -> tuple[Node, Node]:
    """The lower of two middle elements; NaN if there is one."""
    if not x.shape:
        return x, c.const(0, "int64")
    axis = c.axis(dim, len(x.shape))
    size = c.number(x.shape[axis], "the size of the dimension of a median")
    if size == 0:
        raise c.unsupported("the median of no elements")
    value, place = (
        _only(each, axis, (size - 1) // 2, keepdim) for each in ranked(c, x, dim, (size + 1) // 2, False)
    )
    if not x.dtype.is_float:
        return value, place
    flags = std.isnan(x)
    some = std.reduce_any(flags, axes=(axis,), keepdims=keepdim)
    first = std.argmax(c.cast(flags, "uint8"), axis=axis, keepdims=keepdim)
    return std.where(some, c.const(float("nan"), x.dtype), value), std.where(some, first, place)


@aten("median")
def median(c: Call, x: Node) -> Node:
    if 0 in x.shape:
        return c.full((), float("nan") if x.dtype.is_float else -(2**63))
    return median_dim(c, c.reshape(x, (elements(x.shape),)), 0)[0]


@aten("nanmedian.dim")
def nanmedian_dim(c: Call, x: Node, dim: int, keepdim: bool = False) -> tuple[Node, Node]:
    """The lower of the two middle elements that are not NaN; NaN if there are none."""
    if not x.dtype.is_float or not x.shape:
        return median_dim(c, x, dim, keepdim)
    axis = c.axis(dim, len(x.shape))
    if x.shape[axis] == 0:
        raise c.unsupported("the median of no elements")
    values, places = ranked(c, x, dim, x.shape[axis], False)
    numbers = std.reduce_sum(c.cast(std.logical_not(std.isnan(x)), "int64"), axes=(axis,), keepdims=True)
    one, two = c.const(1, "int64"), c.const(2, "int64")
    middle = std.maximum(std.div(std.sub(numbers, one), two), c.const(0, "int64"))
    found = (std.gather_elements(each, middle, axis=axis) for each in (values, places))
    return tuple(  # type: ignore[return-value]
        each if keepdim else std.squeeze(each, axes=(axis,)) for each in found
    )


@aten("nanmedian")
def nanmedian(c: Call, x: Node) -> Node:
    if 0 in x.shape:
        return median(c, x)
    return nanmedian_dim(c, c.reshape(x, (elements(x.shape),)), 0)[0]


@aten("searchsorted.Tensor searchsorted.Scalar")
def searchsorted(
    c: Call, sequence: Node, x: Any, *, out_int32: bool = False, right: bool = False,
    side: str | None = None, sorter: Node | None = None,
) -> Node:  # fmt: skip
    kind = ordered(sequence.dtype)
    kind = kind if not isinstance(x, Node) or not x.dtype.is_float or kind.is_float else x.dtype
    if sorter is not None:
        sequence = std.gather_elements(sequence, sorter, axis=len(sorter.shape) - 1)
    return _counted(c, c.cast(sequence, kind), c.tensor(x, kind), right or side == "right")


@aten("bucketize.Tensor bucketize.Scalar")
def bucketize(c: Call, x: Any, boundaries: Node, *, out_int32: bool = False, right: bool = False) -> Node:
    return searchsorted(c, boundaries, x, out_int32=out_int32, right=right)


def _counted(c: Call, sequence: Node, x: Node, right: bool) -> Node:
    """The number of elements of the sequence that are before each value."""
    shared = len(sequence.shape) == 1
    length = sequence.shape[-1]
    if length == 0:
        return c.full(c.shape, 0)
    if shared:
        rows = c.reshape(sequence, (*(1,) * len(x.shape), length))
    else:
        rows = std.unsqueeze(sequence, axes=(len(sequence.shape) - 1,))
    values = std.unsqueeze(x, axes=(len(x.shape),))
    after = std.greater(rows, values) if right else std.greater_equal(rows, values)
    before = c.cast(std.logical_not(after), c.dtype)
    return std.reduce_sum(before, axes=(len(before.shape) - 1,))
