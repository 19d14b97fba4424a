"""The code generator: kernels as OpenCL C 1.2.

Hosts identify memory by handles and not by pointers. Therefore each pointer argument is followed by the
offset of the first element. If the text uses an extension, a pragma enables it, and the artefact lists it
(`EXTENSIONS`).
"""

from __future__ import annotations

import re
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from dlc_backend_opencl.kind import AXES, FP64, INTEGER_DOTS, KIND, PROCESSOR, SHUFFLES, WIDEST
from dlc_core.backend import LaunchCodegen
from dlc_core.ir.module import IRModule
from dlc_core.support.lazy import lazy
from dlc_core.target import Artifact, Target
from dlc_core.target.c_text import CText

if TYPE_CHECKING:
    from dlc_backend_opencl import writer
    from dlc_core.backend import kernels
    from dlc_core.backend import polyfills as plain
    from dlc_core.target import source
else:
    writer = lazy("dlc_backend_opencl.writer")
    kernels = lazy("dlc_core.backend.kernels")
    plain = lazy("dlc_core.backend.polyfills")
    source = lazy("dlc_core.target.source")

FORMAT = "opencl-c"
"""The format of artefacts that are OpenCL C. `launches` in their metadata lists the launches."""
EXTENSIONS = "extensions"
"""The key in the metadata for the extensions that the text needs."""

_TYPES = {
    "bool": "bool",
    **{
        f"{sign}int{bits}": f"{'u' if sign else ''}{word}"
        for sign in ("", "u")
        for bits, word in ((8, "char"), (16, "short"), (32, "int"), (64, "long"))
    },
    "float16": "float",
    "bfloat16": "float",
    "float32": "float",
    "float64": "double",
}
_LANES = (2, 4, 8, 16)
_BITS = {_TYPES[f"{sign}int{bits}"]: bits for sign in ("", "u") for bits in (8, 16, 32, 64)}
_BITS |= {"float": 32, "double": 64}
_STORED = {**_TYPES, "bool": "uchar", "float16": "ushort", "bfloat16": "ushort"}

# Memory that is written as one type and read as another has the type `uchar`, which may alias all types.
# Compilers assume that a `half` and a `ushort` do not alias.
_NARROW = {
    "f16_to_f32": """static inline float dlc_f16_to_f32(ushort half_bits)
{
    const uchar2 held = as_uchar2(half_bits);
    return vload_half(0, (const half *)&held);
}
""",
    "f32_to_f16": """static inline ushort dlc_f32_to_f16(float value)
{
    const uint wide = as_uint(value);
    uchar2 held;
    if (value != value)
        return (ushort)((wide >> 16 & 0x8000u) | 0x7e00u | (wide >> 13 & 0x3ffu));
    vstore_half_rte(value, 0, (half *)&held);
    return as_ushort(held);
}
""",
    "bf16_to_f32": """static inline float dlc_bf16_to_f32(ushort bits)
{
    return as_float((uint)bits << 16);
}
""",
    "f32_to_bf16": """static inline ushort dlc_f32_to_bf16(float value)
{
    const uint bits = as_uint(value);
    if (value != value)
        return (ushort)(bits >> 16 | 0x40u);
    return (ushort)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}
""",
    "f64_to_f32_odd": """static inline float dlc_f64_to_f32_odd(double value)
{
    /* what is not exact gets an odd last bit, so that a second rounding is right */
    const double size = fabs(value);
    const float near = (float)size;
    if (near == size || value != value || near == INFINITY)
        return (float)value;
    return (float)copysign((double)as_float((near > size ? as_uint(near) - 1 : as_uint(near)) | 1u), value);
}
""",
}

_TANH = """static inline {type} dlc_tanh_{name}({type} x)
{{
    /* some libraries do not reach one, which 1 - tanh(x) wants */
    return fabs(x) > {beyond} ? copysign({one}, x) : tanh(x);
}}
"""
_MACROS = {
    **{f"{sign}int{bits}_t": f"typedef {_TYPES[f'{sign}int{bits}']} {sign}int{bits}_t;"
       for bits in (8, 16, 32, 64) for sign in ("", "u")},
    "INT64_C": "#define INT64_C(x) x##L",
    "UINT64_C": "#define UINT64_C(x) x##UL",
    "dlc_tanh_f32": _TANH.format(type="float", name="f32", beyond="10.0f", one="1.0f"),
    "dlc_tanh_f64": _TANH.format(type="double", name="f64", beyond="20.0", one="1.0"),
}  # fmt: skip
"""Definitions of words that OpenCL C lacks, by word."""
_PACKED = "dlc_packed_"
_MACROS |= {
    f"{_PACKED}{type_}": "typedef struct __attribute__((packed, may_alias, "
    f"aligned({bits // 8}))) {{\n    {type_} v;\n}} {_PACKED}{type_};"
    for scalar, bits in _BITS.items()
    for type_ in (f"{scalar}{lanes}" for lanes in _LANES)
}
_LOAD = f"(({{space}}const {_PACKED}{{type}} *)({{at}}))->v"
_STORE = f"(({{space}}{_PACKED}{{type}} *)({{at}}))->v = {{value}}"
"""The store of a vector on CPUs. The drivers of some call a library function for `vload` and `vstore`, and
save all registers at each call, accumulators among them.
"""
_EXTENSIONS = {FP64: r"\bdouble\b", SHUFFLES: r"\bsub_group_", INTEGER_DOTS: r"\bdot\("}
"""The extensions, each with a pattern for texts that need it."""

_KEYWORDS = """
    kernel global local constant private half uchar ushort uint ulong size_t ptrdiff_t event_t sampler_t
    read_only write_only read_write pipe generic vec_type_hint work_group_size_hint reqd_work_group_size
    image1d_t image2d_t image3d_t
"""
_FUNCTIONS = """
    acospi acosh asinh asinpi atan2 atan2pi atanh atanpi cbrt copysign cospi erfc exp2 exp10 expm1 fdim fmax
    fmin fract frexp hypot ilogb ldexp lgamma lgamma_r log10 log1p log2 logb mad maxmag minmag modf nan
    nextafter pown powr remainder remquo rint rootn rsqrt sincos sinpi tanpi tgamma clamp degrees max min
    mix radians sign smoothstep step cross dot distance length normalize isequal isnan isinf isfinite
    isnormal signbit any all bitselect select abs_diff add_sat hadd rhadd clz mad_hi mad_sat mul_hi rotate
    sub_sat upsample popcount mad24 mul24 barrier mem_fence prefetch shuffle shuffle2 printf vload2 vload4
    vload8 vload16 vstore2 vstore4 vstore8 vstore16 vload_half vstore_half
"""
_VECTORS = [
    f"{word}{lanes}"
    for word in ("half", *dict.fromkeys(_TYPES.values()))
    for lanes in (*_LANES, 3)
    if word != "bool"
]
_RESERVED = frozenset((*_KEYWORDS.split(), *_FUNCTIONS.split(), *_VECTORS))

_LANE = "sub_group_shuffle({0}, (get_sub_group_local_id() & ~(uint)({2} - 1)) + (uint)({1}))"
_SUBGROUP = {
    "subgroup_shuffle": _LANE,
    "subgroup_shuffle_down": (
        "sub_group_shuffle({0}, get_sub_group_local_id() + ("
        "(get_sub_group_local_id() & (uint)({2} - 1)) + (uint)({1}) < (uint)({2}) ? (uint)({1}) : 0u))"
    ),
    "subgroup_shuffle_xor": "sub_group_shuffle_xor({0}, (uint)({1}))",
}
_DOT = "(int)((uint)({{0}}) + (uint)dot(vload4(0, {{1}}), vload4(0, {{2}})))"


class OpenclCodegen(LaunchCodegen):
    """Emits the artefact format "opencl-c"."""

    name = "opencl"
    kinds = ("opencl", "opencl_simulated")
    format = FORMAT
    forms = ("cl",)
    source_formats = MappingProxyType({FORMAT: CText(headers=frozenset())})

    def dialect(self, module: IRModule, target: Target) -> source.Dialect:
        """OpenCL C 1.2. Indices have 32 bits if all sizes fit."""
        levels = (("block", "get_group_id"), ("thread", "get_local_id"))
        axes = {f"{level}.{axis}": f"{word}({i})" for i, axis in enumerate(AXES) for level, word in levels}
        words = {"barrier": "barrier(CLK_LOCAL_MEM_FENCE)"}
        facts = target.describe()
        if facts.subgroup:
            words |= _SUBGROUP
        if facts.dots:
            words |= plain.dot_words(_DOT)
        moves = source.Moves(_LANES, widest=WIDEST)
        if facts.extra.get(PROCESSOR):
            # The simulator compiles C, whose vectors lack these operators.
            own = target.kind.name == KIND.name
            moves = replace(moves, load=_LOAD, store=_STORE, arithmetic=own)
        return source.Dialect(
            "OpenCL C",
            scalars=_TYPES,
            stored=_STORED,
            math={**source.MATH, "tanh": "dlc_tanh_{type}"},
            float_suffix="",
            zero="0",
            index="int" if kernels.narrow_index(module) else "long",
            # `local` and `__local` mean the same. Declarations use one and pointers the other, to distinguish
            # them. Memory that a kernel allocates belongs to one thread, unless its scope is shared.
            scopes={"local": "", "global": "", "shared": "__local"},
            alignment="__attribute__((aligned({align})))",
            headers=(),
            reserved=_RESERVED,
            reinterpret="as_{to}(({held}){value})",
            fixed=_NARROW,
            foreign=("opencl",),
            kernels=source.Kernels(
                head="kernel void",
                axes=axes,
                words=words,
                spaces={"global": "global", "shared": "local"},
                offsets=True,
                moves=moves,
            ),
        )

    def writer(self) -> type[kernels.KernelWriter]:
        """The class that writes kernels."""
        return writer.OpenclWriter

    def emit(self, module: IRModule, target: Target) -> Artifact:
        """Write the kernels, preceded by the definitions and pragmas that they need."""
        made = super().emit(module, target)
        text = made.code.decode()
        needs = [name for name, use in _EXTENSIONS.items() if re.search(use, text)]
        head = [f"#pragma OPENCL EXTENSION {name} : enable" for name in needs]
        head += kernels.defined(text, _MACROS)
        text = "\n".join([*head, *[""] * bool(head), text])
        metadata: dict[str, Any] = {**made.metadata, EXTENSIONS: needs}
        return replace(made, code=text.encode(), sources={self.forms[0]: text}, metadata=metadata)


CODEGEN = OpenclCodegen()

__all__ = ["CODEGEN", "EXTENSIONS", "FORMAT", "OpenclCodegen"]
