"""Operators on bits: bitwise logic, shifts, signs of floats, and views of bits as another dtype."""

from __future__ import annotations

import torch

from dlc_core.graph.node import Node
from dlc_core.op import std
from dlc_frontend_torch.call import Call, Operand
from dlc_frontend_torch.registry import aten

_BITWISE = {"and": "logical_and", "or": "logical_or", "xor": "logical_xor"}
_SHIFTS = {"left": "shift_left", "right": "shift_right"}


def _add_bitwise(name: str, logic: str) -> None:
    @aten(" ".join(f"bitwise_{name}.{kind}" for kind in ("Tensor", "Scalar", "Scalar_Tensor")))
    def convert(c: Call, x: Operand, y: Operand) -> Node:
        op = logic if c.dtype.is_bool else f"bitwise_{name}"
        made: Node = getattr(std, op)(c.tensor(x), c.tensor(y))
        return made


def _add_shift(name: str, op: str) -> None:
    @aten(" ".join(f"bitwise_{name}_shift.{kind}" for kind in ("Tensor", "Tensor_Scalar", "Scalar_Tensor")))
    def convert(c: Call, x: Operand, y: Operand) -> Node:
        made: Node = getattr(std, op)(c.tensor(x), c.tensor(y))
        return made


for _name, _logic in _BITWISE.items():
    _add_bitwise(_name, _logic)
for _name, _op in _SHIFTS.items():
    _add_shift(_name, _op)


@aten("bitwise_not")
def bitwise_not(c: Call, x: Node) -> Node:
    return std.logical_not(x) if x.dtype.is_bool else std.bitwise_not(x)


@aten("signbit")
def signbit(c: Call, x: Node) -> Node:
    """Whether the sign is negative: of -0.0 and of NaN too."""
    if x.dtype.is_bool:
        return c.full(x.shape, False)
    bits = std.bitcast(x, to=f"int{x.dtype.bits}") if x.dtype.is_float else x
    return std.less(bits, c.const(0, bits.dtype))


@aten("copysign.Tensor copysign.Scalar")
def copysign(c: Call, x: Operand, y: Operand) -> Node:
    size, sign = std.abs(c.tensor(x)), c.tensor(y)
    bits = std.bitcast(sign, to=f"int{sign.dtype.bits}")
    return std.where(std.less(bits, c.const(0, bits.dtype)), std.neg(size), size)


@aten("view.dtype view_copy.dtype")
def view_dtype(c: Call, x: Node, dtype: torch.dtype) -> Node:
    """The bits as another dtype of the same width."""
    to = c.to_dtype(dtype)
    if to is x.dtype:
        return x
    if to.bits != x.dtype.bits or to.is_bool or x.dtype.is_bool:
        raise c.unsupported(f"a view of {x.dtype} as {to}")
    return std.bitcast(x, to=to)


@aten("nextafter")
def nextafter(c: Call, x: Node, y: Node) -> Node:
    """The neighbour of x towards y: the bits of a float, plus or minus one."""
    a, b = c.tensor(x), c.tensor(y)
    whole = f"int{a.dtype.bits}"
    zero, one = c.const(0, a.dtype), c.const(1, whole)
    bits = std.bitcast(a, to=whole)
    grows = std.equal(std.greater(b, a), std.greater(a, zero))
    moved = std.bitcast(std.where(grows, std.add(bits, one), std.sub(bits, one)), to=a.dtype)
    least = std.bitcast(one, to=a.dtype)
    from_zero = std.where(std.greater(b, zero), least, std.neg(least))
    moved = std.where(std.equal(a, zero), from_zero, moved)
    moved = std.where(std.equal(a, b), b, moved)
    return std.where(std.logical_or(std.isnan(a), std.isnan(b)), std.add(a, b), moved)
