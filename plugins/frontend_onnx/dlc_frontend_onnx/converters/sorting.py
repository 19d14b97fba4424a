"""TopK; the number of results may be data-dependent."""

from __future__ import annotations

from collections.abc import Sequence

from dlc_core.graph.node import Node
from dlc_core.ir.expr import Expr, as_expr
from dlc_core.ir.types import Dim
from dlc_core.op import std
from dlc_frontend_onnx.converters.base import Call, converter
from dlc_frontend_onnx.shapes import has_elements


@converter("TopK", 1)
def top_k_1(c: Call, x: Node) -> Sequence[Node]:
    return _top(c, x, c.integer("k"), -1, largest=True)


@converter("TopK", 10)
def top_k(c: Call, x: Node, k: Node) -> Sequence[Node]:
    c.ignore("sorted")
    (wanted,) = c.elements(std.reshape(k, shape=(1,)), "k")
    c.require(as_expr(wanted) >= 0, "k is negative")
    count = c.offset(wanted, "k") if has_elements(wanted) else c.size(wanted, "k")
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
    indices = std.top_indices(rows, count=count, largest=largest)
    values = std.gather_elements(rows, indices, axis=-1)
    return [std.transpose(values, axes=back), std.transpose(indices, axes=back)]
