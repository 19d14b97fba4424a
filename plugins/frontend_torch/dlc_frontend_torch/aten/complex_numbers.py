"""Complex numbers: operators that make them, take them apart, or compute on single elements.

Parts of float16 are computed in float32, and rounded once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from dlc_core.graph.node import Node
from dlc_core.op import std
from dlc_frontend_torch.aten import complex_arithmetic as arithmetic
from dlc_frontend_torch.aten.promotion import opmath
from dlc_frontend_torch.call import Call
from dlc_frontend_torch.complex_value import Complex, unpacked
from dlc_frontend_torch.registry import aten, complex_aten

Function = Callable[..., Complex]


def pair(c: Call, x: Any, kind: Any = None) -> Complex:
    """An operand as a complex tensor with parts of a dtype, by default that of the result's parts."""
    if isinstance(x, Complex):
        return x.map(lambda part: c.tensor(part, kind))
    if isinstance(x, complex):
        return Complex(c.tensor(x.real, kind), c.tensor(x.imag, kind))
    real = c.tensor(x, kind)
    return Complex(real, c.full(real.shape, 0, real.dtype))


def rounded(c: Call, x: Complex) -> Complex:
    """The parts in the shape and the dtype of the result."""
    return x.map(lambda part: c.broadcast(c.cast(part, c.dtype), c.shape))


def computed(c: Call, function: Function, *operands: Any) -> Complex:
    """A function of complex operands, computed in the opmath dtype and rounded once."""
    kind = opmath(c.dtype)
    return rounded(c, function(*(pair(c, each, kind) for each in operands)))


# Making, and taking apart.


@complex_aten("complex")
def complex_(c: Call, real: Node, imaginary: Node) -> Complex:
    return rounded(c, Complex(real, imaginary))


@complex_aten("polar")
def polar(c: Call, size: Node, angle: Node) -> Complex:
    return rounded(c, Complex(std.mul(size, std.cos(angle)), std.mul(size, std.sin(angle))))


@complex_aten("view_as_complex view_as_complex_copy")
def view_as_complex(c: Call, x: Node) -> Complex:
    return unpacked(x)


@complex_aten("view_as_real view_as_real_copy")
def view_as_real(c: Call, x: Complex) -> Node:
    return x.packed()


@complex_aten("real")
def real(c: Call, x: Complex) -> Node:
    return x.real


@complex_aten("imag")
def imaginary(c: Call, x: Complex) -> Node:
    return x.imaginary


@complex_aten("_conj _conj_copy conj conj_physical _conj_physical")
def conj(c: Call, x: Complex) -> Complex:
    return arithmetic.conjugate(x)


@complex_aten("resolve_conj resolve_neg positive clone alias detach lift_fresh lift_fresh_copy contiguous")
def same(c: Call, x: Complex, **_: Any) -> Complex:
    return x


@aten("_neg_view _neg_view_copy")
def negative(c: Call, x: Node) -> Node:
    """torch has the imaginary part of a conjugate as a view with opposite numbers."""
    return std.neg(x)


@complex_aten("abs")
def abs_(c: Call, x: Complex) -> Node:
    return _measured(c, arithmetic.length, x)


@complex_aten("angle")
def angle(c: Call, x: Complex) -> Node:
    return _measured(c, arithmetic.angle, x)


def _measured(c: Call, function: Callable[[Complex], Node], x: Complex) -> Node:
    return c.cast(function(pair(c, x, opmath(c.dtype))), c.dtype)


@complex_aten("_to_copy to.dtype _to_dtype")
def to_copy(c: Call, x: Any, *_: Any, **__: Any) -> Complex | Node:
    """A real tensor of a complex one has its real parts. A truth value tells whether a part is not 0."""
    if c.value.is_complex():
        return pair(c, x)
    return std.logical_not(arithmetic.is_zero(x)) if c.dtype.is_bool else c.cast(x.real, c.dtype)


# Functions of one operand.


def _base(base: float) -> Function:
    return lambda x: arithmetic.scaled(arithmetic.logarithm(x), arithmetic.like(x.real, 1 / math.log(base)))


def _sigmoid(x: Complex) -> Complex:
    one = arithmetic.number(x.real, 1)
    return arithmetic.inverse(arithmetic.plus(one, arithmetic.exponential(arithmetic.opposite(x))))


def _exp2(x: Complex) -> Complex:
    return arithmetic.exponential(arithmetic.scaled(x, arithmetic.like(x.real, math.log(2))))


def _squared(x: Complex) -> Complex:
    return arithmetic.times(x, x)


FUNCTIONS: dict[str, Function] = {
    "neg": arithmetic.opposite,
    "reciprocal": arithmetic.inverse,
    "exp": arithmetic.exponential,
    "exp2": _exp2,
    "log": arithmetic.logarithm,
    "log2": _base(2),
    "log10": _base(10),
    "log1p": arithmetic.logarithm_of_one_plus,
    "sqrt": arithmetic.root,
    "rsqrt": lambda x: arithmetic.inverse(arithmetic.root(x)),
    "sin": arithmetic.sine,
    "cos": arithmetic.cosine,
    "tan": arithmetic.tangent,
    "sinh": arithmetic.hyperbolic_sine,
    "cosh": arithmetic.hyperbolic_cosine,
    "tanh": arithmetic.hyperbolic_tangent,
    "sigmoid": _sigmoid,
    "silu": lambda x: arithmetic.times(x, _sigmoid(x)),
    "square": _squared,
    "sgn": arithmetic.to_unit,
}


def _add_function(name: str, function: Function) -> None:
    @complex_aten(name)
    def convert(c: Call, x: Complex) -> Complex:
        return computed(c, function, x)


for _name, _function in FUNCTIONS.items():
    _add_function(_name, _function)


# Functions of two operands.


def _times(c: Call, x: Complex, alpha: Any) -> Complex:
    return x if alpha == 1 else arithmetic.times(x, pair(c, alpha, x.dtype))


@complex_aten("add.Tensor add.Scalar")
def add(c: Call, x: Any, y: Any, alpha: Any = 1) -> Complex:
    return computed(c, lambda a, b: arithmetic.plus(a, _times(c, b, alpha)), x, y)


@complex_aten("sub.Tensor sub.Scalar")
def sub(c: Call, x: Any, y: Any, alpha: Any = 1) -> Complex:
    return computed(c, lambda a, b: arithmetic.minus(a, _times(c, b, alpha)), x, y)


@complex_aten("rsub.Tensor rsub.Scalar")
def rsub(c: Call, x: Any, y: Any, alpha: Any = 1) -> Complex:
    return computed(c, lambda a, b: arithmetic.minus(b, _times(c, a, alpha)), x, y)


@complex_aten("mul.Tensor mul.Scalar")
def mul(c: Call, x: Any, y: Any) -> Complex:
    return computed(c, arithmetic.times, x, y)


@complex_aten("div.Tensor div.Scalar")
def div(c: Call, x: Any, y: Any) -> Complex:
    return computed(c, arithmetic.divided, x, y)


@complex_aten("pow.Tensor_Tensor pow.Scalar")
def power(c: Call, x: Any, y: Any) -> Complex:
    return computed(c, arithmetic.power, x, y)


@complex_aten("pow.Tensor_Scalar")
def power_of_number(c: Call, x: Any, y: Any) -> Complex:
    """torch multiplies for the exponents 2 and 3, and takes roots and reciprocals."""
    special: dict[Any, Function] = {
        1: lambda v: v,
        2: _squared,
        3: lambda v: arithmetic.times(_squared(v), v),
        -1: arithmetic.inverse,
        -2: lambda v: arithmetic.inverse(_squared(v)),
        0.5: arithmetic.root,
        -0.5: FUNCTIONS["rsqrt"],
    }
    if isinstance(y, (int, float, complex)) and y in special:
        return computed(c, special[y], x)
    return computed(c, arithmetic.power, x, y)


@complex_aten("addcmul")
def addcmul(c: Call, x: Any, a: Any, b: Any, *, value: Any = 1) -> Complex:
    return computed(c, lambda x, a, b: arithmetic.plus(x, _times(c, arithmetic.times(a, b), value)), x, a, b)


@complex_aten("addcdiv")
def addcdiv(c: Call, x: Any, a: Any, b: Any, *, value: Any = 1) -> Complex:
    return computed(
        c, lambda x, a, b: arithmetic.plus(x, arithmetic.divided(_times(c, a, value), b)), x, a, b
    )


# Truth values of elements.


@complex_aten("eq.Tensor eq.Scalar")
def eq(c: Call, x: Any, y: Any) -> Node:
    a, b = _compared(c, x, y)
    return std.logical_and(std.equal(a.real, b.real), std.equal(a.imaginary, b.imaginary))


@complex_aten("ne.Tensor ne.Scalar")
def ne(c: Call, x: Any, y: Any) -> Node:
    return std.logical_not(eq(c, x, y))


def _compared(c: Call, x: Any, y: Any) -> tuple[Complex, Complex]:
    """Both operands with parts of the wider dtype of the complex ones."""
    kinds = [each.dtype for each in (x, y) if isinstance(each, Complex)]
    kind = max(kinds, key=lambda each: each.bits)
    others = [each.dtype for each in (x, y) if isinstance(each, Node) and each.shape]
    kind = max([kind, *(each for each in others if each.is_float)], key=lambda each: each.bits)
    return pair(c, x, kind), pair(c, y, kind)


@complex_aten("isnan")
def isnan(c: Call, x: Complex) -> Node:
    return std.logical_or(std.isnan(x.real), std.isnan(x.imaginary))


@complex_aten("isinf")
def isinf(c: Call, x: Complex) -> Node:
    return std.logical_or(std.isinf(x.real), std.isinf(x.imaginary))


@complex_aten("isfinite")
def isfinite(c: Call, x: Complex) -> Node:
    return std.logical_not(std.logical_or(isnan(c, x), isinf(c, x)))


@complex_aten("logical_not")
def logical_not(c: Call, x: Complex) -> Node:
    return arithmetic.is_zero(x)


def _truth(c: Call, x: Any) -> Node:
    return std.logical_not(arithmetic.is_zero(x)) if isinstance(x, Complex) else c.cast(x, "bool")


def _add_logic(name: str) -> None:
    @complex_aten(name)
    def convert(c: Call, x: Any, y: Any) -> Node:
        made: Node = getattr(std, name)(_truth(c, x), _truth(c, y))
        return made


for _name in ("logical_and", "logical_or", "logical_xor"):
    _add_logic(_name)


@complex_aten("any any.dim any.dims")
def any_(c: Call, x: Complex, dim: Any = None, keepdim: bool = False) -> Node:
    return std.reduce_any(_truth(c, x), axes=c.axes(dim, len(x.shape)), keepdims=keepdim)


@complex_aten("all all.dim all.dims")
def all_(c: Call, x: Complex, dim: Any = None, keepdim: bool = False) -> Node:
    return std.reduce_all(_truth(c, x), axes=c.axes(dim, len(x.shape)), keepdims=keepdim)
