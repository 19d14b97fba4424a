"""Special functions. They are computed in float64, by series and asymptotic expansions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from dlc_core.graph.node import Node, constant
from dlc_core.op import std
from dlc_frontend_torch.call import Call
from dlc_frontend_torch.registry import aten

_SHIFT = 10
"""The expansions of the gamma functions are precise for arguments from this one on."""
_LGAMMA = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156)
_DIGAMMA = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12)


def _number(value: float) -> Node:
    return constant(value, "float64")


def _polynomial(x: Node, coefficients: Sequence[float]) -> Node:
    """The polynomial with these coefficients, the constant one first."""
    made = _number(coefficients[-1])
    for each in reversed(coefficients[:-1]):
        made = std.add(std.mul(made, x), _number(each))
    return made


def _in_float64(c: Call, function: Callable[[Node], Node], x: Node) -> Node:
    return c.cast(function(c.tensor(x, "float64")), c.dtype)


def _split_at_half(x: Node) -> tuple[Node, Node]:
    """Whether an argument is reflected, and the argument after it: 1 - x below one half."""
    reflected = std.less(x, _number(0.5))
    return reflected, std.where(reflected, std.sub(_number(1), x), x)


def _lgamma(x: Node) -> Node:
    reflected, positive = _split_at_half(x)
    small = std.less(positive, _number(_SHIFT))
    product = positive
    for step in range(1, _SHIFT):
        product = std.mul(product, std.add(positive, _number(step)))
    product = std.where(small, product, _number(1))
    shifted = std.where(small, std.add(positive, _number(_SHIFT)), positive)
    inverse = std.reciprocal(shifted)
    series = std.mul(_polynomial(std.mul(inverse, inverse), _LGAMMA), inverse)
    main = std.mul(std.sub(shifted, _number(0.5)), std.log(shifted))
    total = std.add(std.sub(main, shifted), std.add(_number(0.5 * math.log(2 * math.pi)), series))
    made = std.sub(total, std.log(product))
    made = std.where(std.isinf(positive), _number(math.inf), made)
    sine = std.abs(std.sin(std.mul(_number(math.pi), std.sub(x, std.round(x)))))
    mirrored = std.sub(std.sub(_number(math.log(math.pi)), std.log(sine)), made)
    mirrored = std.where(std.equal(x, std.round(x)), _number(math.inf), mirrored)
    return std.where(reflected, mirrored, made)


@aten("lgamma")
def lgamma(c: Call, x: Node) -> Node:
    return _in_float64(c, _lgamma, x)


def _digamma(x: Node) -> Node:
    reflected, positive = _split_at_half(x)
    small = std.less(positive, _number(_SHIFT))
    total = std.reciprocal(positive)
    for step in range(1, _SHIFT):
        total = std.add(total, std.reciprocal(std.add(positive, _number(step))))
    shifted = std.where(small, std.add(positive, _number(_SHIFT)), positive)
    inverse = std.reciprocal(shifted)
    square = std.mul(inverse, inverse)
    series = std.mul(_polynomial(square, _DIGAMMA), square)
    made = std.sub(std.sub(std.log(shifted), std.mul(_number(0.5), inverse)), series)
    made = std.sub(made, std.where(small, total, _number(0)))
    turn = std.mul(_number(math.pi), std.sub(x, std.round(x)))
    mirrored = std.sub(made, std.div(_number(math.pi), std.tan(turn)))
    whole = std.logical_and(std.equal(x, std.round(x)), reflected)
    mirrored = std.where(whole, _number(math.nan), mirrored)
    made = std.where(reflected, mirrored, made)
    # At 0 the limit from the side of the sign.
    return std.where(std.equal(x, _number(0)), std.neg(std.reciprocal(x)), made)


@aten("digamma")
def digamma(c: Call, x: Node) -> Node:
    return _in_float64(c, _digamma, x)


_ERFC_MIDDLE = (
    (5.57535335369399327526e2, 1.02755188689515710272e3, 9.34528527171957607540e2, 5.26445194995477358631e2,
     1.96520832956077098242e2, 4.86371970985681366614e1, 7.46321056442269912687e0,
     5.64189564831068821977e-1, 2.46196981473530512524e-10),
    (5.57535340817727675546e2, 1.65666309194161350182e3, 2.24633760818710981792e3, 1.82390916687909736289e3,
     9.75708501743205489753e2, 3.54937778887819891062e2, 8.67072140885989742329e1,
     1.32281951154744992508e1, 1.0),
)  # fmt: skip
_ERFC_FAR = (
    (2.97886665372100240670e0, 7.40974269950448939160e0, 6.16021097993053585195e0, 5.01905042251180477414e0,
     1.27536670759978104416e0, 5.64189583547755073984e-1),
    (3.36907645100081516050e0, 9.60896809063285878198e0, 1.70814450747565897222e1, 1.20489539808096656605e1,
     9.39603524938001434673e0, 2.26052863220117276590e0, 1.0),
)  # fmt: skip
"""Rational approximations of erfc(x) exp(x^2) on [1, 8] and above, of the Cephes library (Moshier, 1989)."""


def _scaled_erfc(size: Node) -> Node:
    """erfc(x) exp(x^2) from 1 on."""
    middle, far = (
        std.div(_polynomial(size, above), _polynomial(size, below))
        for above, below in (_ERFC_MIDDLE, _ERFC_FAR)
    )
    return std.where(std.less(size, _number(8)), middle, far)


def _erfc(x: Node) -> Node:
    size = std.abs(x)
    limited = std.minimum(size, _number(30))
    tail = std.mul(std.exp(std.neg(std.mul(limited, limited))), _scaled_erfc(limited))
    tail = std.where(std.less(x, _number(0)), std.sub(_number(2), tail), tail)
    return std.where(std.less(size, _number(1)), std.sub(_number(1), std.erf(x)), tail)


@aten("erfc special_erfc")
def erfc(c: Call, x: Node) -> Node:
    return _in_float64(c, _erfc, x)


@aten("ldexp.Tensor")
def ldexp(c: Call, x: Node, exponent: Node) -> Node:
    kind = "float64" if c.dtype.bits == 64 else "float32"
    scale = std.pow(c.const(2, kind), c.tensor(exponent, kind))
    if exponent.dtype.is_float:  # torch rounds the power to this dtype
        scale = c.cast(c.cast(scale, exponent.dtype), kind)
    return c.cast(std.mul(c.tensor(x, kind), scale), c.dtype)
