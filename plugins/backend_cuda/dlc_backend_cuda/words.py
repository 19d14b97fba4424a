"""The words of generated CUDA C that neither C nor CUDA has, each with the text that gives it its meaning."""

from __future__ import annotations

from dlc_core.target.source.helpers import fixed_text

INLINE = "static __device__ __forceinline__"
WIDEST = 128
"""Bits that a thread loads or stores at once."""
LANES = (2, 4, 8, 16)

_INTEGERS = {8: "char", 16: "short", 32: "int", 64: "long long"}
TYPES = {
    f"{sign}int{bits}_t": f"typedef {'unsigned' if sign else 'signed'} {word} {sign}int{bits}_t;"
    for bits, word in _INTEGERS.items()
    for sign in ("", "u")
}
"""Integers of C, which are no words of kernels that are compiled with no header."""
_BITS = {"float": 32, "double": 64} | {f"{sign}int{bits}_t": bits for bits in _INTEGERS for sign in ("", "u")}


def _vectors() -> dict[str, str]:
    """Vectors as structures, which move as a whole, and the functions that make them."""
    types, makers = {}, {}
    for scalar, bits in _BITS.items():
        for lanes in LANES:
            if bits * lanes > WIDEST:
                continue
            name, size = f"{scalar}x{lanes}", bits * lanes // 8
            parts = [f"s{lane:x}" for lane in range(lanes)]
            given = ", ".join(f"{scalar} {part}" for part in parts)
            types[name] = f"typedef struct __align__({size}) {{ {scalar} {', '.join(parts)}; }} {name};\n"
            makers[f"make_{name}"] = (
                f"{INLINE} {name} make_{name}({given})\n{{\n"
                f"    const {name} vector = {{{', '.join(parts)}}};\n    return vector;\n}}\n"
            )
    return types | makers


WORDS = {
    "INFINITY": "#ifndef INFINITY\n#define INFINITY __int_as_float(0x7f800000)\n#endif\n",
    "NAN": "#ifndef NAN\n#define NAN __int_as_float(0x7fffffff)\n#endif\n",
    "INT64_C": "#ifndef INT64_C\n#define INT64_C(x) x##LL\n#endif\n",
    "UINT64_C": "#ifndef UINT64_C\n#define UINT64_C(x) x##ULL\n#endif\n",
    **_vectors(),
}
"""What stands before the kernels where they use it."""


def _instruction(name: str, body: str) -> str:
    """A function of the C family by an instruction of the device; its C is the meaning elsewhere."""
    text = fixed_text(name, INLINE)
    head, _, rest = text.partition("{\n")
    own = "\n".join(f"    {line}" for line in body.splitlines())
    return f"{head}{{\n#ifdef __CUDACC__\n{own}\n#else\n{rest.removesuffix('}' + chr(10))}#endif\n}}\n"


FIXED = {
    "f16_to_f32": _instruction(
        "f16_to_f32",
        """float value;
asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(half));
return value;""",
    ),
    "f32_to_f16": _instruction(
        "f32_to_f16",
        """uint16_t half;
asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(value));
return half;""",
    ),
}
"""Conversions that devices have instructions for."""

_VARIABLES = "blockIdx threadIdx blockDim gridDim warpSize dim3 half"
_FUNCTIONS = """
    max min clock clock64 printf malloc free assert memcpy memset rsqrt cbrt hypot norm normcdf erfc erfcx
    erfinv lgamma tgamma fdim fmax fmin frexp ldexp ilogb logb modf remainder remquo scalbn sincos sincospi
    sinpi cospi mulhi saturate umin umax llmin ullmin llmax ullmax signbit isnan isinf isfinite
"""
RESERVED = frozenset((*_VARIABLES.split(), *_FUNCTIONS.split(), *WORDS))

__all__ = ["FIXED", "INLINE", "LANES", "RESERVED", "TYPES", "WIDEST", "WORDS"]
