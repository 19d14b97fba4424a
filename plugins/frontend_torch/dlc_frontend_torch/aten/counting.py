"""Histograms and counts."""

from __future__ import annotations

from typing import Any

from dlc_core.graph.node import Node
from dlc_core.op import std
from dlc_frontend_torch.aten.slicing import elements
from dlc_frontend_torch.call import Call
from dlc_frontend_torch.registry import aten


@aten("histc")
def histc(c: Call, x: Node, bins: int = 100, low: Any = 0, high: Any = 0, **given: Any) -> Node:
    """Counts of elements in bins of equal width. Elements out of range, and NaN, are in none."""
    low, high = given.get("min", low), given.get("max", high)
    count = elements(x.shape)
    if 0 in x.shape:
        return c.full(c.shape, 0)
    wide = "float64"
    flat = c.reshape(c.tensor(x, wide), (count,))
    if low == high:
        least, most = std.reduce_min(flat), std.reduce_max(flat)
        same, one = std.equal(least, most), c.const(1, wide)
        least, most = std.where(same, std.sub(least, one), least), std.where(same, std.add(most, one), most)
    else:
        least, most = c.const(low, wide), c.const(high, wide)
    width = std.sub(most, least)
    number = std.floor(std.div(std.mul(std.sub(flat, least), c.const(bins, wide)), width))
    number = std.minimum(number, c.const(bins - 1, wide))
    inside = std.logical_and(std.greater_equal(flat, least), std.less_equal(flat, most))
    # Elements in no bin are counted in one more.
    at = c.cast(std.where(inside, number, c.const(bins, wide)), "int64")
    counts = std.scatter_elements(c.full((bins + 1,), 0), at, c.full((count,), 1), axis=0, reduction="add")
    return std.slice(counts, begins=(0,), ends=(bins,))


@aten("nonzero_static")
def nonzero_static(c: Call, x: Node, *, size: Any, fill_value: Any = -1) -> Node:
    """The first `size` indices of elements that are not 0, filled up with a value."""
    rank, length = len(x.shape), c.number(size, "the number of indices")
    if not rank or not length or 0 in x.shape:
        return c.full(c.shape, fill_value)
    count = elements(x.shape)
    flags = c.reshape(c.cast(x, "bool"), (count,))
    number = std.cumsum(c.cast(flags, "int64"), axis=0, exclusive=True)
    # Elements that are 0, or beyond the size, are written to one more row.
    at = std.where(flags, std.minimum(number, c.const(length, "int64")), c.const(length, "int64"))
    columns = []
    rest = std.arange(start=0, stop=count)
    for dim in reversed(x.shape):
        extent = c.tensor(dim, "int64")
        columns.append(std.mod(rest, extent))
        rest = std.div(rest, extent)
    start = c.full((length + 1, rank), fill_value)
    rows = std.stack(*reversed(columns), axis=1)
    made = std.scatter_nd(start, std.unsqueeze(at, axes=(1,)), rows, reduction="none")
    return std.slice(made, begins=(0,), ends=(length,))
