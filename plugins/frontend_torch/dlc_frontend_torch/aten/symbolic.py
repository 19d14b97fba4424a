"""Sizes as numbers, and numbers that depend on data."""

from __future__ import annotations

from typing import Any

from dlc_core.ir.types import Dim
from dlc_frontend_torch.call import Call
from dlc_frontend_torch.registry import aten


@aten("sym_size.int sym_numel sym_stride.int sym_storage_offset sym_is_contiguous")
def size(c: Call, *_: Any) -> Dim:
    """torch knows the number as an expression of the sizes."""
    return c.symbols.dim(c.value)


@aten("_local_scalar_dense item")
def number(c: Call, *_: Any) -> Dim:
    raise c.unsupported(
        "a Python number that depends on data", "keep it a tensor: x.sum(), not x.sum().item()"
    )
