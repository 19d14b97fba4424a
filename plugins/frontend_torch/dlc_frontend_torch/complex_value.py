"""Complex numbers: `Complex`, a pair of tensors of real numbers.

A compiled program has no complex dtype. Where complex tensors enter or leave it, they are real tensors with a
last dim of 2, the real and the imaginary part. That is their layout in memory, so nothing is copied.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch

from dlc_core.graph.node import Node, param
from dlc_core.ir.dtype import DType
from dlc_core.ir.types import Dim, TensorType
from dlc_core.op import std
from dlc_core.support.record import record
from dlc_frontend_torch.dtypes import of_torch

PARTS = {
    torch.complex32: torch.float16,
    torch.complex64: torch.float32,
    torch.complex128: torch.float64,
}
"""The dtype of the parts of a complex dtype."""


@record(frozen=True)
class Complex:
    """A complex tensor while a program is imported. Both parts have its shape, and one dtype."""

    real: Node
    imaginary: Node

    @property
    def shape(self) -> tuple[Dim, ...]:
        """The shape of both parts."""
        return tuple(self.real.shape)

    @property
    def dtype(self) -> DType:
        """The dtype of a part."""
        return self.real.dtype

    def map(self, function: Callable[[Node], Node]) -> Complex:
        """The same function of both parts."""
        return Complex(function(self.real), function(self.imaginary))

    def packed(self) -> Node:
        """One real tensor with the parts in a new last dim."""
        return std.stack(self.real, self.imaginary, axis=-1)


def unpacked(x: Node) -> Complex:
    """The complex tensor of a real one [..., 2]."""

    def part(place: int) -> Node:
        return std.squeeze(std.slice(x, begins=(place,), ends=(place + 1,), axes=(-1,)), axes=(-1,))

    return Complex(part(0), part(1))


def transposed(x: Node | Complex, axes: Sequence[int]) -> Node | Complex:
    """The tensor with its dims in another order."""
    by_axes = partial(std.transpose, axes=tuple(axes))
    return x.map(by_axes) if isinstance(x, Complex) else by_axes(x)


def part_of(dtype: torch.dtype) -> DType | None:
    """dlc's dtype for a dtype of torch; for a complex one that of its parts. None if there is none."""
    return of_torch(PARTS.get(dtype, dtype))


def border_type(dtype: torch.dtype, shape: Sequence[Dim]) -> TensorType | None:
    """The type of a tensor of torch where it enters or leaves a compiled program; None if it cannot."""
    kind = part_of(dtype)
    if kind is None:
        return None
    return TensorType((*shape, 2) if dtype in PARTS else tuple(shape), kind)


def stand_in(dtype: torch.dtype, shape: Sequence[Dim]) -> Node | Complex:
    """A value of a type, of which nothing else is known."""
    type_ = TensorType(tuple(shape), part_of(dtype) or DType("float32"))
    if dtype in PARTS:
        return Complex(param("real", type_), param("imaginary", type_))
    return param("unknown", type_)


__all__ = ["PARTS", "Complex", "border_type", "part_of", "stand_in", "transposed", "unpacked"]
