"""C for Arm's DSP extension (Cortex-M4, M7, M33, M55) and for conversions of its floating-point unit.

The extension has 32-bit instructions over pairs of 16-bit numbers. SXTB16 and UXTB16 extend two bytes of a
word to a pair, and SMLAD adds the two products of two pairs to a sum. So a dot product of four bytes takes a
load and two extensions for each operand, and two SMLAD. Operands are extended once for all sums of a register
tile that read them. The order of the bytes in a pair is not that in memory, but the same in both operands.

Source: Armv7-M Architecture Reference Manual; Arm C Language Extensions (the macros `__ARM_FEATURE_*`).
"""

from __future__ import annotations

from dlc_core.target import Dot

GROUP = 4
DOTS = tuple(
    Dot(a, b, "int32", GROUP, 1, instructions=2, operand_instructions=3, operand_registers=2)
    for a in ("int8", "uint8")
    for b in ("int8", "uint8")
)
"""Dot products of four bytes with one sum."""

_DOT = """static inline int32_t dlc_dot_{a}_{b}x4(int32_t sum, const {a}_t *a, const {b}_t *b)
{{
#if defined(__ARM_FEATURE_DSP) && defined(__GNUC__)
    uint32_t x, y, x_even, x_odd, y_even, y_odd;
    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    __asm__("{xa}xtb16 %0, %1" : "=r"(x_even) : "r"(x));
    __asm__("{xa}xtb16 %0, %1, ror #8" : "=r"(x_odd) : "r"(x));
    __asm__("{xb}xtb16 %0, %1" : "=r"(y_even) : "r"(y));
    __asm__("{xb}xtb16 %0, %1, ror #8" : "=r"(y_odd) : "r"(y));
    /* volatile keeps the order of the products: a compiler that moves the loads ahead spills the sums */
    __asm__ volatile("smlad %0, %1, %2, %0" : "+r"(sum) : "r"(x_even), "r"(y_even));
    __asm__ volatile("smlad %0, %1, %2, %0" : "+r"(sum) : "r"(x_odd), "r"(y_odd));
    return sum;
#else
    uint32_t total = (uint32_t)sum;
    for (int i = 0; i < 4; ++i)
        total += (uint32_t)((int32_t)a[i] * (int32_t)b[i]);
    return (int32_t)total;
#endif
}}
"""

_CLAMPED_ROUND = """static inline int32_t dlc_clamped_round(float x, int32_t zero, int32_t low, int32_t high)
{
#if defined(__ARM_FEATURE_DSP) && defined(__ARM_FP) && defined(__GNUC__)
    float bits;
    int32_t n;
    /* rounds as the mode says, to the nearest by default, and saturates */
    __asm__("vcvtr.s32.f32 %0, %1" : "=t"(bits) : "t"(x));
    memcpy(&n, &bits, sizeof n);
    if (!__builtin_constant_p(zero) || zero != 0)
        __asm__("qadd %0, %1, %2" : "=r"(n) : "r"(n), "r"(zero));
    if (low == 0 && high == 255)
        __asm__("usat %0, #8, %1" : "=r"(n) : "r"(n));
    else if (low == -128 && high == 127)
        __asm__("ssat %0, #8, %1" : "=r"(n) : "r"(n));
    else
        n = n < low ? low : n > high ? high : n;
    return n;
#else
    const float sum = rintf(x) + (float)zero;
    return sum >= (float)high ? high : sum >= (float)low ? (int32_t)sum : low;
#endif
}
"""

_ROUNDED_MUL = """static inline float dlc_rounded_mul_f32(float a, float b)
{
    /* no compiler fuses the product with a sum */
#if defined(__ARM_FP) && defined(__GNUC__)
    float product = a * b;
    __asm__("" : "+t"(product));
#else
    volatile float product = a * b;
#endif
    return product;
}
"""


def dsp_helpers() -> dict[str, str]:
    """The texts of helpers for processors with the extension, by name."""
    dots = {
        f"dot_{dot.a}_{dot.b}x{dot.group}": _DOT.format(
            a=dot.a, b=dot.b, xa="s" if dot.a == "int8" else "u", xb="s" if dot.b == "int8" else "u"
        )
        for dot in DOTS
    }
    return {
        **dots,
        "clamped_round": _CLAMPED_ROUND,
        "rounded_mul_f32": _ROUNDED_MUL,
    }


__all__ = ["DOTS", "dsp_helpers"]
