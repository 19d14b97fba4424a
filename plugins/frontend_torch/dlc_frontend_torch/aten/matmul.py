"""Matrix products. Products of narrow floats are summed, and added to, in float32."""

from __future__ import annotations

from typing import Any

from dlc_core.graph.node import Node
from dlc_core.op import std
from dlc_frontend_torch.aten.promotion import opmath
from dlc_frontend_torch.call import Call
from dlc_frontend_torch.registry import aten


@aten("mm bmm matmul mv")
def matmul(c: Call, x: Node, y: Node) -> Node:
    return std.matmul(x, y) if len(y.shape) > 1 else c.cast(product(c, x, y), c.dtype)


@aten("dot vdot")
def dot(c: Call, x: Node, y: Node) -> Node:
    return c.cast(std.reduce_sum(std.mul(*(c.tensor(each, opmath(c.dtype)) for each in (x, y)))), c.dtype)


def plus(c: Call, bias: Node, product: Node, beta: Any, alpha: Any) -> Node:
    """beta bias + alpha product, rounded once. The bias is not read where beta is 0."""
    kind = product.dtype
    made = product if alpha == 1 else std.mul(product, c.tensor(alpha, kind))
    if beta != 0:
        own = c.cast(bias, kind)
        made = std.add(made, own if beta == 1 else std.mul(own, c.tensor(beta, kind)))
    return c.cast(c.broadcast(made, c.shape), c.dtype)


def product(c: Call, x: Node, y: Node) -> Node:
    """The matrix product in the opmath dtype of the result."""
    wide = opmath(c.dtype)
    columns = y if len(y.shape) > 1 else std.unsqueeze(y, axes=(1,))
    made = std.matmul(x, columns) if wide is x.dtype else std.matmul(x, columns, out_dtype=wide)
    return made if columns is y else std.squeeze(made, axes=(len(made.shape) - 1,))


@aten("addmm baddbmm addmv")
def addmm(c: Call, bias: Node, x: Node, y: Node, *, beta: Any = 1, alpha: Any = 1) -> Node:
    return plus(c, bias, product(c, x, y), beta, alpha)


@aten("addbmm")
def addbmm(c: Call, bias: Node, x: Node, y: Node, *, beta: Any = 1, alpha: Any = 1) -> Node:
    total = std.reduce_sum(product(c, x, y), axes=(0,))
    return plus(c, bias, total, beta, alpha)


@aten("addr")
def addr(c: Call, bias: Node, x: Node, y: Node, *, beta: Any = 1, alpha: Any = 1) -> Node:
    kind = opmath(c.dtype)
    if kind.is_bool:
        outer = std.logical_and(std.unsqueeze(x, axes=(1,)), std.unsqueeze(y, axes=(0,)))
        made = outer if alpha else c.full(outer.shape, False)
        return std.logical_or(made, bias) if beta else made
    outer = std.mul(std.unsqueeze(c.tensor(x, kind), axes=(1,)), std.unsqueeze(c.tensor(y, kind), axes=(0,)))
    return plus(c, bias, outer, beta, alpha)


@aten("linear")
def linear(c: Call, x: Node, weight: Node, bias: Node | None = None) -> Node:
    if bias is None:
        return std.matmul(x, std.transpose(weight))
    return plus(c, bias, product(c, x, std.transpose(weight)), 1, 1)
