"""exp, exp2, expm1, sigmoid, tanh, sinh, cosh.

All reduce the argument to x = n ln 2 + r with |r| <= ln 2 / 2 (two-part ln 2, Cody and Waite) and use e^r = 1
+ r + r^2 Q(r), Q fitted for the least relative error of expm1.  Scaling by 2^n is done in two steps, so that
results round once into the denormal range and overflow to infinity.
"""

from __future__ import annotations

from dlc_backend_llvm.vmath.code import Code

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


def reduced(c: Code, x: str) -> tuple[str, str]:
    """(expm1(r), n as integer) for x = n ln 2 + r; |x| at most a few thousand."""
    return reduced_pair(c, x, None)


def reduced_pair(c: Code, x: str, low: str | None) -> tuple[str, str]:
    """`reduced` of x + low, where `low` is below an ulp of x."""
    whole, n = c.nearest_product(x, LOG2_E)
    r = c.fnma(LN2_HIGH[c.bits], whole, x)
    r = c.fnma(LN2_LOW[c.bits], whole, r)
    if low is not None:
        r = c.add(r, low)
    q = c.polynomial(r, _Q[c.bits]) if c.bits == 32 else c.estrin(r, _Q[64])
    return c.fma(c.mul(r, r), q, r), n


def exp(c: Code, x: str) -> str:
    """e^x"""
    small, n = reduced(c, c.at_most(c.at_least(x, _LOWEST[c.bits]), _HIGHEST[c.bits]))
    return c.scale(c.add(small, 1.0), n)


def exp_normal(c: Code, x: str) -> str:
    """e^x for arguments that are known to give normal numbers."""
    small, n = reduced(c, x)
    return c.mul(c.add(small, 1.0), c.power_of_two(n))


def exp2(c: Code, x: str) -> str:
    """2^x"""
    limit = 1.0 + c.bias
    x = c.at_most(c.at_least(x, -limit - c.mantissa), limit)
    whole, n = c.nearest(x)
    r = c.sub(x, whole)
    p = c.polynomial(r, _EXP2[c.bits]) if c.bits == 32 else c.estrin(r, _EXP2[64])
    return c.scale(c.fma(r, p, 1.0), n)


def expm1(c: Code, x: str) -> str:
    """e^x - 1"""
    inside = c.at_most(c.at_least(x, _MINUS_ONE[c.bits]), _EXPM1_HIGHEST[c.bits])
    small, n = reduced(c, inside)
    half = c.power_of_two(c.integer("sub", n, 1))
    scaled = c.fma(small, half, c.sub(half, 0.5))
    result = c.select(c.icompare("eq", n, 0), small, c.add(scaled, scaled))
    return c.copysign(result, x)


def sigmoid(c: Code, x: str) -> str:
    """1 / (1 + e^-x), as e^x / (1 + e^x) for negative x so that small results keep all their digits."""
    e = exp_of_negative(c, c.abs(x))
    return c.div(c.select(c.compare("olt", x, 0.0), e, 1.0), c.add(e, 1.0))


def exp_of_negative(c: Code, a: str) -> str:
    """e^-a for a >= 0"""
    small, n = reduced(c, c.neg(c.at_most(a, -_LOWEST[c.bits])))
    return c.scale(c.add(small, 1.0), n)


def tanh(c: Code, x: str) -> str:
    """t / (t + 2) with t = expm1(2 |x|)"""
    a = c.at_most(c.abs(x), _TANH_ONE[c.bits])
    small, n = reduced(c, c.add(a, a))
    power = c.power_of_two(n)
    t = c.fma(small, power, c.sub(power, 1.0))
    return c.copysign(c.div(t, c.add(t, 2.0)), x)


def _half_exp(c: Code, a: str) -> str:
    """e^a / 2 without overflow before the result overflows, for a >= 0"""
    small, n = reduced(c, c.at_most(a, _HIGHEST[c.bits] + 1.0))
    return c.scale(c.add(small, 1.0), c.integer("sub", n, 1))


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
    "reduced_pair",
    "sigmoid",
    "sinh",
    "tanh",
]
