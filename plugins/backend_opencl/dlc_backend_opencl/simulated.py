"""The device `opencl_simulated`, which runs OpenCL C on the CPU by the core's simulator of threads.

It needs no driver. Words that C lacks are defined before the kernels. Only vector literals are rewritten in
the text, because C writes them in braces.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from dlc_backend_opencl.codegen import CODEGEN, FORMAT
from dlc_core.backend import Kernel, LaunchDevice, Spelling, load_simt
from dlc_core.backend.launching import CHECKED
from dlc_core.target import Artifact

LANES = (2, 4, 8, 16)
_INTS = {"char": 8, "short": 16, "int": 32, "long": 64}
_TYPES = {
    "float": "float",
    "double": "double",
    **{f"{sign}{name}": f"{sign}int{bits}_t" for sign in ("", "u") for name, bits in _INTS.items()},
}
"""The C definitions of the types."""
_PRELUDE = """
#define DLC_AS(to, x) __extension__({ \\
    __typeof__(x) dlc_x = (x); to dlc_y; memcpy(&dlc_y, &dlc_x, sizeof dlc_y); dlc_y; })
#define dot(a, b) __extension__({ __typeof__(a) dlc_a = (a); __typeof__(b) dlc_b = (b); \\
    (uint32_t)(dlc_a.s0 * dlc_b.s0 + dlc_a.s1 * dlc_b.s1 + dlc_a.s2 * dlc_b.s2 + dlc_a.s3 * dlc_b.s3); })
static inline float vload_half(size_t i, const uint16_t *p)
{
    const uint32_t bits = (uint32_t)p[i], rest = bits & 0x7fff;
    const float normal = ldexpf((float)(rest & 0x3ff | 0x400), (int)(rest >> 10) - 25);
    const float number = rest < 0x400 ? ldexpf((float)rest, -24) : normal;
    const float size = rest > 0x7c00 ? NAN : rest == 0x7c00 ? INFINITY : number;
    return bits & 0x8000 ? -size : size;
}
static inline void vstore_half_rte(float x, size_t i, uint16_t *p)
{
    const uint16_t sign = signbit(x) ? 0x8000 : 0;
    const float size = fabsf(x);
    int power;
    if (x != x || size >= 65520) {
        p[i] = (uint16_t)(sign | (x != x ? 0x7e00 : 0x7c00));
        return;
    }
    frexpf(size, &power);
    power = size == 0 || power < -13 ? -13 : power;
    /* in units of the last place; a carry goes into the exponent as it should */
    p[i] = (uint16_t)(sign | ((uint16_t)rintf(ldexpf(size, 11 - power)) + ((power + 13) << 10)));
}
"""


def _text() -> str:
    """The C definitions of the language's types, vectors and functions."""
    lines = ["#include <tgmath.h>", _PRELUDE.strip()]
    for lanes in LANES:
        fields = " ".join(f"T s{k:x};" for k in range(lanes))
        for name, type_ in _TYPES.items():
            struct = fields.replace("T", type_)
            lines.append(f"typedef struct {{ {struct} }} __attribute__((packed, may_alias)) {name}{lanes};")
            lines.append(f"#define as_{name}{lanes}(x) DLC_AS({name}{lanes}, x)")
        cases = ", ".join(f"{type_}: *(const {name}{lanes} *)(p)" for name, type_ in _TYPES.items())
        lines.append(f"#define vload{lanes}(i, p) _Generic(*(p), {cases})")
        lines.append(f"#define vstore{lanes}(v, i, p) (*(__typeof__((0, (v))) *)(p) = (v))")
    lines += [f"#define as_{name}(x) DLC_AS({type_}, x)" for name, type_ in _TYPES.items()]
    words = {
        "kernel": "",
        "__local": "DLC_SHARED",
        "global": "",
        "local": "",
        "half": "uint16_t",
        "barrier(fence)": "DLC_BARRIER()",
        "get_group_id": "DLC_GROUP",
        "get_local_id": "DLC_THREAD",
        **{name: type_ for name, type_ in _TYPES.items() if name != type_},
    }
    return "\n".join([*lines, *(f"#define {word} {meaning}" for word, meaning in words.items())])


_VECTORS = "|".join(f"{name}{lanes}" for name in _TYPES for lanes in LANES)
_LITERAL = re.compile(rf"\(({_VECTORS})\)\(")


def c_literals(text: str) -> str:
    """`(float4)(a, b, c, d)` as `((float4){a, b, c, d})`."""
    done, at = [], 0
    for found in _LITERAL.finditer(text):
        if found.start() < at:
            continue  # these literals contain scalars only
        depth, end = 1, found.end()
        while depth:
            depth += (text[end] == "(") - (text[end] == ")")
            end += 1
        done += [text[at : found.start()], f"(({found[1]}){{", text[found.end() : end - 1], "})"]
        at = end
    return "".join([*done, text[at:]])


class SimulatedOpencl(LaunchDevice):
    """The simulated OpenCL device."""

    name = "opencl_simulated"
    formats = (FORMAT,)
    source_formats = CODEGEN.source_formats
    spelling = Spelling(text=_text(), shared="__local", offsets=True)

    def prepare_kernels(self, artifact: Artifact, found: Sequence[Kernel]) -> Any:
        """Convert the kernels to C and compile them."""
        text = c_literals(artifact.code.decode())
        checked = artifact.metadata.get(CHECKED) is True
        return load_simt(text, found, self.spelling, checked=checked)


DEVICE = SimulatedOpencl()

__all__ = ["DEVICE", "SimulatedOpencl", "c_literals"]
