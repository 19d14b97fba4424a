"""C for quantized kernels on microcontrollers: sums of single products, and their scaling without floats.

`dlc_multiply_add` adds one product. A compiler that is free to reorder the products of a register tile sums
some of them first, moves loads ahead, and spills sums.

`dlc_scaled_round` is for processors without floating-point units. The results of `requantize` are defined by
a product in float32 (`docs/quantized-models.md`). Libraries for floats take hundreds of instructions for its
conversion, product, rounding and comparisons. This helper computes the same bits in integers: it rounds the
sum to the 24 bits of a float32, multiplies the mantissas, rounds the product to 24 bits, then to an integer,
each time with ties to even. A product below the normal numbers is not rounded to their spacing, because it
rounds to 0 in any case.
"""

from __future__ import annotations

_SCALED_ROUND = """static inline int32_t dlc_scaled_round(
        int32_t n, float factor, int32_t zero, int32_t low, int32_t high)
{
    uint32_t bits, size = n < 0 ? 0u - (uint32_t)n : (uint32_t)n, rounded;
    uint64_t product;
    int32_t exponent, result;
    memcpy(&bits, &factor, sizeof bits);
    exponent = (int32_t)(bits >> 23 & 0xffu);
    rounded = bits & 0x7fffffu;
    if (exponent != 0)
        rounded |= 0x800000u;
    else
        exponent = 1;
    exponent -= 150;
    if (size >> 24 != 0) {
        uint32_t by = 1;
        while (size >> by >> 24 != 0)
            ++by;
        size = (size + ((1u << (by - 1)) - 1u) + (size >> by & 1u)) >> by;
        exponent += (int32_t)by;
    }
    product = (uint64_t)size * rounded;
    rounded = (uint32_t)product;
    if (product >> 24 != 0) {
        uint32_t top = (uint32_t)(product >> 24), by = 0;
#ifdef __GNUC__
        by = 32u - (uint32_t)__builtin_clz(top);
#else
        for (; top != 0; top >>= 1)
            ++by;
#endif
        rounded = (uint32_t)((product + ((1u << (by - 1)) - 1u) + ((uint32_t)(product >> by) & 1u)) >> by);
        exponent += (int32_t)by;
    }
    /* the value is rounded * 2^exponent, and rounded is at most 2^24 */
    if (exponent < -24) {
        result = 0;
    } else if (exponent < 0) {
        const uint32_t by = (uint32_t)-exponent;
        result = (int32_t)((rounded + ((1u << (by - 1)) - 1u) + (rounded >> by & 1u)) >> by);
    } else {
        result = rounded == 0 ? 0 : exponent > 5 ? 1 << 29 : (int32_t)(rounded << exponent);
    }
    result = (n < 0) != (bits >> 31 != 0) ? zero - result : zero + result;
    return result < low ? low : result > high ? high : result;
}
"""


_MULTIPLY_ADD = """static inline uint32_t dlc_multiply_add(uint32_t sum, int32_t a, int32_t b)
{
#if defined(__thumb2__) && defined(__GNUC__)
    /* volatile keeps the order */
    __asm__ volatile("mla %0, %1, %2, %0" : "+r"(sum) : "r"(a), "r"(b));
    return sum;
#else
    return sum + (uint32_t)(a * b);
#endif
}
"""


def micro_helpers(*, floats: bool) -> dict[str, str]:
    """The texts of helpers for microcontrollers with or without a floating-point unit, by name."""
    return {"multiply_add": _MULTIPLY_ADD, **({} if floats else {"scaled_round": _SCALED_ROUND})}


__all__ = ["micro_helpers"]
