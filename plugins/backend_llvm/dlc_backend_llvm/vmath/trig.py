"""sin, cos, tan.

The argument is reduced: x = q pi/2 + r with |r| <= pi/4. Below 2^20 parts of pi/2 whose products with q are
exact are subtracted (Cody and Waite), in float64; for float64 arguments r has a second word. If a lane is
larger, a branch is taken to `dlc_trig_reduce`, which multiplies the argument by 192 bits of 2/pi, selected by
its exponent (Payne and Hanek).
"""

from __future__ import annotations

import math

from dlc_backend_llvm.vmath.code import Code

_PIO2 = (1.5707963267341256, 6.077100506303966e-11, 2.0222662487111665e-21, 8.4784276603689e-32)
_PIO2_SECOND = 6.077100506506192e-11
_LIMIT = 2.0**20

_SIN = {
    32: (-0.16666655, 0.00833219, -0.00019518405),
    64: (
        -0.16666666666666632,
        0.008333333333322455,
        -0.00019841269829814316,
        2.7557313688389866e-06,
        -2.5050756914452312e-08,
        1.589669679822413e-10,
    ),
}
_COS = {
    32: (0.041666646, -0.001388731, 2.4432351e-05),
    64: (
        0.041666666666666595,
        -0.0013888888888873314,
        2.4801587288971535e-05,
        -2.755731420529611e-07,
        2.0875703475918115e-09,
        -1.1358635659508285e-11,
    ),
}

_TWO_OVER_PI_BITS = 1216
_TWO_OVER_PI = int(
    "a2f9836e4e441529fc2757d1f534ddc0db6295993c439041fe5163abdebbc561b7246e3a424d"
    "d2e006492eea09d1921cfe1deb1cb129a73ee88235f52ebb4484e99c7026b45f7e413991d639"
    "835339f49c845f8bbdf9283b1ff897ffde05980fef2f118b5a0a6d1f6d367ecf27cb09b74f46"
    "3f669e5fea2d7527bac7ebe5f17b3d0739f78a5292ea6bfb5fb11f8d5d0856033046fc7b6bab",
    16,
)
_HALF_PI_95 = 62225653328057771307630486156

REDUCE = "dlc_trig_reduce"
REDUCE_TEXT = f"""
; q modulo 4 and r (two words) of a finite |x| >= 2^20; q = 0, r = nan for infinities.
define internal {{ i64, double, double }} @{REDUCE}(double %x) nounwind {{
  %bits = bitcast double %x to i64
  %e0 = lshr i64 %bits, 52
  %e = and i64 %e0, 2047
  %infinite = icmp eq i64 %e, 2047
  br i1 %infinite, label %nothing, label %finite
nothing:
  ret {{ i64, double, double }} {{ i64 0, double 0x7FF8000000000000, double 0.0 }}
finite:
  %m0 = and i64 %bits, 4503599627370495
  %m = or i64 %m0, 4503599627370496
  %cut = sub i64 {_TWO_OVER_PI_BITS - 190 + 1075}, %e
  %cut_wide = zext i64 %cut to i{_TWO_OVER_PI_BITS}
  %moved = lshr i{_TWO_OVER_PI_BITS} {_TWO_OVER_PI}, %cut_wide
  %window = trunc i{_TWO_OVER_PI_BITS} %moved to i192
  %m_wide = zext i64 %m to i192
  %p0 = mul i192 %m_wide, %window
  %p1 = sub i192 0, %p0
  %minus = icmp slt i64 %bits, 0
  %p = select i1 %minus, i192 %p1, i192 %p0
  %rounded = add i192 %p, {1 << 189}
  %q0 = lshr i192 %rounded, 190
  %q = trunc i192 %q0 to i64
  %f = shl i192 %p, 2
  %f_minus = icmp slt i192 %f, 0
  %f_neg = sub i192 0, %f
  %size = select i1 %f_minus, i192 %f_neg, i192 %f
  %zeros = call i192 @llvm.ctlz.i192(i192 %size, i1 false)
  %top0 = shl i192 %size, %zeros
  %top = lshr i192 %top0, 96
  %r0 = mul i192 %top, {_HALF_PI_95}
  %zeros2 = call i192 @llvm.ctlz.i192(i192 %r0, i1 false)
  %r1 = shl i192 %r0, %zeros2
  %h0 = lshr i192 %r1, 139
  %h1 = trunc i192 %h0 to i64
  %l0 = lshr i192 %r1, 86
  %l1 = trunc i192 %l0 to i64
  %l2 = and i64 %l1, 9007199254740991
  %h2 = uitofp i64 %h1 to double
  %l3 = uitofp i64 %l2 to double
  %z1 = trunc i192 %zeros to i64
  %z2 = trunc i192 %zeros2 to i64
  %z = add i64 %z1, %z2
  %eh = sub i64 {1023 + 139 - 191}, %z
  %el = sub i64 {1023 + 86 - 191}, %z
  %eh_bits = shl i64 %eh, 52
  %el_bits = shl i64 %el, 52
  %sign = select i1 %f_minus, i64 -9223372036854775808, i64 0
  %sh_bits = or i64 %eh_bits, %sign
  %sl_bits = or i64 %el_bits, %sign
  %sh = bitcast i64 %sh_bits to double
  %sl = bitcast i64 %sl_bits to double
  %high = fmul double %h2, %sh
  %low = fmul double %l3, %sl
  %out0 = insertvalue {{ i64, double, double }} poison, i64 %q, 0
  %out1 = insertvalue {{ i64, double, double }} %out0, double %high, 1
  %out2 = insertvalue {{ i64, double, double }} %out1, double %low, 2
  ret {{ i64, double, double }} %out2
}}
"""


def _reduced(c: Code, x: str) -> tuple[str, str, str]:
    """(q as integer, r, second word of r) in float64."""
    nearest, q = c.nearest_product(x, 2.0 / math.pi)
    r = c.fnma(_PIO2[0], nearest, x)
    s, lost = c.two_sum(r, c.mul(nearest, -_PIO2[1]))
    s2, lost2 = c.two_sum(s, c.mul(nearest, -_PIO2[2]))
    low = c.fnma(_PIO2[3], nearest, c.add(lost, lost2))
    high, low = c.fast_two_sum(s2, low)
    return _repair_huge(c, x, [(q, c.itype), (high, c.type), (low, c.type)])


def _reduced_float32(c: Code, x: str) -> tuple[str, str]:
    """(q, r) of float32 arguments, computed in float64."""
    w = c.wide()
    x64 = c.put(f"fpext {c.type} {x} to {w.type}")
    nearest, q = w.nearest_product(x64, 2.0 / math.pi)
    r = w.fnma(_PIO2_SECOND, nearest, w.fnma(_PIO2[0], nearest, x64))
    q, r, _ = _repair_huge(w, x64, [(q, w.itype), (r, w.type), (w.const(0.0), w.type)])
    q32 = c.put(f"trunc {w.itype} {q} to {c.itype}")
    return q32, c.put(f"fptrunc {w.type} {r} to {c.type}")


def _repair_huge(c: Code, x: str, results: list[tuple[str, str]]) -> tuple[str, str, str]:
    """If a lane is large, replace its result of the fast reduction by that of `dlc_trig_reduce`."""
    huge = c.compare("oge", c.abs(x), _LIMIT)
    some = huge
    if c.lanes > 1:
        some = c.put(f"call i1 @llvm.vector.reduce.or.v{c.lanes}i1({c.btype} {huge})")
    mark = len(c.lines)
    head, slow, loop, fix, onward, done = (f"{name}{mark}" for name in ("h", "s", "l", "f", "n", "d"))
    buffers = [f"%@.{mark}b{index}" for index in range(4)]
    c.lines.append(f"br label %@.{head}")
    c.lines.append(f"@.{head}:")
    c.lines.append(f"br i1 {some}, label %@.{slow}, label %@.{done}")
    c.lines.append(f"@.{slow}:")
    for buffer, (value, kind) in zip(buffers, [(x, c.type), *results], strict=True):
        c.lines.append(f"{buffer} = alloca {kind}, align 64")
        c.lines.append(f"store {kind} {value}, ptr {buffer}, align 64")
    i, j = f"%@.{mark}i", f"%@.{mark}j"
    c.lines.append(f"br label %@.{loop}")
    c.lines.append(f"@.{loop}:")
    c.lines.append(f"{i} = phi i64 [0, %@.{slow}], [{j}, %@.{onward}]")
    at = [c.put(f"getelementptr i64, ptr {buffer}, i64 {i}") for buffer in buffers]
    lane = c.put(f"load double, ptr {at[0]}, align 8")
    size = c.put(f"call double @llvm.fabs.f64(double {lane})")
    beyond = c.put(f"fcmp oge double {size}, {_LIMIT:e}")
    c.lines.append(f"br i1 {beyond}, label %@.{fix}, label %@.{onward}")
    c.lines.append(f"@.{fix}:")
    triple = c.put(f"call {{ i64, double, double }} @{REDUCE}(double {lane})")
    for index, kind in enumerate(("i64", "double", "double")):
        value = c.put(f"extractvalue {{ i64, double, double }} {triple}, {index}")
        c.lines.append(f"store {kind} {value}, ptr {at[index + 1]}, align 8")
    c.lines.append(f"br label %@.{onward}")
    c.lines.append(f"@.{onward}:")
    c.lines.append(f"{j} = add i64 {i}, 1")
    more = c.put(f"icmp slt i64 {j}, {c.lanes}")
    last = f"e{mark}"
    c.lines.append(f"br i1 {more}, label %@.{loop}, label %@.{last}")
    c.lines.append(f"@.{last}:")
    repaired = [
        c.put(f"load {kind}, ptr {buffer}, align 64")
        for buffer, (_, kind) in zip(buffers[1:], results, strict=True)
    ]
    c.lines.append(f"br label %@.{done}")
    c.lines.append(f"@.{done}:")
    out = [
        c.put(f"phi {kind} [{value}, %@.{head}], [{new}, %@.{last}]")
        for (value, kind), new in zip(results, repaired, strict=True)
    ]
    return out[0], out[1], out[2]


def _kernels(c: Code, r: str, low: str | None) -> tuple[str, str]:
    """(sin, cos) of r + low for |r| <= pi/4."""
    z = c.mul(r, r)
    p = c.polynomial(z, _SIN[c.bits])
    q = c.polynomial(z, _COS[c.bits])
    half = c.mul(z, 0.5)
    one_less = c.sub(1.0, half)
    lost = c.sub(c.sub(1.0, one_less), half)
    square = c.mul(z, z)
    if low is None:
        sine = c.fma(c.mul(r, z), p, r)
        return sine, c.add(one_less, c.fma(square, q, lost))
    tail = c.sub(c.mul(z, c.mul(low, 0.5)), low)
    sine = c.sub(r, c.fnma(c.mul(r, z), p, tail))
    return sine, c.add(one_less, c.add(lost, c.sub(c.mul(square, q), c.mul(r, low))))


def _both(c: Code, x: str) -> tuple[str, str, str]:
    """(q, sin r, cos r)"""
    if c.bits == 32:
        q, r = _reduced_float32(c, x)
        return q, *_kernels(c, r, None)
    q, r, low = _reduced(c, x)
    return q, *_kernels(c, r, low)


def _by_quadrant(c: Code, q: str, odd: str, even: str) -> str:
    """Select `even` or `odd` by the lowest bit of q, and negate it if the next bit is set."""
    chosen = c.select(c.icompare("ne", c.integer("and", q, 1), 0), odd, even)
    sign = c.integer("shl", c.integer("and", q, 2), c.bits - 2)
    return c.from_bits(c.integer("xor", c.to_bits(chosen), sign))


def sin(c: Code, x: str) -> str:
    """Sine of radians; NaN for infinities."""
    q, sine, cosine = _both(c, x)
    return c.select(c.compare("oeq", x, 0.0), x, _by_quadrant(c, q, cosine, sine))


def cos(c: Code, x: str) -> str:
    """Cosine of radians; NaN for infinities."""
    q, sine, cosine = _both(c, x)
    return _by_quadrant(c, c.integer("add", q, 1), cosine, sine)


def tan(c: Code, x: str) -> str:
    """Tangent of radians; NaN for infinities."""
    q, sine, cosine = _both(c, x)
    odd = c.icompare("ne", c.integer("and", q, 1), 0)
    ratio = c.div(c.select(odd, c.neg(cosine), sine), c.select(odd, sine, cosine))
    return c.select(c.compare("oeq", x, 0.0), x, ratio)


__all__ = ["REDUCE", "REDUCE_TEXT", "cos", "sin", "tan"]
