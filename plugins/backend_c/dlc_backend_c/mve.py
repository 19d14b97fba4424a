"""C for Arm's M-profile vector extension (MVE, Helium; Cortex-M55): dot products of bytes.

A load extends eight bytes to a vector of 16-bit numbers, with or without sign, and VMLADAVA adds the eight
products of two vectors to a sum in a general register. So bytes of all signs take one instruction for eight
multiply-adds. VMLADAVA of sixteen bytes needs operands of one sign; quantized activations are usually
unsigned and weights signed.

Source: Armv8-M Architecture Reference Manual; the intrinsics of `arm_mve.h`.
"""

from __future__ import annotations

from dlc_core.target import Dot

GROUP = 8
MVE_DOTS = tuple(
    Dot(a, b, "int32", GROUP, 1, operand_registers=2) for a in ("int8", "uint8") for b in ("int8", "uint8")
)
"""Dot products of eight bytes with one sum. Sums are in registers of even numbers, so a tile has at most six:
two registers per operand leave that many.
"""

_DOT = """#if defined(__ARM_FEATURE_MVE)
#include <arm_mve.h>
#endif

static inline int32_t dlc_dot_{a}_{b}x8(int32_t sum, const {a}_t *a, const {b}_t *b)
{{
#if defined(__ARM_FEATURE_MVE)
    return vmladavaq_s16(sum, {xa}, {xb});
#else
    uint32_t total = (uint32_t)sum;
    for (int i = 0; i < 8; ++i)
        total += (uint32_t)((int32_t)a[i] * (int32_t)b[i]);
    return (int32_t)total;
#endif
}}
"""
_LOADS = {"int8": "vldrbq_s16({})", "uint8": "vreinterpretq_s16_u16(vldrbq_u16({}))"}


def mve_helpers() -> dict[str, str]:
    """The texts of helpers for processors with the extension, by name."""
    return {
        f"dot_{dot.a}_{dot.b}x{dot.group}": _DOT.format(
            a=dot.a, b=dot.b, xa=_LOADS[dot.a].format("a"), xb=_LOADS[dot.b].format("b")
        )
        for dot in MVE_DOTS
    }


__all__ = ["MVE_DOTS", "mve_helpers"]
