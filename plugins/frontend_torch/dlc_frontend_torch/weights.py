"""Tensors of torch as arrays and constants, without copies where their memory permits."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from dlc_core.diag import UnsupportedError, UsageError
from dlc_core.graph.node import Node, constant
from dlc_core.ir.dtype import DType
from dlc_frontend_torch.complex_value import Complex
from dlc_frontend_torch.dtypes import BY_NAME, name_of, of_torch

_PLAIN = {
    getattr(torch, name)
    for name in ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64")
}
"""The dtypes of torch that NumPy has too."""
_BITS = {1: torch.uint8, 2: torch.int16}


def as_array(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    """A contiguous array in the tensor's memory; a copy if the tensor is not contiguous or not on the CPU.
    Complex numbers have their parts in a new last dim.

    Raises UnsupportedError for a dtype that dlc lacks.
    """
    if tensor.dtype in _PLAIN and tensor.is_contiguous():
        try:
            return tensor.detach().numpy()  # type: ignore[no-any-return]
        except (RuntimeError, TypeError):
            return _copied(tensor)  # it is on another device, or has a sign to apply
    return _copied(tensor)


def _copied(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    """`as_array` of any tensor."""
    if tensor.is_complex():
        return as_array(torch.view_as_real(tensor.detach().resolve_conj()))
    kind = of_torch(tensor.dtype)
    if kind is None:
        raise UnsupportedError(f"a tensor of {name_of(tensor.dtype)}")
    plain = tensor.detach()
    if plain.device.type == "meta":
        raise UsageError(
            "a tensor on the device meta has no data", hint="module.to_empty(device='cpu'), then load it"
        )
    if plain.device.type != "cpu":
        plain = plain.cpu()
    plain = plain.contiguous()
    if plain.is_neg():
        plain = plain.resolve_neg()
    # NumPy does not know all dtypes: of the others, the bits are viewed.
    known = kind.numpy.isbuiltin == 1
    array: np.ndarray[Any, Any] = (plain if known else plain.view(_BITS[plain.element_size()])).numpy()
    return array if known else array.view(kind.numpy)


def as_constant(tensor: torch.Tensor) -> Node:
    """The tensor of real numbers as a constant of a graph."""
    return constant(as_array(tensor))


def as_operand(tensor: torch.Tensor) -> Node | Complex:
    """The tensor as a constant of a graph, or as a pair of constants."""
    if tensor.is_complex():
        return Complex(as_constant(tensor.real), as_constant(tensor.imag))
    return as_constant(tensor)


def as_tensor(array: np.ndarray[Any, Any], kind: DType) -> torch.Tensor:
    """An array that a call returned as a tensor of the same memory."""
    if not array.flags.writeable:
        array = array.copy()
    wanted = BY_NAME[kind.name]
    if array.dtype.isbuiltin == 1:
        return torch.from_numpy(array)
    return torch.from_numpy(array.view(np.uint8 if array.itemsize == 1 else np.int16)).view(wanted)


__all__ = ["as_array", "as_constant", "as_operand", "as_tensor"]
