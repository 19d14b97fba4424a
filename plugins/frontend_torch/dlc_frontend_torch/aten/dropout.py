"""Dropout. torch draws the mask: `dynamo/drawing.py`."""

from __future__ import annotations

from typing import Any

from dlc_core.graph.node import Node
from dlc_core.ir.dtype import DType
from dlc_core.ir.types import TensorType
from dlc_core.op import std
from dlc_frontend_torch.call import Call
from dlc_frontend_torch.registry import aten


@aten("native_dropout")
def native_dropout(c: Call, x: Node, p: float, train: bool | None) -> tuple[Any, Node]:
    """The elements that the mask keeps, times 1 / (1 - p), and the mask."""
    flags = DType("bool")
    if train is False or p == 0:
        return x, c.full(c.symbols.shape(c.value[1].shape), 1, flags)
    mask = c.scope.draw(c, TensorType(tuple(x.shape), flags))
    scale = 0.0 if p == 1 else 1 / (1 - p)
    return std.mul(x, std.mul(c.cast(mask, x.dtype), c.const(scale, x.dtype))), mask
