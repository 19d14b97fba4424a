"""Matrix products."""

from __future__ import annotations

from typing import Any

from dlc_core.graph.node import Node
from dlc_core.op import std
from dlc_frontend_torch.call import Call
from dlc_frontend_torch.registry import aten


@aten("mm bmm matmul")
def matmul(c: Call, x: Node, y: Node) -> Node:
    return std.matmul(x, y)


@aten("addmm")
def addmm(c: Call, bias: Node, x: Node, y: Node, *, beta: Any = 1, alpha: Any = 1) -> Node:
    made = std.matmul(x, y)
    if alpha != 1:
        made = std.mul(made, c.tensor(alpha))
    if beta == 0:
        return made
    return std.add(made, bias if beta == 1 else std.mul(bias, c.tensor(beta)))


@aten("linear")
def linear(c: Call, x: Node, weight: Node, bias: Node | None = None) -> Node:
    made = std.matmul(x, std.transpose(weight))
    return made if bias is None else std.add(made, bias)
