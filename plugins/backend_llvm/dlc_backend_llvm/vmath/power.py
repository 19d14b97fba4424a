"""pow and fmod, both operands vectors.

float32 pow is computed in float64. float64 pow computes the logarithm in two words (double-double): with s =
(m - 1)/(m + 1), log m = 2 s + s^3 (2/3 + s^2 T(s^2)). Its error is about 2^-67, so the error of y log x, for
|y log x| < 750, is far below one ulp.
"""

from __future__ import annotations

import math

from dlc_backend_llvm.vmath import rounding
from dlc_backend_llvm.vmath.code import Code
from dlc_core.target.vmath.exponential import LN2_HIGH, LN2_LOW, reduced, small_exp
from dlc_core.target.vmath.logarithm import correction, decompose

_T = (
    0.4,
    0.285714285714269,
    0.22222222222709914,
    0.18181818107518483,
    0.15384622011864635,
    0.13332971199984,
    0.11776850847363514,
    0.10287121782019926,
    0.11963079170164242,
)
_TWO_THIRDS_LOW = 3.700743415417188e-17
_LOWEST, _HIGHEST = -746.0, 711.0


def _log_pair(c: Code, a: str) -> tuple[str, str]:
    """log(a) in two words, for positive finite a, in float64."""
    f, e = decompose(c, a)
    below, below_low = c.fast_two_sum(2.0, f)
    s = c.div(f, below)
    product, lost = c.two_product(s, below)
    remainder = c.sub(c.sub(c.sub(f, product), lost), c.mul(s, below_low))
    s_low = c.div(remainder, below)
    z, z_low = c.two_product(s, s)
    z_low = c.fma(c.add(s, s), s_low, z_low)
    third, third_low = c.fast_two_sum(2.0 / 3.0, c.mul(z, c.estrin(z, _T)))
    third_low = c.add(third_low, _TWO_THIRDS_LOW)
    u, u_low = c.two_product(z, third)
    u_low = c.add(u_low, c.fma(z, third_low, c.mul(z_low, third)))
    v, v_low = c.two_product(s, u)
    v_low = c.add(v_low, c.fma(s, u_low, c.mul(s_low, u)))
    m, m_low = c.fast_two_sum(c.add(s, s), v)
    m_low = c.add(m_low, c.add(v_low, c.add(s_low, s_low)))
    high, high_low = c.two_sum(c.mul(e, LN2_HIGH[64]), m)
    low = c.add(high_low, c.fma(e, LN2_LOW[64], m_low))
    return c.fast_two_sum(high, low)


def _log_single(c: Code, a: str) -> tuple[str, str]:
    """log(a) in one word, for float32 arguments widened to float64."""
    f, e = decompose(c, a, denormals=False)
    low = c.fma(e, LN2_LOW[64], correction(c, f))
    return c.fma(e, LN2_HIGH[64], c.add(f, low)), c.const(0.0)


def _magnitude(c: Code, x: str, y: str, *, exact: bool) -> str:
    """|x|^y in float64, except for NaN, for y = 0, and for |x| = 1 with infinite y."""
    a = c.abs(x)
    log_high, log_low = _log_pair(c, a) if exact else _log_single(c, a)
    log_high = c.select(c.compare("oeq", a, 0.0), -math.inf, log_high)
    log_high = c.select(c.compare("oeq", a, math.inf), math.inf, log_high)
    if exact:
        t, lost = c.two_product(y, log_high)
        t_low = c.fma(y, log_low, lost)
        t_low = c.select(c.compare("olt", c.abs(t), 800.0), t_low, 0.0)
    else:
        t, t_low = c.mul(y, log_high), log_low
    t = c.at_most(c.at_least(t, _LOWEST), _HIGHEST)
    r, shifted = reduced(c, t, 2 * c.bias, t_low if exact else None)
    return c.scale(small_exp(c, r), shifted)


def power(c: Code, x: str, y: str) -> str:
    """x^y with the special cases of C99."""
    if c.bits == 32:
        w = c.wide()
        wide = [c.put(f"fpext {c.type} {value} to {w.type}") for value in (x, y)]
        result = c.put(f"fptrunc {w.type} {_magnitude(w, *wide, exact=False)} to {c.type}")
    else:
        result = _magnitude(c, x, y, exact=True)
    result = c.select(c.compare("oeq", c.abs(x), 1.0), 1.0, result)
    half = c.mul(y, 0.5)
    is_integer = c.compare("oeq", rounding.trunc(c, y), y)
    odd = c.mask("and", is_integer, c.compare("one", rounding.trunc(c, half), half))
    minus = c.mask("and", odd, c.icompare("slt", c.to_bits(x), 0))
    result = c.select(minus, c.neg(result), result)
    negative = c.mask("and", c.compare("olt", x, 0.0), c.compare("ogt", x, -math.inf))
    complex_root = c.mask("and", negative, c.compare("one", rounding.trunc(c, y), y))
    result = c.select(complex_root, math.nan, result)
    result = c.select(c.compare("uno", x, y), math.nan, result)
    one = c.mask("or", c.compare("oeq", x, 1.0), c.compare("oeq", y, 0.0))
    return c.select(one, 1.0, result)


LONG_DIVISION = "dlc_fmod_long"
LONG_DIVISION_TEXT = f"""
; x - trunc(x / y) y, exact: the significands are divided bit by bit, as integers.
define internal double @{LONG_DIVISION}(double %x, double %y) nounwind {{
  %bits = bitcast double %x to i64
  %divisor = bitcast double %y to i64
  %a = and i64 %bits, 9223372036854775807
  %b = and i64 %divisor, 9223372036854775807
  %sign = and i64 %bits, -9223372036854775808
  %endless = icmp uge i64 %a, 9218868437227405312
  %strange = icmp ugt i64 %b, 9218868437227405312
  %zero = icmp eq i64 %b, 0
  %either = or i1 %endless, %strange
  %any = or i1 %either, %zero
  br i1 %any, label %nan, label %number
nan:
  %product = fmul double %x, %y
  %nothing = fdiv double %product, %product
  ret double %nothing
number:
  %less = icmp ult i64 %a, %b
  br i1 %less, label %same, label %split
same:
  ret double %x
split:
  %fa = call {{ i64, i64 }} @{LONG_DIVISION}_parts(i64 %a)
  %fb = call {{ i64, i64 }} @{LONG_DIVISION}_parts(i64 %b)
  %ma = extractvalue {{ i64, i64 }} %fa, 0
  %ea = extractvalue {{ i64, i64 }} %fa, 1
  %mb = extractvalue {{ i64, i64 }} %fb, 0
  %eb = extractvalue {{ i64, i64 }} %fb, 1
  %steps = sub i64 %ea, %eb
  br label %loop
loop:
  %m = phi i64 [ %ma, %split ], [ %twice, %next ]
  %k = phi i64 [ %steps, %split ], [ %fewer, %next ]
  %lower = sub i64 %m, %mb
  %fits = icmp sge i64 %lower, 0
  %rest = select i1 %fits, i64 %lower, i64 %m
  %last = icmp eq i64 %k, 0
  br i1 %last, label %done, label %next
next:
  %twice = shl i64 %rest, 1
  %fewer = sub i64 %k, 1
  br label %loop
done:
  %even = icmp eq i64 %rest, 0
  br i1 %even, label %exact, label %pack
exact:
  %nought = bitcast i64 %sign to double
  ret double %nought
pack:
  %leading = call i64 @llvm.ctlz.i64(i64 %rest, i1 true)
  %places = sub i64 %leading, 11
  %mantissa = shl i64 %rest, %places
  %exponent = sub i64 %eb, %places
  %normal = icmp sgt i64 %exponent, 0
  %hidden = and i64 %mantissa, 4503599627370495
  %field = shl i64 %exponent, 52
  %large = or i64 %hidden, %field
  %below = sub i64 1, %exponent
  %shift = select i1 %normal, i64 0, i64 %below
  %small = lshr i64 %mantissa, %shift
  %magnitude = select i1 %normal, i64 %large, i64 %small
  %signed = or i64 %magnitude, %sign
  %result = bitcast i64 %signed to double
  ret double %result
}}

; (significand with its leading bit at 52, biased exponent) of the bits of a positive number
define internal {{ i64, i64 }} @{LONG_DIVISION}_parts(i64 %a) nounwind {{
  %field = lshr i64 %a, 52
  %tiny = icmp eq i64 %field, 0
  %leading = call i64 @llvm.ctlz.i64(i64 %a, i1 false)
  %places = sub i64 %leading, 11
  %moved = shl i64 %a, %places
  %below = sub i64 1, %places
  %fraction = and i64 %a, 4503599627370495
  %whole = or i64 %fraction, 4503599627370496
  %m = select i1 %tiny, i64 %moved, i64 %whole
  %e = select i1 %tiny, i64 %below, i64 %field
  %first = insertvalue {{ i64, i64 }} poison, i64 %m, 0
  %both = insertvalue {{ i64, i64 }} %first, i64 %e, 1
  ret {{ i64, i64 }} %both
}}
"""


def fmod(c: Code, x: str, y: str) -> str:
    """Remainder of x / y with the sign of x, exact.

    Quotients below 2^29 take one division and an exact product. If any lane has a larger quotient, a branch
    is taken to a long division of every lane.
    """
    a, b = c.abs(x), c.abs(y)
    plain = c.compare("olt", c.div(a, b), 2.0**29)
    plain = c.mask("and", plain, c.compare("olt", b, math.inf))
    every = plain
    if c.lanes > 1:
        every = c.put(f"call i1 @llvm.vector.reduce.and.v{c.lanes}i1({c.btype} {plain})")
    mark = len(c.lines)
    fast, slow, done = f"@.fast{mark}", f"@.slow{mark}", f"@.done{mark}"
    c.lines.append(f"br i1 {every}, label %{fast}, label %{slow}")
    c.lines.append(f"{fast}:")
    if c.bits == 32:
        w = c.wide()
        a64, b64 = (c.put(f"fpext {c.type} {value} to {w.type}") for value in (a, b))
        r64 = _remainder(w, a64, b64)
        near = c.put(f"fptrunc {w.type} {r64} to {c.type}")
    else:
        near = _remainder(c, a, b)
    near = c.copysign(near, x)
    c.lines.append(f"br label %{done}")
    c.lines.append(f"{slow}:")
    far = _by_lane(c, x, y)
    c.lines.append(f"br label %{done}")
    c.lines.append(f"{done}:")
    return c.put(f"phi {c.type} [{near}, %{fast}], [{far}, %{slow}]")


def _by_lane(c: Code, x: str, y: str) -> str:
    """Call the long division for every lane."""

    def one(a: str, b: str) -> str:
        if c.bits == 64:
            return c.put(f"call double @{LONG_DIVISION}(double {a}, double {b})")
        wide = [c.put(f"fpext float {value} to double") for value in (a, b)]
        far = c.put(f"call double @{LONG_DIVISION}(double {wide[0]}, double {wide[1]})")
        return c.put(f"fptrunc double {far} to float")

    if c.lanes == 1:
        return one(x, y)
    is_integer = "poison"
    for lane in range(c.lanes):
        a, b = (c.put(f"extractelement {c.type} {value}, i32 {lane}") for value in (x, y))
        is_integer = c.put(f"insertelement {c.type} {is_integer}, {c.scalar_type} {one(a, b)}, i32 {lane}")
    return is_integer


def _remainder(c: Code, a: str, b: str) -> str:
    """a - trunc(a / b) b, corrected if the rounded quotient is too large by one."""
    quotient = rounding.trunc(c, c.div(a, b))
    product, lost = c.two_product(quotient, b)
    r = c.sub(c.sub(a, product), lost)
    return c.select(c.compare("olt", r, 0.0), c.add(r, b), r)


__all__ = ["LONG_DIVISION", "LONG_DIVISION_TEXT", "fmod", "power"]
