"""Sizes as numbers, and numbers that depend on data."""

from __future__ import annotations

from typing import Any

import torch

from dlc_core.graph.node import Node
from dlc_core.ir.types import Dim
from dlc_frontend_torch.call import Call
from dlc_frontend_torch.locating import op_name
from dlc_frontend_torch.registry import aten

ARITHMETIC = tuple(f"aten.{name}.Tensor" for name in ("add", "sub", "mul", "div"))
SYMBOLIC = (torch.SymInt, torch.SymBool, torch.SymFloat)


@aten("sym_size.int sym_numel sym_stride.int sym_storage_offset sym_is_contiguous")
def size(c: Call, *_: Any) -> Dim:
    """torch knows the number as an expression of the sizes."""
    return c.symbols.dim(c.value)


@aten("_local_scalar_dense item")
def number(c: Call, x: Node) -> Node | Dim:
    """A dim, or a tensor without dims if the graph only calculates with the number and returns it."""
    if c.value is None or _is_only_a_number(c):
        kinds = {torch.SymBool: "bool", torch.SymInt: "int64"}
        return c.cast(c.reshape(x, ()), kinds.get(type(c.value), "float64"))
    if not isinstance(c.value, torch.SymInt):
        raise c.unsupported(
            "a Python number that depends on data and is no int",
            "keep it a tensor: x.sum(), not x.sum().item()",
        )
    return c.scope.number(c, c.cast(c.reshape(x, ()), "int64"))


def _is_only_a_number(c: Call) -> bool:
    """Whether all users take the number as an operand, or return it, and no size depends on it."""
    users = all(user.op == "output" or op_name(user) in ARITHMETIC for user in c.node.users)
    return users and not _is_read_by_sizes(c)


def _is_read_by_sizes(c: Call) -> bool:
    """Whether a number or a shape of another node has the symbol of this one."""
    own = c.value.node.expr.free_symbols
    for node in c.node.graph.nodes:
        value = node.meta.get("val")
        if node is c.node or value is None:
            continue
        for each in value if isinstance(value, (tuple, list)) else (value,):
            sizes = each.shape if isinstance(each, torch.Tensor) else (each,)
            if any(isinstance(size, SYMBOLIC) and size.node.expr.free_symbols & own for size in sizes):
                return True
    return False
