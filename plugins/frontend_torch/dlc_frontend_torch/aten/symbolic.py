"""Sizes as numbers, and numbers that depend on data."""

from __future__ import annotations

from typing import Any

import torch

from dlc_core.graph.node import Node
from dlc_core.ir.types import Dim
from dlc_frontend_torch.call import Call
from dlc_frontend_torch.registry import aten


@aten("sym_size.int sym_numel sym_stride.int sym_storage_offset sym_is_contiguous")
def size(c: Call, *_: Any) -> Dim:
    """torch knows the number as an expression of the sizes."""
    return c.symbols.dim(c.value)


@aten("_local_scalar_dense item")
def number(c: Call, x: Node) -> Dim:
    if not isinstance(c.value, torch.SymInt):
        raise c.unsupported(
            "a Python number that depends on data and is no int",
            "keep it a tensor: x.sum(), not x.sum().item()",
        )
    return c.scope.number(c, c.cast(c.reshape(x, ()), "int64"))
