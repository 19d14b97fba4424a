"""Running sums, products and extremes along a dimension."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dlc_core.graph.node import Node
from dlc_core.op import std
from dlc_frontend_torch.aten.promotion import ordered
from dlc_frontend_torch.call import Call
from dlc_frontend_torch.registry import aten


@aten("cumsum")
def cumsum(c: Call, x: Node, dim: int, *, dtype: Any = None) -> Node:
    return _along(c, std.cumsum, c.tensor(x), dim)


@aten("cumprod")
def cumprod(c: Call, x: Node, dim: int, *, dtype: Any = None) -> Node:
    return _along(c, std.cumprod, c.tensor(x), dim)


@aten("logcumsumexp")
def logcumsumexp(c: Call, x: Node, dim: int) -> Node:
    """The running sums are in float64, as torch's: exponentials of their differences need them precise."""
    return c.cast(_along(c, std.cumlogsumexp, c.cast(x, "float64"), dim), x.dtype)


def _along(c: Call, op: Callable[..., Node], x: Node, dim: int) -> Node:
    return op(x, axis=c.axis(dim, len(x.shape))) if x.shape else x


@aten("cummax")
def cummax(c: Call, x: Node, dim: int) -> tuple[Node, Node]:
    return _extremes(c, std.cummax, x, dim)


@aten("cummin")
def cummin(c: Call, x: Node, dim: int) -> tuple[Node, Node]:
    return _extremes(c, std.cummin, x, dim)


def _extremes(c: Call, op: Callable[..., Node], x: Node, dim: int) -> tuple[Node, Node]:
    """The extreme elements so far and their indices: of equal elements and of NaN, the last one."""
    if not x.shape:
        return x, c.const(0, "int64")
    axis = c.axis(dim, len(x.shape))
    values = c.cast(x, ordered(x.dtype))
    found = op(values, axis=axis)
    hit = std.equal(values, found)
    if x.dtype.is_float:
        hit = std.logical_or(hit, std.isnan(values))
    shape = tuple(size if k == axis else 1 for k, size in enumerate(x.shape))
    own = c.broadcast(c.reshape(std.arange(start=0, stop=x.shape[axis]), shape), x.shape)
    index = std.cummax(std.where(hit, own, c.const(0, "int64")), axis=axis)
    return c.cast(found, x.dtype), index
