"""The dtypes in which torch computes: promotion of operands, and float32 for narrow floats."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from dlc_core.graph.node import Node
from dlc_core.ir.dtype import DType
from dlc_frontend_torch.call import Call, Operand


def promoted(c: Call, *places: int) -> DType:
    """The dtype in which torch computes on the arguments at these positions (the first two by default)."""
    fake = [_fake(c.node.args[place]) for place in places or (0, 1)]
    return c.to_dtype(torch.result_type(*fake))


def _fake(argument: Any) -> Any:
    return argument.meta["val"] if isinstance(argument, torch.fx.Node) else argument


def opmath(kind: DType) -> DType:
    """The dtype in which torch computes one operation on values of a dtype."""
    return DType("float32") if kind.is_float and kind.bits <= 16 else kind


def ordered(kind: DType) -> DType:
    """The dtype in which values are compared: order is not declared for truth values."""
    return DType("uint8") if kind.is_bool else kind


def computed(c: Call, function: Callable[..., Node], *operands: Operand) -> Node:
    """A function of operands, computed in the result's opmath dtype and rounded once."""
    kind = opmath(c.dtype)
    return c.cast(function(*(c.tensor(each, kind) for each in operands)), c.dtype)


__all__ = ["computed", "opmath", "ordered", "promoted"]
