"""Writes at indices that depend on data: index_put, scatter and their reductions.

Updates out of range, for which torch raises, are skipped: no memory outside of the tensor is written. torch
leaves open which of several updates of one element is kept; the last one is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dlc_core.graph.node import Node
from dlc_core.ir.dtype import DType
from dlc_core.op import std
from dlc_frontend_torch.aten.indexing import is_one_element, places, with_some
from dlc_frontend_torch.aten.slicing import elements, placed
from dlc_frontend_torch.call import Call, Operand
from dlc_frontend_torch.registry import aten

_REDUCTIONS = {"sum": "add", "add": "add", "prod": "mul", "multiply": "mul", "mean": "add", "amax": "max",
               "amin": "min"}  # fmt: skip
_OF_BOOL = {"none": "none", "add": "max", "mul": "min", "max": "max", "min": "min"}
"""Reductions of truth values as bytes."""


def _inverse(order: Sequence[int]) -> tuple[int, ...]:
    return tuple(list(order).index(axis) for axis in range(len(order)))


@aten("index_put _unsafe_index_put")
def index_put(
    c: Call, x: Node, indices: Sequence[Node | None], values: Node, accumulate: bool = False
) -> Node:
    given = [each for each in indices if each is not None]
    values = c.tensor(values)
    masked = len(given) == 1 and given[0].dtype.is_bool
    if masked and not accumulate and indices[0] is given[0] and _broadcasts(values, given[0], x):
        mask = given[0]
        flags = c.reshape(mask, (*mask.shape, *(1,) * (len(x.shape) - len(mask.shape))))
        own = values if is_one_element(values.shape) else std.squeeze(values, axes=(0,))
        if is_one_element(values.shape):
            own = c.reshape(values, ())
        return std.where(flags, own, x)
    if masked and indices[0] is given[0] and not accumulate and len(values.shape) == _rank(given[0], x):
        return _in_order(c, x, given[0], values)
    if len(given) == 1 and len(given[0].shape) == 1 and not masked and given[0].dtype.name != "uint8":
        return _along(c, x, list(indices).index(given[0]), given[0], values, accumulate)
    at = places(c, x, indices, None, _number(indices, values, x) if masked else None)
    rest = tuple(x.shape[axis] for axis in at.order[at.count :])
    before = at.position
    shape = (*rest[:before], *at.at.shape[:-1], *rest[before:])
    updates = c.broadcast(values, shape)
    order = at.to_front(len(shape))
    updates = std.transpose(updates, axes=order) if shape else updates
    made = _scattered_nd(c, std.transpose(x, axes=at.order), at.at, updates, "add" if accumulate else "none")
    return std.transpose(made, axes=_inverse(at.order))


def _along(c: Call, x: Node, axis: int, at: Node, values: Node, accumulate: bool) -> Node:
    """x with slices of the values at indices along an axis."""
    updates = c.broadcast(values, (*x.shape[:axis], at.shape[0], *x.shape[axis + 1 :]))
    if x.dtype.is_bool and accumulate:
        bits, more = c.cast(x, "uint8"), c.cast(updates, "uint8")
        return c.cast(std.scatter_slices(bits, at, more, axis=axis, reduction="max"), "bool")
    return std.scatter_slices(x, at, updates, axis=axis, reduction="add" if accumulate else "none")


def _rank(mask: Node, x: Node) -> int:
    """The rank of x[mask]."""
    return len(x.shape) - len(mask.shape) + 1


def _in_order(c: Call, x: Node, mask: Node, values: Node) -> Node:
    """x with the next of the values wherever the mask is true."""
    rank = len(mask.shape)
    flags = c.reshape(mask, (elements(mask.shape),))
    number = std.cumsum(c.cast(flags, "int64"), axis=0, exclusive=True)
    inner = tuple(x.shape[rank:])
    rows = c.broadcast(values, (values.shape[0], *inner))
    at = std.where(flags, number, c.const(0, "int64"))  # inside the values
    found = c.reshape(std.gather(with_some(rows), at, axis=0), x.shape)
    return std.where(c.reshape(flags, (*mask.shape, *(1,) * len(inner))), found, x)


def _number(indices: Sequence[Node | None], values: Node, x: Node) -> int | None:
    """The number of true elements of a mask, if the values have as many."""
    place = next(axis for axis, index in enumerate(indices) if index is not None)
    mask = indices[place]
    assert mask is not None
    inner = len(x.shape) - place - len(mask.shape)
    size = values.shape[-1 - inner] if len(values.shape) > inner else 1
    return size if isinstance(size, int) and size != 1 else None


def _broadcasts(values: Node, mask: Node, x: Node) -> bool:
    """Whether the same value is written wherever the mask is true."""
    inner = len(x.shape) - len(mask.shape)
    return is_one_element(values.shape) or (len(values.shape) == inner + 1 and values.shape[0] == 1)


def _scattered_nd(c: Call, x: Node, at: Node, updates: Node, reduction: str) -> Node:
    if x.dtype.is_bool and reduction != "none":
        made = std.scatter_nd(c.cast(x, "uint8"), at, c.cast(updates, "uint8"), reduction=_OF_BOOL[reduction])
        return c.cast(made, "bool")
    return std.scatter_nd(x, at, updates, reduction=reduction)


def scattered(c: Call, x: Node, at: Node, updates: Node, axis: int, reduction: str = "none") -> Node:
    """x with updates, of the indices' shape, at indices along an axis."""
    shape = x.shape
    if not shape:
        x, at, updates = (c.reshape(each, (1,)) for each in (x, at, updates))
    if 0 in at.shape:
        return c.reshape(x, shape)
    if x.dtype.is_bool and reduction != "none":
        made = scattered(c, c.cast(x, "uint8"), at, c.cast(updates, "uint8"), axis, _OF_BOOL[reduction])
        return c.reshape(c.cast(made, "bool"), shape)
    return c.reshape(std.scatter_elements(x, at, updates, axis=axis, reduction=reduction), shape)


def _fitting(c: Call, source: Node, at: Node) -> Node:
    """The elements of the source that the indices have a place for."""
    if not at.shape or tuple(source.shape) == tuple(at.shape):
        return c.reshape(source, at.shape) if not at.shape else source
    source = c.reshape(source, (1,)) if not source.shape else source
    return std.slice(source, begins=(0,) * len(at.shape), ends=tuple(at.shape))


@aten("scatter.src scatter.reduce")
def scatter_source(c: Call, x: Node, dim: int, at: Node, source: Node, *, reduce: str | None = None) -> Node:
    if 0 in at.shape:
        return x
    reduction = "none" if reduce is None else _REDUCTIONS[reduce]
    return scattered(c, x, at, _fitting(c, c.tensor(source), at), c.axis(dim, len(x.shape)), reduction)


@aten("scatter.value scatter.value_reduce")
def scatter_value(c: Call, x: Node, dim: int, at: Node, value: Operand, *, reduce: str | None = None) -> Node:
    reduction = "none" if reduce is None else _REDUCTIONS[reduce]
    return scattered(c, x, at, c.full(at.shape, value), c.axis(dim, len(x.shape)), reduction)


@aten("scatter_add")
def scatter_add(c: Call, x: Node, dim: int, at: Node, source: Node) -> Node:
    return scatter_source(c, x, dim, at, source, reduce="add")


@aten("scatter_reduce.two")
def scatter_reduce(
    c: Call, x: Node, dim: int, at: Node, source: Node, reduce: str, *, include_self: bool = True
) -> Node:
    if 0 in at.shape:
        return x
    axis = c.axis(dim, len(x.shape))
    updates = _fitting(c, c.tensor(source), at)

    def write(into: Node, values: Node, how: str) -> Node:
        return scattered(c, into, at, values, axis, how)

    return _reduced(c, x, updates, reduce, include_self, write)


@aten("index_reduce")
def index_reduce(
    c: Call, x: Node, dim: int, at: Node, source: Node, reduce: str, *, include_self: bool = True
) -> Node:
    """Slices of the source, combined with those of x at the indices along a dimension."""
    values = x if x.shape else c.reshape(x, (1,))
    axis = c.axis(dim, len(values.shape))
    shape = [1] * len(values.shape)
    shape[axis] = at.shape[0] if at.shape else 1
    wide = tuple(shape[k] if k == axis else size for k, size in enumerate(values.shape))
    repeated = c.broadcast(c.reshape(at, tuple(shape)), wide)
    updates = c.reshape(c.tensor(source), wide)

    def write(into: Node, values: Node, how: str) -> Node:
        return scattered(c, into, repeated, values, axis, how)

    return c.reshape(_reduced(c, values, updates, reduce, include_self, write), x.shape)


def _reduced(c: Call, x: Node, updates: Node, reduce: str, include_self: bool, write: Any) -> Node:
    how = _REDUCTIONS["prod" if reduce == "prod" else reduce]
    start = x
    if not include_self:
        start = write(x, c.full(updates.shape, _identity(how, x.dtype), x.dtype), "none")
    made: Node = write(start, updates, how)
    if reduce != "mean":
        return made
    one = c.full(updates.shape, 1, x.dtype)
    counts = c.full(x.shape, 1, x.dtype)
    if not include_self:
        counts = write(counts, c.full(updates.shape, 0, x.dtype), "none")
    counts = write(counts, one, "add")
    counts = std.maximum(counts, c.const(1, x.dtype))
    return std.div(made, counts) if x.dtype.is_float else std.floordiv(made, counts)


def _identity(how: str, kind: DType) -> Any:
    if how in ("add", "mul"):
        return 0 if how == "add" else 1
    if kind.is_bool:
        return how == "min"
    if kind.is_float:
        return float("-inf") if how == "max" else float("inf")
    limits = np.iinfo(kind.numpy)
    return limits.min if how == "max" else limits.max


@aten("index_add")
def index_add(c: Call, x: Node, dim: int, at: Node, source: Node, *, alpha: Any = 1) -> Node:
    axis = c.axis(dim, len(x.shape))
    updates = c.tensor(source)
    if alpha != 1:
        updates = std.mul(updates, c.tensor(alpha)) if not c.dtype.is_bool else updates
    if not x.shape:
        x, updates = c.reshape(x, (1,)), c.reshape(updates, (1,))
        at = c.reshape(at, (1,))
    at = at if at.shape else c.reshape(at, (1,))
    order = (axis, *(each for each in range(len(x.shape)) if each != axis))
    made = _scattered_nd(
        c,
        std.transpose(x, axes=order),
        std.unsqueeze(at, axes=(1,)),
        std.transpose(updates, axes=order),
        "add",
    )
    return c.reshape(std.transpose(made, axes=_inverse(order)), c.shape)


@aten("index_copy")
def index_copy(c: Call, x: Node, dim: int, at: Node, source: Node) -> Node:
    values, updates = c.tensor(x), c.tensor(source)
    at = at if at.shape else c.reshape(at, (1,))
    if not x.shape:
        values, updates = c.reshape(values, (1,)), c.reshape(updates, (1,))
    axis = c.axis(dim, len(values.shape))
    if not source.shape and x.shape:
        updates = c.reshape(updates, (1,) * len(values.shape))
    return c.reshape(placed(c, values, updates, axis, at), c.shape)


@aten("index_fill.int_Scalar index_fill.int_Tensor")
def index_fill(c: Call, x: Node, dim: int, at: Node, value: Operand) -> Node:
    values = x if x.shape else c.reshape(x, (1,))
    at = at if at.shape else c.reshape(at, (1,))
    axis = c.axis(dim, len(values.shape))
    shape = tuple(at.shape[0] if k == axis else size for k, size in enumerate(values.shape))
    return c.reshape(placed(c, values, c.full(shape, value), axis, at), c.shape)


@aten("put")
def put(c: Call, x: Node, at: Node, source: Node, accumulate: bool = False) -> Node:
    flat = c.reshape(x, (elements(x.shape),))
    where = c.reshape(at, (elements(at.shape), 1))
    updates = c.reshape(c.tensor(source), (elements(at.shape),))
    return c.reshape(_scattered_nd(c, flat, where, updates, "add" if accumulate else "none"), x.shape)
