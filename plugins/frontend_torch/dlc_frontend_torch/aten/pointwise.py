"""Elementwise arithmetic, roundings, exponentials, trigonometry, activations and casts.

Operands are cast to the dtype of the result, as torch's type promotion has it. torch computes on narrow
floats in float32 and rounds once per operator.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dlc_core.graph.node import Node
from dlc_core.op import std
from dlc_frontend_torch.aten.promotion import computed
from dlc_frontend_torch.call import Call, Operand
from dlc_frontend_torch.registry import aten, converter

_UNARY = {
    "acos": "acos", "acosh": "acosh", "asin": "asin", "asinh": "asinh", "atan": "atan",
    "atanh": "atanh", "ceil": "ceil", "cos": "cos", "cosh": "cosh", "erf": "erf", "exp": "exp",
    "exp2": "exp2", "expm1": "expm1", "floor": "floor", "log": "log", "log10": "log10", "log1p": "log1p",
    "log2": "log2", "reciprocal": "reciprocal", "round": "round", "rsqrt": "rsqrt",
    "sigmoid": "sigmoid", "sin": "sin", "sinh": "sinh", "sqrt": "sqrt", "tan": "tan",
    "tanh": "tanh", "trunc": "trunc", "silu": "silu", "mish": "mish",
    "neg": "neg", "abs": "abs", "sign": "sign", "sgn": "sign", "relu": "relu",
}  # fmt: skip
_OF_INTEGERS = ("neg", "abs", "sign", "sgn", "relu")
"""Operators that compute on integers. The roundings return them as they are."""
_ROUNDINGS = ("ceil", "floor", "trunc", "round")


def _add_unary(name: str, op: str) -> None:
    @aten(name)
    def convert(c: Call, x: Node) -> Node:
        if c.dtype.is_bool or (name in _ROUNDINGS and not x.dtype.is_float):
            return x
        if name in ("sign", "sgn") and x.dtype.is_float:  # NaN has the sign 0
            return std.where(std.isnan(x), c.tensor(0), std.sign(x))
        made: Node = getattr(std, op)(c.tensor(x))
        return made


for _name, _op in _UNARY.items():
    _add_unary(_name, _op)


@aten("positive clone alias detach lift_fresh_copy contiguous lift_fresh")
def same(c: Call, x: Node, **_: Any) -> Node:
    return x


@aten("frac")
def frac(c: Call, x: Node) -> Node:
    return computed(c, lambda v: std.sub(v, std.trunc(v)), x)


@aten("round.decimals")
def round_decimals(c: Call, x: Node, *, decimals: int) -> Node:
    if not x.dtype.is_float:
        return x
    scale = float(10 ** abs(decimals))

    def scaled(v: Node) -> Node:
        factor = c.const(scale, v.dtype)
        if decimals < 0:
            return std.mul(std.round(std.div(v, factor)), factor)
        return std.div(std.round(std.mul(v, factor)), factor)

    return computed(c, scaled, x)


def _scaled(c: Call, y: Node, alpha: Any) -> Node:
    return y if alpha == 1 else std.mul(y, c.tensor(alpha, y.dtype))


@aten("add.Tensor add.Scalar")
def add(c: Call, x: Operand, y: Operand, alpha: Any = 1) -> Node:
    if c.dtype.is_bool:
        if not alpha:
            return c.broadcast(c.tensor(x), c.shape)
        return std.logical_or(c.tensor(x), c.tensor(y))
    return computed(c, lambda a, b: std.add(a, _scaled(c, b, alpha)), x, y)


@aten("sub.Tensor sub.Scalar")
def sub(c: Call, x: Operand, y: Operand, alpha: Any = 1) -> Node:
    return computed(c, lambda a, b: std.sub(a, _scaled(c, b, alpha)), x, y)


@aten("rsub.Tensor rsub.Scalar")
def rsub(c: Call, x: Operand, y: Operand, alpha: Any = 1) -> Node:
    return computed(c, lambda a, b: std.sub(b, _scaled(c, a, alpha)), x, y)


@aten("mul.Tensor mul.Scalar")
def mul(c: Call, x: Operand, y: Operand) -> Node:
    if c.dtype.is_bool:
        return std.logical_and(c.tensor(x), c.tensor(y))
    return computed(c, std.mul, x, y)


@aten("div.Tensor div.Scalar")
def div(c: Call, x: Operand, y: Operand) -> Node:
    return computed(c, std.div, x, y)


@aten("div.Tensor_mode div.Scalar_mode")
def div_mode(c: Call, x: Operand, y: Operand, *, rounding_mode: str | None = None) -> Node:
    if rounding_mode is None:
        return div(c, x, y)
    if rounding_mode == "floor":
        return floor_divide(c, x, y)
    return computed(c, lambda a, b: _truncated(std.div(a, b)), x, y)


def _truncated(x: Node) -> Node:
    return std.trunc(x) if x.dtype.is_float else x


@aten("floor_divide floor_divide.Scalar")
def floor_divide(c: Call, x: Operand, y: Operand) -> Node:
    return computed(c, lambda a, b: _floored(c, a, b) if a.dtype.is_float else std.floordiv(a, b), x, y)


def _floored(c: Call, a: Node, b: Node) -> Node:
    """The quotient rounded down as torch does it: of the exact division by fmod, not of the rounded one."""
    zero, one, half = (c.const(value, a.dtype) for value in (0, 1, 0.5))
    remainder = std.fmod(a, b)
    exact = std.div(std.sub(a, remainder), b)
    lower = std.logical_and(
        std.not_equal(remainder, zero), std.not_equal(std.less(b, zero), std.less(remainder, zero))
    )
    exact = std.where(lower, std.sub(exact, one), exact)
    down = std.floor(exact)
    down = std.where(std.greater(std.sub(exact, down), half), std.add(down, one), down)
    quotient = std.div(a, b)
    # A quotient of zero has the sign of the division.
    down = std.where(std.equal(exact, zero), std.mul(quotient, zero), down)
    return std.where(std.equal(b, zero), quotient, down)


@aten("remainder.Tensor remainder.Scalar remainder.Scalar_Tensor")
def remainder(c: Call, x: Operand, y: Operand) -> Node:
    return computed(c, std.mod, x, y)


@aten("fmod.Tensor fmod.Scalar")
def fmod(c: Call, x: Operand, y: Operand) -> Node:
    return computed(c, std.fmod, x, y)


@aten("atan2")
def atan2(c: Call, y: Operand, x: Operand) -> Node:
    return computed(c, std.atan2, y, x)


@aten("hypot")
def hypot(c: Call, x: Operand, y: Operand) -> Node:
    def of(a: Node, b: Node) -> Node:
        zero, one = c.const(0, a.dtype), c.const(1, a.dtype)
        a, b = std.abs(a), std.abs(b)
        large, small = std.maximum(a, b), std.minimum(a, b)
        infinite = std.logical_or(std.isinf(a), std.isinf(b))
        part = std.div(small, std.where(std.equal(large, zero), one, large))
        length = std.mul(large, std.sqrt(std.add(one, std.mul(part, part))))
        return std.where(infinite, c.const(float("inf"), a.dtype), length)

    return computed(c, of, x, y)


@aten("pow.Tensor_Tensor pow.Scalar")
def power(c: Call, x: Operand, y: Operand) -> Node:
    return computed(c, std.pow, x, y)


@aten("pow.Tensor_Scalar")
def power_of_number(c: Call, x: Node, y: Operand) -> Node:
    """torch has its own ways for some exponents, which differ from pow at the ends of the range."""
    special: dict[float, Callable[..., Node]] = {
        0.5: std.sqrt,
        -0.5: std.rsqrt,
        -1: std.reciprocal,
        -2: lambda v: std.reciprocal(std.mul(v, v)),
    }
    if isinstance(y, (int, float)):
        if y == 1:
            return c.tensor(x)
        if y in (2, 3):
            return computed(c, lambda v: std.mul(std.mul(v, v), v) if y == 3 else std.mul(v, v), x)
        if y in special and c.dtype.is_float:
            return computed(c, special[y], x)
    return computed(c, std.pow, x, y)


@aten("where.self where.ScalarOther where.ScalarSelf where.Scalar")
def where(c: Call, condition: Node, x: Operand, y: Operand) -> Node:
    return std.where(c.cast(condition, "bool"), c.tensor(x), c.tensor(y))


@aten("_to_copy to.dtype _to_dtype")
def to_copy(c: Call, x: Operand, *_: Any, **__: Any) -> Node:
    return c.tensor(x)  # decompositions cast numbers too


@aten("gelu")
def gelu(c: Call, x: Node, approximate: str = "none") -> Node:
    return std.gelu(x, approximate=approximate)


@aten("_softmax softmax.int")
def softmax(c: Call, x: Node, dim: int, *_: Any, **__: Any) -> Node:
    return std.softmax(c.tensor(x), axis=c.axis(dim, len(x.shape))) if x.shape else c.full((), 1)


@aten("_log_softmax log_softmax.int")
def log_softmax(c: Call, x: Node, dim: int, *_: Any, **__: Any) -> Node:
    return std.log_softmax(c.tensor(x), axis=c.axis(dim, len(x.shape))) if x.shape else c.full((), 0)


@aten("lerp.Scalar lerp.Tensor")
def lerp(c: Call, start: Node, end: Node, weight: Operand) -> Node:
    """The formula that is exact at the nearer end, as torch has it."""

    def of(a: Node, b: Node, w: Node) -> Node:
        distance, one = std.sub(b, a), c.const(1, a.dtype)
        near = std.less(std.abs(w), c.const(0.5, a.dtype))
        return std.where(
            near, std.add(a, std.mul(w, distance)), std.sub(b, std.mul(distance, std.sub(one, w)))
        )

    return computed(c, of, start, end, weight)


@aten("addcmul")
def addcmul(c: Call, x: Node, a: Node, b: Node, *, value: Any = 1) -> Node:
    return computed(c, lambda x, a, b: std.add(x, std.mul(std.mul(c.tensor(value, a.dtype), a), b)), x, a, b)


@aten("addcdiv")
def addcdiv(c: Call, x: Node, a: Node, b: Node, *, value: Any = 1) -> Node:
    return computed(c, lambda x, a, b: std.add(x, std.div(std.mul(c.tensor(value, a.dtype), a), b)), x, a, b)


@converter("prims.convert_element_type")
def convert_element_type(c: Call, x: Node, *_: Any) -> Node:
    return c.cast(x, c.dtype)


@converter("prims.fma")
def fma(c: Call, a: Operand, b: Operand, x: Operand) -> Node:
    """a b + x with one rounding: float64 holds the product of two narrower numbers."""
    kind = "float64" if c.dtype.is_float else c.dtype
    return c.cast(std.add(std.mul(c.tensor(a, kind), c.tensor(b, kind)), c.tensor(x, kind)), c.dtype)
