"""The dtypes of torch and of dlc."""

from __future__ import annotations

import torch

from dlc_core.ir.dtype import DType

NAMES = {
    torch.float32: "float32", torch.float64: "float64", torch.float16: "float16", torch.bfloat16: "bfloat16",
    torch.int8: "int8", torch.int16: "int16", torch.int32: "int32", torch.int64: "int64",
    torch.uint8: "uint8", torch.uint16: "uint16", torch.uint32: "uint32", torch.uint64: "uint64",
    torch.bool: "bool", torch.float8_e4m3fn: "float8_e4m3fn", torch.float8_e5m2: "float8_e5m2",
    torch.float8_e4m3fnuz: "float8_e4m3fnuz", torch.float8_e5m2fnuz: "float8_e5m2fnuz",
}  # fmt: skip
"""The name of dlc's dtype; complex and quantized dtypes have none."""
BY_NAME = {name: dtype for dtype, name in NAMES.items()}


def name_of(dtype: torch.dtype) -> str:
    """The name without the prefix "torch.", for messages."""
    return str(dtype).removeprefix("torch.")


def of_torch(dtype: torch.dtype) -> DType | None:
    """dlc's dtype, or None if it has no equal one."""
    name = NAMES.get(dtype)
    return None if name is None else DType(name)


__all__ = ["BY_NAME", "NAMES", "name_of", "of_torch"]
