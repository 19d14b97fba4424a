"""erf.

Below 1: x + x Q(x^2).  Above 1 the small complement is computed and taken from 1, so that its error hardly
counts. float32: erfc(x) = R(x)^8, R a polynomial.  float64: erfc(x) = exp(-G(x)), G a polynomial.  R and G
are fitted with the weight that makes their error in the result even.
"""

from __future__ import annotations

from dlc_core.target.vmath.code import Code
from dlc_core.target.vmath.exponential import exp_normal

_Q32 = (0.12837912, -0.37612325, 0.11280175, -0.026711227, 0.0049174875, -0.00056312565)
_ROOT = (1.0008211, -0.14500731, -0.06151136, -0.01130292, 0.012893656, -0.0024620967, 0.00014911455)
_ONE = {32: 4.0, 64: 6.0}
_Q = (
    0.12837916709551256,
    -0.37612638903183365,
    0.11283791670938488,
    -0.026866170642260743,
    0.005223977599463256,
    -0.0008548325621701366,
    0.00012055284642145069,
    -1.4924544782019878e-05,
    1.6445107093471449e-06,
    -1.6191087901156704e-07,
    1.3646172295387564e-08,
    -7.660233494254887e-10,
)
_G = (
    1.7826439387166994e-07,
    1.1283773424123695,
    0.6366284294741669,
    0.10274741856240832,
    -0.019078478310749793,
    -0.0002800270240277309,
    0.0017684963395688694,
    -0.0006407425685141365,
    4.45322000563356e-05,
    7.052273981097588e-05,
    -4.510443765264461e-05,
    1.653690137751872e-05,
    -4.333264242391684e-06,
    8.518906661171067e-07,
    -1.2591762184828534e-07,
    1.3652013494111734e-08,
    -1.027790046501617e-09,
    4.806710610071727e-11,
    -1.0521609742395603e-12,
)


def erf(c: Code, x: str) -> str:
    """The error function."""
    return _erf32(c, x) if c.bits == 32 else _erf64(c, x)


def _erf32(c: Code, x: str) -> str:
    a = c.at_most(c.abs(x), _ONE[32])
    z = c.mul(a, a)
    small = c.fma(a, c.polynomial(z, _Q32), a)
    t = c.polynomial(a, _ROOT)
    t = c.mul(t, t)
    t = c.mul(t, t)
    large = c.fnma(t, t, 1.0)
    return c.copysign(c.select(c.compare("olt", a, 1.0), small, large), x)


def _erf64(c: Code, x: str) -> str:
    a = c.at_most(c.abs(x), _ONE[64])
    z = c.mul(a, a)
    small = c.fma(a, c.polynomial(z, _Q), a)
    large = c.sub(1.0, exp_normal(c, c.neg(c.polynomial(a, _G))))
    return c.copysign(c.select(c.compare("olt", a, 1.0), small, large), x)


__all__ = ["erf"]
