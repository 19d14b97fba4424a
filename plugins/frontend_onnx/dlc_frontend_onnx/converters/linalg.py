"""Determinants."""

from __future__ import annotations

from dlc_core.graph.node import Node
from dlc_core.op import std
from dlc_frontend_onnx.converters.base import Call, converter


@converter("Det", 11)
def det(c: Call, x: Node) -> Node:
    return std.det(x)
