"""Distances between vectors."""

from __future__ import annotations

from typing import Any

import numpy as np

from dlc_core.graph.node import Node
from dlc_core.op import std
from dlc_frontend_torch.aten.promotion import opmath
from dlc_frontend_torch.aten.reduction import norm
from dlc_frontend_torch.aten.slicing import elements
from dlc_frontend_torch.call import Call
from dlc_frontend_torch.registry import aten


@aten("_cdist_forward")
def cdist(c: Call, x: Node, y: Node, p: float, compute_mode: int | None = None) -> Node:
    kind = opmath(c.dtype)
    a = std.unsqueeze(c.tensor(x, kind), axes=(len(x.shape) - 1,))
    b = std.unsqueeze(c.tensor(y, kind), axes=(len(y.shape) - 2,))
    difference = std.sub(a, b)
    made = norm(c, difference, p, (len(difference.shape) - 1,))
    return c.cast(c.broadcast(made, c.shape), c.dtype)


@aten("_pdist_forward")
def pdist(c: Call, x: Node, p: float = 2) -> Node:
    count = c.number(x.shape[0], "the number of vectors")
    rows, columns = np.triu_indices(count, 1)
    if not len(rows):
        return c.full(c.shape, 0)
    kind = opmath(c.dtype)
    values = c.tensor(x, kind)
    a, b = (std.gather(values, c.const(each, "int64"), axis=0) for each in (rows, columns))
    return c.cast(norm(c, std.sub(a, b), p, (1,)), c.dtype)


@aten("dist")
def dist(c: Call, x: Node, y: Node, p: Any = 2) -> Node:
    kind = opmath(c.dtype)
    difference = std.sub(c.tensor(x, kind), c.tensor(y, kind))
    flat = c.reshape(difference, (elements(difference.shape),))
    return c.cast(norm(c, flat, p, (0,)), c.dtype)
