"""TopK: by insertion; where sizes are not known, by ranks.

The rank of an element is the number of elements before it in the order; the k-th result is the element of
rank k.  Counting takes time quadratic in the dim, which is why long dims are refused.
"""

from __future__ import annotations

from collections.abc import Sequence

from dlc_core.graph.node import Node
from dlc_core.ir.expr import Expr, as_expr
from dlc_core.ir.types import Dim
from dlc_core.op import std
from dlc_frontend_onnx.converters.base import Call, converter

MAX_RANKED = 8192
"""Places of a dim that are ranked at most."""


@converter("TopK", 1)
def top_k_1(c: Call, x: Node) -> Sequence[Node]:
    return _top(c, x, c.integer("k"), -1, largest=True)


@converter("TopK", 10)
def top_k(c: Call, x: Node, k: Node) -> Sequence[Node]:
    c.ignore("sorted")
    (count,) = c.sizes(std.reshape(k, shape=(1,)), "k")
    return _top(c, x, count, -1, largest=c.flag("largest", True))


def _top(c: Call, x: Node, count: Dim, default: int, *, largest: bool) -> Sequence[Node]:
    rank = len(x.shape)
    axis = c.axis("axis", default, rank)
    size = x.shape[axis]
    if isinstance(size, int) and isinstance(count, int) and count > size:
        raise c.error(f"the {count} largest of {size} elements")
    if isinstance(size, Expr) or isinstance(count, Expr):
        c.require(as_expr(count) <= size, f"{count} results of {size} elements")
    order = (*(k for k in range(rank) if k != axis), axis)
    back = tuple(order.index(k) for k in range(rank))
    rows = std.transpose(x, axes=order)
    if isinstance(count, int):
        indices = std.top_indices(rows, count=count, largest=largest)
        values = std.gather_elements(rows, indices, axis=-1)
        return [std.transpose(values, axes=back), std.transpose(indices, axes=back)]
    if isinstance(size, int) and size > MAX_RANKED:
        raise c.unsupported(f"the largest of {size} elements; at most {MAX_RANKED} are supported")
    here, there = std.unsqueeze(rows, axes=(-1,)), std.unsqueeze(rows, axes=(-2,))
    places = std.arange(stop=size, dtype="int64")
    earlier = std.less(places, std.unsqueeze(places, axes=(1,)))
    before = std.logical_or(_wins(there, here, largest), std.logical_and(_ties(there, here), earlier))
    ranks = std.reduce_sum(std.cast(before, to="int64"), axes=(-1,))
    wanted = std.unsqueeze(std.slice(places, begins=(0,), ends=(count,), axes=(0,)), axes=(1,))
    hit = std.equal(std.unsqueeze(ranks, axes=(-2,)), wanted)
    indices = std.reduce_sum(std.where(hit, places, c.const(0, "int64")), axes=(-1,))
    values = std.gather_elements(rows, indices, axis=-1)
    return [std.transpose(values, axes=back), std.transpose(indices, axes=back)]


def _wins(a: Node, b: Node, largest: bool) -> Node:
    """Whether a comes before b: NaN comes first among the largest, last among the smallest."""
    better = std.greater(a, b) if largest else std.less(a, b)
    if not a.dtype.is_float:
        return better
    first, second = (a, b) if largest else (b, a)
    alone = std.logical_and(std.isnan(first), std.logical_not(std.isnan(second)))
    return std.logical_or(better, alone)


def _ties(a: Node, b: Node) -> Node:
    same = std.equal(a, b)
    return std.logical_or(same, std.logical_and(std.isnan(a), std.isnan(b))) if a.dtype.is_float else same
