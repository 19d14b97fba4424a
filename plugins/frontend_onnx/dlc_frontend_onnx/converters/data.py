"""Operators whose results' shapes depend on data."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dlc_core.graph.node import Node, constant, get_item, make_tuple, param
from dlc_core.ir.expr import Var, as_expr
from dlc_core.ir.types import TensorType
from dlc_core.op import std
from dlc_core.op.declare import OpDecl
from dlc_core.op.infer import dim_min, product
from dlc_core.op.reference import apply
from dlc_frontend_onnx.closures import close
from dlc_frontend_onnx.converters.base import Call, converter
from dlc_frontend_onnx.converters.reduce import along_axis
from dlc_frontend_onnx.shapes import at_most


@converter("NonZero", 9)
def nonzero(c: Call, x: Node) -> Node:
    made = std.nonzero(x, count=Var("nonzero", bounds=at_most(product(x.shape))))
    return _known(c, made, x) or made


def _known(c: Call, made: Node, x: Node) -> Node | None:
    """The results of an op on x as constants, if the elements of x are known; else None."""
    found = c.array(x)
    if found is None:
        return None
    assert isinstance(made.op, OpDecl)
    results = apply(made.op, [found], made.attrs, made.type)
    return make_tuple([constant(a) for a in results]) if isinstance(results, tuple) else constant(results)


@converter("Compress", 9)
def compress(c: Call, x: Node, condition: Node) -> Node:
    axis = c.integer("axis", None)
    if axis is not None:
        axis = c.check_axis(axis, len(x.shape))
    if len(condition.shape) != 1:
        raise c.error(f"the condition must be a vector, not {condition.type}")
    length, most = condition.shape[0], product(x.shape) if axis is None else x.shape[axis]
    c.require(
        as_expr(length) <= as_expr(most),
        f"a condition of {length} is longer than the axis, {most}",
    )
    found = c.array(condition)
    if found is None:
        positions = std.squeeze(
            std.nonzero(condition, count=Var("chosen", bounds=at_most(product(condition.shape)))), axes=(0,)
        )
    else:
        positions = c.const(np.flatnonzero(found), "int64")
    if axis is None:
        return std.gather(std.reshape(x, shape=(-1,)), positions, axis=0)
    return std.gather(x, positions, axis=axis)


@converter("Unique", 11)
def unique(c: Call, x: Node) -> Sequence[Node]:
    axis, ordered = c.integer("axis", None), c.flag("sorted", True)
    return unique_of(c, x, None if axis is None else c.check_axis(axis, len(x.shape)), ordered=ordered)


def unique_of(c: Call, x: Node, axis: int | None, *, ordered: bool) -> Sequence[Node]:
    """The distinct elements or slices, their first indices, the inverse indices, and their counts."""
    most = at_most(product(x.shape) if axis is None else x.shape[axis])
    made = std.unique(x, count=Var("different", bounds=most), axis=axis, ordered=ordered)
    results = _known(c, made, x) or made
    return [get_item(results, index) for index in range(4)]


@converter("NonMaxSuppression", 10)
def non_max_suppression(
    c: Call,
    boxes: Node,
    scores: Node,
    most: Node | None = None,
    overlap: Node | None = None,
    least: Node | None = None,
) -> Node:
    limits = (
        (most, 0, "int64"),
        (overlap, 0.0, "float32"),
        (least, -math.inf, "float32"),
    )
    given = [
        c.const([default], dtype) if value is None else std.reshape(value, shape=(1,))
        for value, default, dtype in limits
    ]
    limit = c.array(given[0])
    count = None
    if len(scores.shape) == 3:
        images, classes, each = scores.shape
        kept = each if limit is None else dim_min(each, max(0, int(limit[0])))
        count = at_most(product((images, classes, kept)))
    return std.non_max_suppression(
        boxes, scores, *given, count=Var("boxes", bounds=count), center=c.flag("center_point_box")
    )


@converter("CumProd", 26)
def cumprod(c: Call, x: Node, axis: Node) -> Node:
    """Cumulative products by a `scan` along the axis."""
    reverse, exclusive = c.flag("reverse"), c.flag("exclusive")
    return along_axis(
        c, x, axis, lambda position: _products(x, position, exclusive=exclusive, reverse=reverse)
    )


def _products(x: Node, position: int, *, exclusive: bool, reverse: bool) -> Node:
    rank = len(x.shape)
    order = (position, *(k for k in range(rank) if k != position))
    rows = std.transpose(x, axes=order)
    rows = std.flip(rows, axes=(0,)) if reverse else rows
    item = TensorType(rows.shape[1:], x.dtype)
    accumulated, now = param("so_far", item), param("now", item)
    after = std.mul(accumulated, now)
    body, _ = close("product", (accumulated, now), [after, accumulated if exclusive else after], (), {})
    ones = std.full(shape=item.shape, value=1.0, dtype=x.dtype)
    made = get_item(std.scan(ones, rows, num_state=1, body=body), 1)
    made = std.flip(made, axes=(0,)) if reverse else made
    return std.transpose(made, axes=tuple(order.index(k) for k in range(rank)))
