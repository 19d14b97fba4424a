"""log, log2, log10, log1p and the inverse hyperbolic functions.

x = 2^e (1 + f) with 1 + f in [sqrt(1/2), sqrt(2)); log(1 + f) = f + y where y is small against f, so that the
last additions round once.  float32: y = -f^2/2 + f^3 P(f).  float64: with s = f/(2+f), y = s (f^2/2 + R(s^2))
- f^2/2.
"""

from __future__ import annotations

import math

from dlc_core.target.vmath.code import Code
from dlc_core.target.vmath.exponential import LN2_HIGH, LN2_LOW

_P = (
    0.33333313,
    -0.25000012,
    0.20002076,
    -0.1666783,
    0.14220119,
    -0.12408819,
    0.1188794,
    -0.11656849,
    0.06723684,
)
_R = (
    0.6666666666666666,
    0.4000000000000507,
    0.2857142856933712,
    0.2222222262074511,
    0.18181777106772865,
    0.15387048130052425,
    0.13250730892327892,
    0.13248240408818007,
)
_SQRT_HALF = {32: 0x3F3504F3, 64: 0x3FE6A09E667F3BCD}
_LOG2_E_HIGH = {32: 1.4423828125, 64: 1.442695040721446275711}
_LOG2_E_LOW = {32: 0.00031222721, 64: 1.67517131648865118353e-10}
_LOG10_E = {32: (0.4342041015625, 9.038033749675378e-05), 64: (0.434294480830431, 1.0728208431540585e-09)}
_LOG10_2 = {32: (0.301025390625, 4.605039066518657e-06), 64: (0.3010299950838089, 5.801722962879576e-10)}
"""High words with half of their bits zero: exponents times them are exact."""
_BIG = {32: 2.0**13, 64: 2.0**28}


def decompose(c: Code, x: str, *, denormals: bool = True) -> tuple[str, str]:
    """(f, e as float) for positive normal or denormal x. For other x the result is meaningless, but there is
    no trap.
    """
    shift: str | None = None
    if denormals:
        tiny = c.compare("olt", x, 2.0 ** (1 - c.bias))
        x = c.select(tiny, c.mul(x, 2.0**c.mantissa), x)
        shift = c.select(tiny, -float(c.mantissa), 0.0)
    base = _SQRT_HALF[c.bits]
    bits = c.integer("sub", c.to_bits(x), base)
    m = c.from_bits(c.integer("add", c.integer("and", bits, (1 << c.mantissa) - 1), base))
    e = small_to_float(c, c.integer("ashr", bits, c.mantissa))
    return c.sub(m, 1.0), e if shift is None else c.add(e, shift)


def small_to_float(c: Code, n: str) -> str:
    """Convert signed integers below 2^20 to float. In float64 this needs no conversion instruction, which
    some vector units lack.
    """
    if c.bits == 32:
        return c.to_float(n)
    magic = 1.5 * 2.0**52
    return c.sub(c.from_bits(c.integer("add", n, c.to_bits_of(magic))), magic)


def correction(c: Code, f: str) -> str:
    """y with log(1 + f) = f + y, for f in [sqrt(1/2) - 1, sqrt(2) - 1)."""
    square = c.mul(f, f)
    if c.bits == 32:
        return c.fma(-0.5, square, c.mul(c.mul(square, f), c.polynomial(f, _P)))
    s = c.div(f, c.add(f, 2.0))
    z = c.mul(s, s)
    half = c.mul(square, 0.5)
    return c.sub(c.mul(s, c.fma(z, c.polynomial(z, _R), half)), half)


def _assemble(c: Code, f: str, y: str, e: str) -> str:
    low = c.fma(e, LN2_LOW[c.bits], y)
    return c.fma(e, LN2_HIGH[c.bits], c.add(f, low))


def _edges(c: Code, x: str, result: str, pole: float) -> str:
    """Set the results of a logarithm at +inf, at the pole, left of it, and for nan."""
    result = c.select(c.compare("oeq", x, math.inf), math.inf, result)
    outside = c.select(c.compare("oeq", x, pole), -math.inf, math.nan)
    return c.select(c.compare("ogt", x, pole), result, outside)


def log(c: Code, x: str) -> str:
    """Natural logarithm."""
    f, e = decompose(c, x)
    return _edges(c, x, _assemble(c, f, correction(c, f), e), 0.0)


def log2(c: Code, x: str) -> str:
    """Logarithm to base 2."""
    f, e = decompose(c, x)
    y = correction(c, f)
    high, low = _LOG2_E_HIGH[c.bits], _LOG2_E_LOW[c.bits]
    small = c.fma(y, high + low, c.mul(f, low))
    return _edges(c, x, c.add(e, c.fma(f, high, small)), 0.0)


def log10(c: Code, x: str) -> str:
    """Logarithm to base 10."""
    f, e = decompose(c, x)
    y = correction(c, f)
    high, low = _LOG10_E[c.bits]
    two_high, two_low = _LOG10_2[c.bits]
    small = c.fma(e, two_low, c.fma(y, high + low, c.mul(f, low)))
    return _edges(c, x, c.fma(e, two_high, c.fma(f, high, small)), 0.0)


def log1p(c: Code, x: str) -> str:
    """log(1 + x). The rounding error of 1 + x, divided by 1 + x, is added to the logarithm."""
    u, lost = c.two_sum(c.const(1.0), x)
    f, e = decompose(c, u, denormals=False)
    y = c.add(correction(c, f), c.div(lost, u))
    result = _edges(c, x, _assemble(c, f, y, e), -1.0)
    return c.select(c.compare("oeq", x, 0.0), x, result)


def _log1p_or_log_double(c: Code, t: str, a: str, big: str) -> str:
    """log(1 + t), or log(2 a) where `big`, for non-negative arguments."""
    u, lost = c.two_sum(c.const(1.0), t)
    u = c.select(big, a, u)
    lost = c.select(big, 0.0, lost)
    f, e = decompose(c, u, denormals=False)
    y = c.add(correction(c, f), c.div(lost, u))
    e = c.add(e, c.select(big, 1.0, 0.0))
    return c.select(c.compare("oeq", u, math.inf), math.inf, _assemble(c, f, y, e))


def asinh(c: Code, x: str) -> str:
    """log1p(a + a^2 / (1 + sqrt(1 + a^2))) with a = |x|; log(2 a) if a is large."""
    a = c.abs(x)
    square = c.mul(a, a)
    t = c.add(a, c.div(square, c.add(c.sqrt(c.add(square, 1.0)), 1.0)))
    result = _log1p_or_log_double(c, t, a, c.compare("ogt", a, _BIG[c.bits]))
    return c.copysign(c.select(c.compare("uno", x, x), x, result), x)


def acosh(c: Code, x: str) -> str:
    """log1p(t + sqrt(t (x + 1))) with t = x - 1; log(2 x) if x is large; nan below 1."""
    t = c.sub(x, 1.0)
    root = c.sqrt(c.mul(t, c.add(x, 1.0)))
    result = _log1p_or_log_double(c, c.add(t, root), x, c.compare("ogt", x, _BIG[c.bits]))
    return c.select(c.compare("oge", x, 1.0), result, math.nan)


def atanh(c: Code, x: str) -> str:
    """log1p(2 a / (1 - a)) / 2 with a = |x|"""
    a = c.abs(x)
    t = c.div(c.add(a, a), c.sub(1.0, a))
    return c.copysign(c.mul(log1p(c, t), 0.5), x)


__all__ = [
    "acosh",
    "asinh",
    "atanh",
    "correction",
    "decompose",
    "log",
    "log1p",
    "log2",
    "log10",
    "small_to_float",
]
