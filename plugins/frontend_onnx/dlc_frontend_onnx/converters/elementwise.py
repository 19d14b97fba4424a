"""Elementwise operators: arithmetic, comparison, logic, activations."""

from __future__ import annotations

import math
from typing import Any

from dlc_core.graph.node import Node
from dlc_core.ir.dtype import DType
from dlc_core.op import std
from dlc_frontend_onnx.converters.base import Call, add_entry, converter
from dlc_frontend_onnx.converters.random import draw

_UNARY = {
    "Abs": (6, "abs"), "Acos": (7, "acos"), "Acosh": (9, "acosh"), "Asin": (7, "asin"), "Asinh": (9, "asinh"),
    "Atan": (7, "atan"), "Atanh": (9, "atanh"), "BitwiseNot": (18, "bitwise_not"), "Ceil": (6, "ceil"),
    "Cos": (7, "cos"), "Cosh": (9, "cosh"), "Exp": (6, "exp"), "Floor": (6, "floor"),
    "HardSwish": (14, "hard_swish"), "IsNaN": (9, "isnan"), "Log": (6, "log"), "Mish": (18, "mish"),
    "Neg": (6, "neg"), "Not": (1, "logical_not"), "Reciprocal": (6, "reciprocal"), "Relu": (6, "relu"),
    "Round": (11, "round"), "Sigmoid": (6, "sigmoid"), "Sign": (9, "sign"), "Sin": (7, "sin"),
    "Sinh": (9, "sinh"), "Softplus": (1, "softplus"), "Softsign": (1, "softsign"), "Sqrt": (6, "sqrt"),
    "Tan": (7, "tan"), "Tanh": (6, "tanh"),
}  # fmt: skip

_BINARY = {
    "Add": (7, "add"), "And": (7, "logical_and"), "BitwiseAnd": (18, "bitwise_and"),
    "BitwiseOr": (18, "bitwise_or"), "BitwiseXor": (18, "bitwise_xor"), "Div": (7, "div"),
    "Equal": (7, "equal"),
    "Greater": (7, "greater"), "GreaterOrEqual": (12, "greater_equal"), "Less": (7, "less"),
    "LessOrEqual": (12, "less_equal"), "Mul": (7, "mul"), "Or": (7, "logical_or"), "PRelu": (7, "prelu"),
    "Sub": (7, "sub"), "Xor": (7, "logical_xor"),
}  # fmt: skip

_ATTRIBUTES: dict[str, tuple[int, str, dict[str, float]]] = {
    "Celu": (12, "celu", {"alpha": 1.0}),
    "Elu": (6, "elu", {"alpha": 1.0}),
    "HardSigmoid": (6, "hard_sigmoid", {"alpha": 0.2, "beta": 0.5}),
    "LeakyRelu": (6, "leaky_relu", {"alpha": 0.01}),
    "Selu": (6, "selu", {"alpha": 1.67326319217681884765625, "gamma": 1.05070102214813232421875}),
    "ThresholdedRelu": (1, "thresholded_relu", {"alpha": 1.0}),
}


def _unary(name: str) -> Any:
    def convert(c: Call, x: Node) -> Node:
        c.ignore("consumed_inputs")
        made: Node = getattr(std, name)(x)
        return made

    return convert


def _binary(name: str) -> Any:
    def convert(c: Call, a: Node, b: Node) -> Node:
        made: Node = getattr(std, name)(a, b)
        return made

    return convert


def _with_attributes(name: str, defaults: dict[str, float]) -> Any:
    def convert(c: Call, x: Node) -> Node:
        c.ignore("consumed_inputs")
        made: Node = getattr(std, name)(x, **{key: c.real(key, value) for key, value in defaults.items()})
        return made

    return convert


for _op, (_since, _name) in _UNARY.items():
    add_entry(_op, _since, _unary(_name))
for _op, (_since, _name) in _BINARY.items():
    add_entry(_op, _since, _binary(_name))
for _op, (_since, _name, _defaults) in _ATTRIBUTES.items():
    add_entry(_op, _since, _with_attributes(_name, _defaults))


@converter("Erf", 9)
def erf(c: Call, x: Node) -> Node:
    """For integers the result is truncated."""
    return std.erf(x) if x.dtype.is_float else c.cast(std.erf(c.cast(x, "float32")), x.dtype)


@converter("Identity", 1, sequences=True)
def identity(c: Call, x: Any) -> Any:
    return x


@converter("Gelu", 20)
def gelu(c: Call, x: Node) -> Node:
    return std.gelu(x, approximate=c.choice("approximate", "none", ("none", "tanh")))


@converter("Swish", 24)
def swish(c: Call, x: Node) -> Node:
    alpha = c.real("alpha", 1.0)
    if alpha == 1.0:
        return std.silu(x)
    return std.mul(x, std.sigmoid(std.mul(x, c.const(alpha, x.dtype))))


@converter("Shrink", 9)
def shrink(c: Call, x: Node) -> Node:
    """Integers are compared and moved as floats, and the result is truncated, as in ONNX Runtime."""
    if not x.dtype.is_float:
        wide = "float64" if x.dtype.bits > 16 else "float32"
        return c.cast(shrink(c, c.cast(x, wide)), x.dtype)
    bias, lambd = c.real("bias", 0.0), c.real("lambd", 0.5)
    below = std.less(x, c.const(-lambd, x.dtype))
    above = std.greater(x, c.const(lambd, x.dtype))
    low, high = std.add(x, c.const(bias, x.dtype)), std.sub(x, c.const(bias, x.dtype))
    return std.where(below, low, std.where(above, high, c.const(0, x.dtype)))


@converter("IsInf", 10)
def isinf(c: Call, x: Node) -> Node:
    return std.isinf(x, positive=c.flag("detect_positive", True), negative=c.flag("detect_negative", True))


@converter("Sum Mean Max Min", 8)
def variadic(c: Call, *xs: Node) -> Node:
    """The inputs combined by a balanced tree of a binary op, so that the depth is logarithmic."""
    combine = {"Sum": std.add, "Mean": std.add, "Max": std.maximum, "Min": std.minimum}[c.node.op]
    if not xs:
        raise c.error("there is no input")
    level = list(xs)
    while len(level) > 1:
        pairs = [combine(a, b) for a, b in zip(level[::2], level[1::2])]
        level = pairs + (level[-1:] if len(level) % 2 else [])
    if c.node.op == "Mean" and len(xs) > 1:
        return std.div(level[0], c.const(len(xs), xs[0].dtype))
    return level[0]


@converter("Pow", 7)
def pow_(c: Call, base: Node, exponent: Node) -> Node:
    """The result has the dtype of the base. An integer base with a float exponent is truncated toward
    zero.
    """
    if base.dtype is exponent.dtype:
        known = c.array(exponent)
        if known is not None and known.size == 1 and base.dtype.is_float:
            special = _simple_power(base, float(known.reshape(())[()]))
            if special is not None and len(exponent.shape) <= len(base.shape):
                return special
        return std.pow(base, exponent)
    if base.dtype.is_float or exponent.dtype.is_int:
        return std.pow(base, c.cast(exponent, base.dtype))
    return c.cast(std.pow(c.cast(base, exponent.dtype), exponent), base.dtype)


def _simple_power(base: Node, exponent: float) -> Node | None:
    if exponent == 2.0:
        return std.mul(base, base)
    return base if exponent == 1.0 else None


@converter("Mod", 10)
def mod(c: Call, a: Node, b: Node) -> Node:
    if c.flag("fmod"):
        return std.fmod(a, b)
    if a.dtype.is_float and c.version < 28:
        raise c.error("Mod of floats needs the attribute fmod=1")
    return std.mod(a, b)


@converter("BitShift", 11)
def bit_shift(c: Call, x: Node, by: Node) -> Node:
    left = c.choice("direction", "", ("LEFT", "RIGHT")) == "LEFT"
    return std.shift_left(x, by) if left else std.shift_right(x, by)


@converter("Where", 9)
def where(c: Call, cond: Node, a: Node, b: Node) -> Node:
    return std.where(cond, a, b)


@converter("Clip", 6)
def clip_6(c: Call, x: Node) -> Node:
    c.ignore("consumed_inputs")
    return std.clip(x, min=c.real("min", None), max=c.real("max", None))


@converter("Clip", 11)
def clip(c: Call, x: Node, low: Node | None = None, high: Node | None = None) -> Node:
    """Constant bounds become attributes of the op; other bounds are operands."""
    bounds = [_exact_bound(c, bound) for bound in (low, high)]
    if all(fits for fits, _ in bounds):
        return std.clip(x, min=bounds[0][1], max=bounds[1][1])
    result = x if low is None else std.maximum(x, _scalar(c, low))
    return result if high is None else std.minimum(result, _scalar(c, high))


def _exact_bound(c: Call, bound: Node | None) -> tuple[bool, float | None]:
    """Whether the bound is absent or a constant that a float represents exactly, and that float."""
    if bound is None:
        return True, None
    found = c.array(bound)
    if found is None or found.size != 1:
        return False, None
    value = found.reshape(()).item()
    return math.isfinite(value) and abs(value) <= 2**53, float(value)


def _scalar(c: Call, value: Node) -> Node:
    """A tensor with one element as a scalar."""
    return std.reshape(value, shape=()) if len(value.shape) else value


@converter("Dropout", 7)
def dropout_7(c: Call, x: Node) -> tuple[Node, Node | None]:
    """The values of the mask are not specified. ONNX Runtime returns zeros."""
    c.ignore("ratio")
    if not c.uses_output(1):
        return x, None
    dtype = DType("bool") if c.version >= 10 else x.dtype
    return x, std.full(shape=x.shape, value=0.0, dtype=dtype)


@converter("Dropout", 12)
def dropout(
    c: Call, x: Node, ratio: Node | None = None, training: Node | None = None
) -> tuple[Node, Node | None]:
    chosen = None if training is None else c.array(training)
    if training is None or (chosen is not None and not chosen.any()):
        c.ignore("seed")
        return x, _ones(c, x, DType("bool"))
    chance = c.const(0.5, "float32") if ratio is None else _scalar(c, ratio)
    kept = std.greater_equal(draw(c, x.shape, "float64"), c.cast(chance, "float64"))
    if chosen is None:
        kept = std.logical_or(kept, std.logical_not(_scalar(c, training)))
        chance = std.where(_scalar(c, training), chance, c.const(0, chance.dtype))
    held = "float64" if x.dtype.name == "float64" else "float32"
    scale = std.reciprocal(std.sub(c.const(1, held), c.cast(chance, held)))
    wide = std.mul(c.cast(x, held), scale)
    return c.cast(std.where(kept, wide, c.const(0, held)), x.dtype), kept


def _ones(c: Call, x: Node, dtype: DType) -> Node | None:
    return std.full(shape=x.shape, value=1.0, dtype=dtype) if c.uses_output(1) else None
