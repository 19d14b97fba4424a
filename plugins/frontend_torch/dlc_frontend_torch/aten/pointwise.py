"""Elementwise operators: arithmetic, comparisons, logic, activations and casts.

Operands are cast to the dtype of the result, as torch's type promotion has it. Comparisons are made in the
promoted dtype of their operands.
"""

from __future__ import annotations

from typing import Any

import torch

from dlc_core.graph.node import Node
from dlc_core.ir.dtype import DType
from dlc_core.op import std
from dlc_frontend_torch.call import Call, Operand
from dlc_frontend_torch.registry import aten

_UNARY = {
    "abs": "abs", "acos": "acos", "acosh": "acosh", "asin": "asin", "asinh": "asinh", "atan": "atan",
    "atanh": "atanh", "ceil": "ceil", "cos": "cos", "cosh": "cosh", "erf": "erf", "exp": "exp",
    "exp2": "exp2", "expm1": "expm1", "floor": "floor", "log": "log", "log10": "log10", "log1p": "log1p",
    "log2": "log2", "neg": "neg", "reciprocal": "reciprocal", "rsqrt": "rsqrt",
    "sigmoid": "sigmoid", "sign": "sign", "sin": "sin", "sinh": "sinh", "sqrt": "sqrt", "tan": "tan",
    "tanh": "tanh", "trunc": "trunc", "relu": "relu", "silu": "silu", "mish": "mish",
}  # fmt: skip
_INTEGERS_UNCHANGED = ("ceil", "floor", "trunc")


def _add_unary(name: str, op: str) -> None:
    @aten(name)
    def convert(c: Call, x: Node) -> Node:
        if op in _INTEGERS_UNCHANGED and not x.dtype.is_float:
            return x
        made: Node = getattr(std, op)(c.tensor(x))
        return made


for _name, _op in _UNARY.items():
    _add_unary(_name, _op)


@aten("round")
def round_(c: Call, x: Node) -> Node:
    return std.round(x) if x.dtype.is_float else x


def _scaled(c: Call, y: Operand, alpha: Any) -> Node:
    value = c.tensor(y)
    return value if alpha == 1 else std.mul(value, c.tensor(alpha))


@aten("add.Tensor add.Scalar")
def add(c: Call, x: Operand, y: Operand, alpha: Any = 1) -> Node:
    if c.dtype.is_bool:
        return std.logical_or(c.tensor(x), c.tensor(y))
    return std.add(c.tensor(x), _scaled(c, y, alpha))


@aten("sub.Tensor sub.Scalar")
def sub(c: Call, x: Operand, y: Operand, alpha: Any = 1) -> Node:
    return std.sub(c.tensor(x), _scaled(c, y, alpha))


@aten("rsub.Tensor rsub.Scalar")
def rsub(c: Call, x: Operand, y: Operand, alpha: Any = 1) -> Node:
    return std.sub(c.tensor(y), _scaled(c, x, alpha))


@aten("mul.Tensor mul.Scalar")
def mul(c: Call, x: Operand, y: Operand) -> Node:
    if c.dtype.is_bool:
        return std.logical_and(c.tensor(x), c.tensor(y))
    return std.mul(c.tensor(x), c.tensor(y))


@aten("div.Tensor div.Scalar")
def div(c: Call, x: Operand, y: Operand) -> Node:
    return std.div(c.tensor(x), c.tensor(y))


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


def promoted(c: Call, x: Operand, y: Operand) -> DType:
    """The dtype in which torch computes on two operands of a comparison."""
    fake = [each.meta["val"] if isinstance(each, torch.fx.Node) else each for each in c.node.args[:2]]
    return c.to_dtype(torch.result_type(*fake))


_COMPARISONS = {
    "eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal", "gt": "greater",
    "ge": "greater_equal",
}  # fmt: skip


def _add_comparison(name: str, op: str) -> None:
    @aten(f"{name}.Tensor {name}.Scalar")
    def convert(c: Call, x: Operand, y: Operand) -> Node:
        kind = promoted(c, x, y)
        # Order is not declared for truth values.
        kind = DType("uint8") if kind.is_bool and op not in ("equal", "not_equal") else kind
        made: Node = getattr(std, op)(c.tensor(x, kind), c.tensor(y, kind))
        return made


for _name, _op in _COMPARISONS.items():
    _add_comparison(_name, _op)


@aten("where.self where.ScalarOther where.ScalarSelf where.Scalar")
def where(c: Call, condition: Node, x: Operand, y: Operand) -> Node:
    return std.where(c.cast(condition, "bool"), c.tensor(x), c.tensor(y))


@aten("_to_copy to.dtype")
def to_copy(c: Call, x: Node, *_: Any, **__: Any) -> Node:
    return c.cast(x, c.dtype)


@aten("clone alias detach lift_fresh_copy contiguous")
def same(c: Call, x: Node, **_: Any) -> Node:
    return x


@aten("gelu")
def gelu(c: Call, x: Node, approximate: str = "none") -> Node:
    return std.gelu(x, approximate=approximate)


@aten("_softmax softmax.int")
def softmax(c: Call, x: Node, dim: int, *_: Any) -> Node:
    return std.softmax(c.tensor(x), axis=c.axis(dim, len(x.shape))) if x.shape else c.full((), 1)


@aten("_log_softmax log_softmax.int")
def log_softmax(c: Call, x: Node, dim: int, *_: Any) -> Node:
    return std.log_softmax(c.tensor(x), axis=c.axis(dim, len(x.shape))) if x.shape else c.full((), 0)
