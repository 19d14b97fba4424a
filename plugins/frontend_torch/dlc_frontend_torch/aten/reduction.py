"""Reductions over dimensions."""

from __future__ import annotations

from typing import Any

from dlc_core.graph.node import Node
from dlc_core.op import std
from dlc_frontend_torch.call import Call
from dlc_frontend_torch.registry import aten


@aten("sum sum.dim_IntList")
def sum_(c: Call, x: Node, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Node:
    return std.reduce_sum(c.tensor(x), axes=c.axes(dim, len(x.shape)), keepdims=keepdim)


@aten("mean mean.dim")
def mean(c: Call, x: Node, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Node:
    return std.reduce_mean(c.tensor(x), axes=c.axes(dim, len(x.shape)), keepdims=keepdim)
