"""C for Arm's M-profile vector extension (MVE, Helium; Cortex-M55): dot products of bytes.

VMLADAVA adds the products of two vectors to a sum in a general register. For operands of one sign it takes
sixteen bytes as they are. For others a load extends eight bytes to a vector of 16-bit numbers, with or
without sign, so that one instruction does eight multiply-adds. A contraction whose channels are no multiple
of sixteen takes groups of eight.

Source: Armv8-M Architecture Reference Manual; the intrinsics of `arm_mve.h`.
"""

from __future__ import annotations

from dlc_core.target import Dot

EXTENDED, WHOLE = 8, 16
"""Bytes of a group that loads extend, and of one that is multiplied as it is."""
MVE_DOTS = (
    *(
        Dot(a, b, "int32", EXTENDED, 1, operand_registers=2)
        for a in ("int8", "uint8")
        for b in ("int8", "uint8")
    ),
    *(Dot(a, a, "int32", WHOLE, 1, operand_registers=2) for a in ("int8", "uint8")),
)
"""Dot products with one sum. Sums are in registers of even numbers, so a tile has at most six: two registers
per operand leave that many.
"""

_DOT = """#if defined(__ARM_FEATURE_MVE)
#include <arm_mve.h>
#endif

static inline int32_t dlc_dot_{a}_{b}x{group}(int32_t sum, const {a}_t *a, const {b}_t *b)
{{
#if defined(__ARM_FEATURE_MVE)
    return {sum};
#else
    uint32_t total = (uint32_t)sum;
    for (int i = 0; i < {group}; ++i)
        total += (uint32_t)((int32_t)a[i] * (int32_t)b[i]);
    return (int32_t)total;
#endif
}}
"""
_LOADS = {"int8": "vldrbq_s16({})", "uint8": "vreinterpretq_s16_u16(vldrbq_u16({}))"}
_WHOLE = {
    "int8": "vmladavaq_s8(sum, vldrbq_s8(a), vldrbq_s8(b))",
    "uint8": "(int32_t)vmladavaq_u8((uint32_t)sum, vldrbq_u8(a), vldrbq_u8(b))",
}


def _helper(dot: Dot) -> str:
    extended = f"vmladavaq_s16(sum, {_LOADS[dot.a].format('a')}, {_LOADS[dot.b].format('b')})"
    total = extended if dot.group == EXTENDED else _WHOLE[dot.a]
    return _DOT.format(a=dot.a, b=dot.b, group=dot.group, sum=total)


def mve_helpers() -> dict[str, str]:
    """The texts of helpers for processors with the extension, by name."""
    return {f"dot_{dot.a}_{dot.b}x{dot.group}": _helper(dot) for dot in MVE_DOTS}


__all__ = ["MVE_DOTS", "mve_helpers"]
