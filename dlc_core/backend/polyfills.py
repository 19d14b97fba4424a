"""Definitions for kernel languages that lack C's integer types, vector types, or functions that pack narrow
values into words.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from dlc_core.target import BYTE_DOTS

_INTEGERS = {8: "char", 16: "short", 32: "int", 64: "long long"}
INTEGERS = {
    f"{sign}int{bits}_t": f"typedef {'unsigned' if sign else 'signed'} {word} {sign}int{bits}_t;"
    for bits, word in _INTEGERS.items()
    for sign in ("", "u")
}
"""The integer types of C, for texts that are compiled without headers."""
_BITS = {"float": 32, "double": 64} | {f"{sign}int{bits}_t": bits for bits in _INTEGERS for sign in ("", "u")}


def either(known: str, head: str, own: str, fallback: str) -> str:
    """A function with the body `own` if the macro `known` is defined (on the device), else with the body
    `fallback` (in the simulator).
    """
    inside = "\n".join(f"    {line}" for line in own.splitlines())
    return f"{head}\n{{\n#ifdef {known}\n{inside}\n#else\n    {fallback.strip()}\n#endif\n}}\n"


def standalone(text: str, headerless: str) -> str:
    """A text of C or C++ that needs no headers if the macro `headerless` is defined."""
    used = set(re.findall(r"\w+", text))
    types = [meaning for word, meaning in INTEGERS.items() if word in used]
    lines = [f"#ifdef {headerless}", *types, "#else", "#include <stdint.h>", "#endif", ""] if types else []
    lines += ["#ifdef __cplusplus", 'extern "C" {', "#endif", "", text]
    return "\n".join([*lines, "#ifdef __cplusplus", "}", "#endif", ""])


def vector_words(inline: str, align: str, lanes: Sequence[int], widest: int) -> dict[str, str]:
    """Vector types of up to `widest` bits as structures, which are loaded and stored as a whole, and
    functions that make them.

    `inline` is the prefix of a function. `align` is the format of the qualifier that aligns a type to
    `{size}` bytes.
    """
    types, makers = {}, {}
    for scalar, bits in _BITS.items():
        for count in lanes:
            if bits * count > widest:
                continue
            name, aligned = f"{scalar}x{count}", align.format(size=bits * count // 8)
            parts = [f"s{lane:x}" for lane in range(count)]
            given = ", ".join(f"{scalar} {part}" for part in parts)
            types[name] = f"typedef struct {aligned} {{ {scalar} {', '.join(parts)}; }} {name};\n"
            makers[f"make_{name}"] = (
                f"{inline} {name} make_{name}({given})\n{{\n"
                f"    const {name} vector = {{{', '.join(parts)}}};\n    return vector;\n}}\n"
            )
    return types | makers


def packing_words(inline: str) -> dict[str, str]:
    """Functions that pack narrow values into words of 32 bits, the first value in the lowest bits."""
    made = {}
    for bits in (8, 16):
        count = 32 // bits
        given = ", ".join(f"uint{bits}_t v{i}" for i in range(count))
        value = " | ".join(["v0", *(f"(uint32_t)v{i} << {bits * i}" for i in range(1, count))])
        name = f"dlc_pack_{bits}"
        made[name] = f"{inline} uint32_t {name}({given})\n{{\n    return {value};\n}}\n"
    return made


def dot_words(call: str) -> dict[str, str]:
    """The words of `Kernels` for `BYTE_DOTS`. `call` is the format of a call, with the dtypes `{a}` and
    `{b}`.
    """
    return {f"vector_dot.{d.a}.{d.b}x{d.group}": call.format(a=d.a, b=d.b) for d in BYTE_DOTS}


__all__ = ["INTEGERS", "dot_words", "either", "packing_words", "standalone", "vector_words"]
