"""exp, exp2, expm1, sigmoid, tanh, sinh, cosh.

All reduce the argument to x = n ln 2 + r with |r| <= ln 2 / 2 (two-part ln 2, Cody and Waite) and use e^r = 1
+ r + r^2 Q(r), Q fitted for the least relative error of expm1.  Scaling by 2^n is done in two steps, so that
results round once into the denormal range and overflow to infinity.
"""

from __future__ import annotations

from dlc_core.target.vmath.code import Code

LOG2_E = 1.4426950408889634
LN2_HIGH = {32: 0.693359375, 64: 6.93147180369123816490e-01}
LN2_LOW = {32: -2.12194440e-4, 64: 1.90821492927058770002e-10}

_Q = {
    32: (0.49999997, 0.16666545, 0.041667465, 0.008366433, 0.001386807),
    64: (
        0.5,
        0.16666666666666677,
        0.04166666666666667,
        0.00833333333332172,
        0.0013888888888900432,
        0.0001984126988565062,
        2.4801587267154447e-05,
        2.755724476486848e-06,
        2.7557338398193746e-07,
        2.5108842317607424e-08,
        2.0891515532539755e-09,
    ),
}
_EXP2 = {
    32: (0.6931472, 0.24022648, 0.055503592, 0.009618498, 0.0013391181, 0.00015330281),
    64: (
        0.6931471805599453,
        0.2402265069591007,
        0.0555041086648235,
        0.009618129107629863,
        0.0013333558145984155,
        0.00015403530390353527,
        1.5252734229249076e-05,
        1.32154895213509e-06,
        1.0177901681676738e-07,
        7.0538255850975e-09,
        4.4784419762269256e-10,
        2.727276862508363e-11,
    ),
}
_SINH = {
    32: (0.16666667, 0.0083333105, 0.00019842896, 2.7822102e-06),
    64: (
        0.16666666666666666,
        0.008333333333333573,
        0.0001984126984106095,
        2.7557319310302107e-06,
        2.5052089334584145e-08,
        1.6061352661367233e-10,
        7.502161252016262e-13,
        6.509949134214994e-15,
    ),
}
_LOWEST = {32: -104.0, 64: -746.0}
_HIGHEST = {32: 89.5, 64: 711.0}
_MINUS_ONE = {32: -26.0, 64: -45.0}
_EXPM1_HIGHEST = {32: 88.8, 64: 710.0}
_TANH_ONE = {32: 10.0, 64: 20.0}


def reduced(c: Code, x: str, bias: int = 0, low: str | None = None) -> tuple[str, str]:
    """Range reduction: (r, integer whose low bits are n + bias) with x + `low` = n ln 2 + r. `low` is below
    an ulp of x.
    """
    nearest, shifted = c.nearest_product(x, LOG2_E, bias)
    r = c.fnma(LN2_HIGH[c.bits], nearest, x)
    r = c.fnma(LN2_LOW[c.bits], nearest, r)
    return (r if low is None else c.add(r, low)), shifted


def small_exp(c: Code, r: str) -> str:
    """e^r for |r| <= ln 2 / 2"""
    return c.polynomial(r, (1.0, 1.0, *_Q[c.bits]))


def small_expm1(c: Code, r: str) -> str:
    """e^r - 1 for |r| <= ln 2 / 2"""
    return c.fma(c.mul(r, r), c.polynomial(r, _Q[c.bits]), r)


def exp(c: Code, x: str) -> str:
    """e^x"""
    r, shifted = reduced(c, c.at_most(c.at_least(x, _LOWEST[c.bits]), _HIGHEST[c.bits]), 2 * c.bias)
    return c.scale(small_exp(c, r), shifted)


def exp_normal(c: Code, x: str) -> str:
    """e^x for arguments with normal results."""
    r, shifted = reduced(c, x, c.bias)
    return c.mul(small_exp(c, r), c.power_of_two(shifted))


def exp2(c: Code, x: str) -> str:
    """2^x"""
    limit = 1.0 + c.bias
    x = c.at_most(c.at_least(x, -limit - c.mantissa), limit)
    nearest, shifted = c.nearest_product(x, 1.0, 2 * c.bias)
    return c.scale(c.polynomial(c.sub(x, nearest), (1.0, *_EXP2[c.bits])), shifted)


def expm1(c: Code, x: str) -> str:
    """e^x - 1"""
    inside = c.at_most(c.at_least(x, _MINUS_ONE[c.bits]), _EXPM1_HIGHEST[c.bits])
    r, shifted = reduced(c, inside, c.bias - 1)
    small = small_expm1(c, r)
    half = c.power_of_two(shifted)
    scaled = c.fma(small, half, c.sub(half, 0.5))
    result = c.select(c.compare("oeq", half, 0.5), small, c.add(scaled, scaled))
    return c.copysign(result, x)


def sigmoid(c: Code, x: str) -> str:
    """1 / (1 + e^-x), as e^x / (1 + e^x) for negative x so that small results keep full precision."""
    e = exp_of_negative(c, c.abs(x))
    return c.div(c.select(c.compare("olt", x, 0.0), e, 1.0), c.add(e, 1.0))


def exp_of_negative(c: Code, a: str) -> str:
    """e^-a for a >= 0"""
    r, shifted = reduced(c, c.neg(c.at_most(a, -_LOWEST[c.bits])), 2 * c.bias)
    return c.scale(small_exp(c, r), shifted)


def tanh(c: Code, x: str) -> str:
    """t / (t + 2) with t = expm1(2 |x|)"""
    a = c.at_most(c.abs(x), _TANH_ONE[c.bits])
    r, shifted = reduced(c, c.add(a, a), c.bias)
    power = c.power_of_two(shifted)
    t = c.fma(small_expm1(c, r), power, c.sub(power, 1.0))
    return c.copysign(c.div(t, c.add(t, 2.0)), x)


def _half_exp(c: Code, a: str) -> str:
    """e^a / 2 for a >= 0. It overflows only if the result does."""
    r, shifted = reduced(c, c.at_most(a, _HIGHEST[c.bits] + 1.0), 2 * c.bias - 1)
    return c.scale(small_exp(c, r), shifted)


def sinh(c: Code, x: str) -> str:
    """Odd polynomial below 1, E - 1/(4E) with E = e^|x|/2 above."""
    a = c.abs(x)
    z = c.mul(a, a)
    small = c.fma(c.mul(a, z), c.polynomial(z, _SINH[c.bits]), a)
    e = _half_exp(c, a)
    large = c.sub(e, c.div(0.25, e))
    return c.copysign(c.select(c.compare("olt", a, 1.0), small, large), x)


def cosh(c: Code, x: str) -> str:
    """E + 1/(4E) with E = e^|x|/2"""
    e = _half_exp(c, c.abs(x))
    return c.add(e, c.div(0.25, e))


__all__ = [
    "cosh",
    "exp",
    "exp2",
    "exp_normal",
    "exp_of_negative",
    "expm1",
    "reduced",
    "sigmoid",
    "sinh",
    "small_exp",
    "tanh",
]
