"""asin, acos, atan, atan2.

asin: x + x^3 R(x^2) up to 1/2, beyond it pi/2 - 2 asin(sqrt((1 - x)/2)).  atan: arguments are brought below
tan(pi/8) by the angles pi/4 and pi/2, which are added in two words.
"""

from __future__ import annotations

import math

from dlc_core.target.vmath.code import Code

_ASIN = {
    32: (0.1666666, 0.07500519, 0.044514462, 0.03182643, 0.014374001, 0.03760036),
    64: (
        0.1666666666666676,
        0.07499999999970823,
        0.044642857174621964,
        0.03038194270639783,
        0.022372215044005057,
        0.017351610753776593,
        0.01398083829257424,
        0.011398746556633716,
        0.010781293047549547,
        0.0037020651388923755,
        0.021719006770474693,
        -0.021016799943043184,
        0.032640562637787356,
    ),
}
_ATAN = {
    32: (-0.33333316, 0.19998527, -0.14244348, 0.10598763, -0.060888454),
    64: (
        -0.33333333333333326,
        0.19999999999997115,
        -0.14285714285321494,
        0.11111111084224973,
        -0.09090908008574712,
        0.07692279825713311,
        -0.06666185377266456,
        0.058766340178737955,
        -0.05216011395227037,
        0.044942052204405496,
        -0.03326519732274367,
        0.014990388910859683,
    ),
}
_PIO2 = {32: (1.5707963705062866, -4.371138828673793e-08), 64: (1.5707963267948966, 6.123233995736766e-17)}
_PIO4 = {32: (0.785398006439209, 1.5695823932524066e-07), 64: (0.7853981633974483, 3.061616997868383e-17)}
"""The high words end in a few zero bits, so small multiples of them are exact."""

_TAN_PIO8 = math.sqrt(2.0) - 1.0


def _asin_parts(c: Code, x: str) -> tuple[str, str, str]:
    """(whether |x| > 1/2, s, s z R(z)) with s = x, z = x^2, or s = sqrt(z), z = (1 - |x|)/2."""
    a = c.abs(x)
    is_large = c.compare("ogt", a, 0.5)
    z = c.select(is_large, c.fma(a, -0.5, 0.5), c.mul(x, x))
    s = c.select(is_large, c.sqrt(z), x)
    return is_large, s, c.mul(c.mul(s, z), c.polynomial(z, _ASIN[c.bits]))


def asin(c: Code, x: str) -> str:
    """Arc sine; nan outside [-1, 1]."""
    high, low = _PIO2[c.bits]
    is_large, s, tail = _asin_parts(c, x)
    inner = c.add(s, tail)
    outer = c.sub(high, c.sub(c.add(inner, inner), low))
    return c.copysign(c.select(is_large, outer, inner), x)


def acos(c: Code, x: str) -> str:
    """Arc cosine; nan outside [-1, 1]."""
    high, low = _PIO2[c.bits]
    is_large, s, tail = _asin_parts(c, x)
    inner = c.sub(high, c.sub(s, c.sub(low, tail)))
    right = c.add(s, tail)
    left = c.sub(high, c.add(s, c.sub(tail, low)))
    outer = c.select(c.compare("ogt", x, 0.0), right, left)
    return c.select(is_large, c.add(outer, outer), inner)


def _small_atan(c: Code, t: str) -> str:
    """atan(t) - t for |t| <= tan(pi/8)"""
    z = c.mul(t, t)
    return c.mul(c.mul(t, z), c.polynomial(z, _ATAN[c.bits]))


def atan(c: Code, x: str) -> str:
    """Arc tangent."""
    high, low = _PIO4[c.bits]
    a = c.abs(x)
    middle = c.compare("ogt", a, _TAN_PIO8)
    is_large = c.compare("ogt", a, 1.0 / _TAN_PIO8)
    above = c.select(is_large, -1.0, c.select(middle, c.sub(a, 1.0), a))
    below = c.select(is_large, a, c.select(middle, c.add(a, 1.0), 1.0))
    t = c.div(above, below)
    base_high = c.select(is_large, 2.0 * high, c.select(middle, high, 0.0))
    base_low = c.select(is_large, 2.0 * low, c.select(middle, low, 0.0))
    rest = c.add(t, c.add(_small_atan(c, t), base_low))
    return c.copysign(c.add(base_high, rest), x)


def atan2(c: Code, y: str, x: str) -> str:
    """The angle of the point (x, y), with the quadrants and special cases of C99."""
    high, low = _PIO4[c.bits]
    a, b = c.abs(y), c.abs(x)
    swap = c.compare("ogt", a, b)
    small = c.select(swap, b, a)
    large = c.select(swap, a, b)
    large = c.select(c.compare("oeq", large, 0.0), 1.0, large)
    both = c.mask("and", c.compare("oeq", small, math.inf), c.compare("oeq", large, math.inf))
    large = c.select(both, 1.0, large)
    small = c.select(both, 1.0, small)
    middle = c.compare("ogt", small, c.mul(large, _TAN_PIO8))
    shrink = c.select(c.compare("ogt", large, 2.0 ** (c.bias - 1)), 0.25, 1.0)
    small_scaled, large_scaled = c.mul(small, shrink), c.mul(large, shrink)
    above = c.select(middle, c.sub(small_scaled, large_scaled), small)
    below = c.select(middle, c.add(small_scaled, large_scaled), large)
    t = c.div(above, below)
    eighths = c.select(middle, 1.0, 0.0)
    eighths = c.select(swap, c.sub(2.0, eighths), eighths)
    left = c.icompare("slt", c.to_bits(x), 0)
    eighths = c.select(left, c.sub(4.0, eighths), eighths)
    negated = c.mask("xor", swap, left)
    t = c.select(negated, c.neg(t), t)
    rest = c.add(t, c.fma(eighths, low, _small_atan(c, t)))
    return c.copysign(c.fma(eighths, high, rest), y)


__all__ = ["acos", "asin", "atan", "atan2"]
