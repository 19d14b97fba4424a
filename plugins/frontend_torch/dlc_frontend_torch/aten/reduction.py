"""Reductions over dimensions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dlc_core.graph.node import Node
from dlc_core.op import std
from dlc_frontend_torch.aten.promotion import opmath, ordered
from dlc_frontend_torch.aten.slicing import elements
from dlc_frontend_torch.call import Call
from dlc_frontend_torch.registry import aten


@aten("sum sum.dim_IntList")
def sum_(c: Call, x: Node, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Node:
    return std.reduce_sum(c.tensor(x), axes=c.axes(dim, len(x.shape)), keepdims=keepdim)


@aten("mean mean.dim")
def mean(c: Call, x: Node, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Node:
    return std.reduce_mean(c.tensor(x), axes=c.axes(dim, len(x.shape)), keepdims=keepdim)


@aten("prod prod.dim_int")
def prod(c: Call, x: Node, dim: int | None = None, keepdim: bool = False, *, dtype: Any = None) -> Node:
    return std.reduce_prod(c.tensor(x), axes=c.axes(dim, len(x.shape)), keepdims=keepdim)


def extreme(c: Call, op: Callable[..., Node], x: Node, axes: tuple[int, ...], keepdim: bool) -> Node:
    """The largest or smallest elements over axes."""
    return c.cast(op(c.cast(x, ordered(x.dtype)), axes=axes, keepdims=keepdim), x.dtype)


@aten("amax")
def amax(c: Call, x: Node, dim: Any = (), keepdim: bool = False) -> Node:
    return extreme(c, std.reduce_max, x, c.axes(dim, len(x.shape)), keepdim)


@aten("amin")
def amin(c: Call, x: Node, dim: Any = (), keepdim: bool = False) -> Node:
    return extreme(c, std.reduce_min, x, c.axes(dim, len(x.shape)), keepdim)


@aten("max")
def max_(c: Call, x: Node) -> Node:
    return amax(c, x)


@aten("min")
def min_(c: Call, x: Node) -> Node:
    return amin(c, x)


@aten("aminmax")
def aminmax(c: Call, x: Node, *, dim: int | None = None, keepdim: bool = False) -> tuple[Node, Node]:
    return amin(c, x, dim, keepdim), amax(c, x, dim, keepdim)


@aten("max.dim")
def max_dim(c: Call, x: Node, dim: int, keepdim: bool = False) -> tuple[Node, Node]:
    return amax(c, x, dim, keepdim), place(c, std.argmax, x, dim, keepdim)


@aten("min.dim")
def min_dim(c: Call, x: Node, dim: int, keepdim: bool = False) -> tuple[Node, Node]:
    return amin(c, x, dim, keepdim), place(c, std.argmin, x, dim, keepdim)


@aten("argmax")
def argmax(c: Call, x: Node, dim: int | None = None, keepdim: bool = False) -> Node:
    return place(c, std.argmax, x, dim, keepdim)


@aten("argmin")
def argmin(c: Call, x: Node, dim: int | None = None, keepdim: bool = False) -> Node:
    return place(c, std.argmin, x, dim, keepdim)


def place(c: Call, op: Callable[..., Node], x: Node, dim: int | None, keepdim: bool) -> Node:
    """The first index of the extreme element of a dimension, or of all elements in order."""
    rank = len(x.shape)
    if not rank:
        return c.const(0, "int64")
    values = c.cast(x, ordered(x.dtype))
    if dim is not None:
        return op(values, axis=c.axis(dim, rank), keepdims=keepdim)
    found = op(c.reshape(values, (elements(x.shape),)), axis=0, keepdims=False)
    return c.reshape(found, (1,) * rank) if keepdim else found


@aten("any any.dim any.dims")
def any_(c: Call, x: Node, dim: Any = None, keepdim: bool = False) -> Node:
    made = std.reduce_any(c.cast(x, "bool"), axes=c.axes(dim, len(x.shape)), keepdims=keepdim)
    return c.cast(made, c.dtype)


@aten("all all.dim all.dims")
def all_(c: Call, x: Node, dim: Any = None, keepdim: bool = False) -> Node:
    made = std.reduce_all(c.cast(x, "bool"), axes=c.axes(dim, len(x.shape)), keepdims=keepdim)
    return c.cast(made, c.dtype)


@aten("var.correction")
def var(c: Call, x: Node, dim: Any = None, *, correction: Any = 1, keepdim: bool = False) -> Node:
    return _moments(c, x, dim, correction, keepdim)[0]


@aten("var.dim")
def var_dim(c: Call, x: Node, dim: Any, unbiased: bool = True, keepdim: bool = False) -> Node:
    return _moments(c, x, dim, int(unbiased), keepdim)[0]


@aten("var_mean.correction")
def var_mean(
    c: Call, x: Node, dim: Any = None, *, correction: Any = 1, keepdim: bool = False
) -> tuple[Node, Node]:
    return _moments(c, x, dim, correction, keepdim)


@aten("std.correction")
def std_(c: Call, x: Node, dim: Any = None, *, correction: Any = 1, keepdim: bool = False) -> Node:
    return std.sqrt(_moments(c, x, dim, correction, keepdim)[0])


def _moments(c: Call, x: Node, dim: Any, correction: Any, keepdim: bool) -> tuple[Node, Node]:
    """The variance and the mean, by squares of the distances from the mean."""
    axes = c.axes(dim, len(x.shape))
    kind = opmath(x.dtype)
    values = c.cast(x, kind)
    center = std.reduce_mean(values, axes=axes, keepdims=True)
    distance = std.sub(values, center)
    total = std.reduce_sum(std.mul(distance, distance), axes=axes, keepdims=keepdim)
    count: Any = 1
    for axis in axes:
        count = count * x.shape[axis]
    freedom = std.sub(c.tensor(count, kind), c.tensor(1 if correction is None else correction, kind))
    # torch divides by 0 where the correction is larger than the number of elements.
    variance = std.div(total, std.maximum(freedom, c.const(0, kind)))
    mean = center if keepdim or not axes else std.squeeze(center, axes=axes)
    return c.cast(variance, x.dtype), c.cast(mean, x.dtype)


def norm(c: Call, x: Node, order: Any, axes: tuple[int, ...], keepdim: bool = False) -> Node:
    """The norm over axes: 0 counts the elements that are not 0, infinity is the largest one."""
    kind = x.dtype
    size = std.abs(x)

    def reduced(op: Callable[..., Node], value: Node) -> Node:
        return op(value, axes=axes, keepdims=keepdim)

    if order == 0:
        return reduced(std.reduce_sum, c.cast(std.not_equal(size, c.const(0, kind)), kind))
    if order == float("inf"):
        # The norm of no elements is 0.
        return std.maximum(reduced(std.reduce_max, size), c.const(0, kind))
    if order == float("-inf"):
        return reduced(std.reduce_min, size)
    if order in (1, 2):
        return reduced(std.reduce_l2 if order == 2 else std.reduce_sum, size)
    total = reduced(std.reduce_sum, std.pow(size, c.const(order, kind)))
    return std.pow(total, c.const(1 / order, kind))


@aten("linalg_vector_norm")
def vector_norm(
    c: Call,
    x: Node,
    order: Any = 2,
    dim: Any = None,
    keepdim: bool = False,
    *,
    dtype: Any = None,
    **given: Any,
) -> Node:
    made = norm(c, c.tensor(x, opmath(c.dtype)), given.get("ord", order), c.axes(dim, len(x.shape)), keepdim)
    return c.cast(made, c.dtype)


@aten("logsumexp")
def logsumexp(c: Call, x: Node, dim: Any, keepdim: bool = False) -> Node:
    return std.reduce_logsumexp(c.tensor(x), axes=c.axes(dim, len(x.shape)), keepdims=keepdim)
