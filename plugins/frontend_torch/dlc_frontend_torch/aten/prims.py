"""Operators of the namespace `prims` that torch's decompositions leave."""

from __future__ import annotations

from dlc_core.graph.node import Node
from dlc_core.op import std
from dlc_frontend_torch.call import Call, Operand
from dlc_frontend_torch.registry import converter


@converter("prims.fma.default")
def fma(c: Call, x: Operand, y: Operand, z: Operand) -> Node:
    """x * y + z. A target may round the product too: the result differs in the last bit at most."""
    made = std.add(std.mul(c.tensor(x), c.tensor(y)), c.tensor(z))
    return c.broadcast(made, c.shape)
