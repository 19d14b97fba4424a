"""Running sums along a dimension."""

from __future__ import annotations

from typing import Any

from dlc_core.graph.node import Node
from dlc_core.op import std
from dlc_frontend_torch.call import Call
from dlc_frontend_torch.registry import aten


@aten("cumsum")
def cumsum(c: Call, x: Node, dim: int, *, dtype: Any = None) -> Node:
    values = c.tensor(x)
    return std.cumsum(values, axis=c.axis(dim, len(x.shape))) if x.shape else values
