"""Comparisons, logic, extremes of two tensors, and tests of single values.

Comparisons are made in the promoted dtype of their operands.
"""

from __future__ import annotations

from dlc_core.graph.node import Node
from dlc_core.op import std
from dlc_frontend_torch.aten.promotion import ordered, promoted
from dlc_frontend_torch.call import Call, Operand
from dlc_frontend_torch.registry import aten

_COMPARISONS = {
    "eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal", "gt": "greater",
    "ge": "greater_equal",
}  # fmt: skip
_LOGIC = ("logical_and", "logical_or", "logical_xor")


def _add_comparison(name: str, op: str) -> None:
    @aten(f"{name}.Tensor {name}.Scalar")
    def convert(c: Call, x: Operand, y: Operand) -> Node:
        kind = promoted(c)
        kind = kind if op in ("equal", "not_equal") else ordered(kind)
        made: Node = getattr(std, op)(c.tensor(x, kind), c.tensor(y, kind))
        return made


def _add_logic(name: str) -> None:
    @aten(name)
    def convert(c: Call, x: Node, y: Node) -> Node:
        made: Node = getattr(std, name)(c.cast(x, "bool"), c.cast(y, "bool"))
        return made


for _name, _op in _COMPARISONS.items():
    _add_comparison(_name, _op)
for _name in _LOGIC:
    _add_logic(_name)


@aten("logical_not")
def logical_not(c: Call, x: Node) -> Node:
    return std.logical_not(c.cast(x, "bool"))


@aten("maximum")
def maximum(c: Call, x: Operand, y: Operand) -> Node:
    if c.dtype.is_bool:
        return std.logical_or(x, y)
    return std.maximum(c.tensor(x), c.tensor(y))


@aten("minimum")
def minimum(c: Call, x: Operand, y: Operand) -> Node:
    if c.dtype.is_bool:
        return std.logical_and(x, y)
    return std.minimum(c.tensor(x), c.tensor(y))


@aten("fmax")
def fmax(c: Call, x: Operand, y: Operand) -> Node:
    return _without_nan(c, x, y, maximum(c, x, y))


@aten("fmin")
def fmin(c: Call, x: Operand, y: Operand) -> Node:
    return _without_nan(c, x, y, minimum(c, x, y))


def _without_nan(c: Call, x: Operand, y: Operand, extreme: Node) -> Node:
    if not c.dtype.is_float:
        return extreme
    a, b = c.tensor(x), c.tensor(y)
    return std.where(std.isnan(a), b, std.where(std.isnan(b), a, extreme))


@aten("clamp clamp.Tensor")
def clamp(c: Call, x: Node, low: Operand | None = None, high: Operand | None = None) -> Node:
    kind = ordered(c.dtype)
    made = c.tensor(x, kind)
    if low is not None:
        made = std.maximum(made, c.tensor(low, kind))
    if high is not None:
        made = std.minimum(made, c.tensor(high, kind))
    return c.cast(made, c.dtype)


@aten("clamp_min clamp_min.Tensor")
def clamp_min(c: Call, x: Node, low: Operand) -> Node:
    return clamp(c, x, low)


@aten("clamp_max clamp_max.Tensor")
def clamp_max(c: Call, x: Node, high: Operand) -> Node:
    return clamp(c, x, None, high)


@aten("isnan")
def isnan(c: Call, x: Node) -> Node:
    return std.isnan(x) if x.dtype.is_float else c.full(x.shape, False)


@aten("isinf")
def isinf(c: Call, x: Node) -> Node:
    return std.isinf(x) if x.dtype.is_float else c.full(x.shape, False)


@aten("isfinite")
def isfinite(c: Call, x: Node) -> Node:
    if not x.dtype.is_float:
        return c.full(x.shape, True)
    return std.logical_not(std.logical_or(std.isnan(x), std.isinf(x)))


@aten("angle")
def angle(c: Call, x: Node) -> Node:
    value = c.tensor(x)
    turned = std.where(std.less(value, c.tensor(0)), c.tensor(3.141592653589793), c.tensor(0))
    return std.where(std.isnan(value), value, turned)


@aten("heaviside")
def heaviside(c: Call, x: Node, values: Node) -> Node:
    a, kind = c.tensor(x, ordered(c.dtype)), ordered(c.dtype)
    zero = c.const(0, kind)
    step = c.cast(std.greater(a, zero), kind)
    return c.cast(std.where(std.equal(a, zero), c.tensor(values, kind), step), c.dtype)
