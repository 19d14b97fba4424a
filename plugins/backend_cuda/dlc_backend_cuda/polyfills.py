"""Definitions of the helper functions and types in generated CUDA C."""

from __future__ import annotations

from functools import partial

from dlc_core.backend import polyfills
from dlc_core.target import BYTE_DOTS
from dlc_core.target.source import Copies
from dlc_core.target.source.helpers import fixed_text

INLINE = "static __device__ __forceinline__"
WIDEST = 128
"""The maximum number of bits that a thread loads or stores at once."""
LANES = (2, 4, 8, 16)

TYPES = {"float16": "f16", "bfloat16": "bf16", "float32": "tf32", "int8": "s8", "uint8": "u8",
         "float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2"}  # fmt: skip
"""The names of matrix operand dtypes in PTX instructions."""

either = partial(polyfills.either, "__CUDACC__")
STAGES = 4
"""The maximum number of pipeline stages: tiles in shared memory, all but one of which are being loaded."""
COPIES = Copies(
    (4, 8, 16), guarded="dlc_copy_{bytes}_if({to}, {source}, {cond})", groups=tuple(range(1, STAGES))
)
"""The syntax of asynchronous copies to shared memory, for sm_80 and later."""


def operands(kind: str, name: str, count: int) -> str:
    """The elements of an array as operands of inline assembly."""
    return ", ".join(f'"{kind}"({name}[{i}])' for i in range(count))


def _copies() -> dict[str, str]:
    """The functions of asynchronous copies. In the simulator a copy is made when the thread waits."""
    found = {}
    for name, how, here in (
        ("wait_for_copies", "wait_all", "DLC_COPIES_WAIT_ALL()"),
        ("commit_copies", "commit_group", "DLC_COPIES_COMMIT()"),
        *((f"wait_for_copies_but_{n}", f"wait_group {n}", f"DLC_COPIES_WAIT({n})") for n in COPIES.groups),
    ):
        own = f'asm volatile("cp.async.{how};" ::: "memory");'
        found[f"dlc_{name}"] = either(f"{INLINE} void dlc_{name}(void)", own, f"{here};")
    for size in COPIES.bytes:
        how = f"cp.async.{'cg' if size == WIDEST // 8 else 'ca'}.shared.global [%0], [%1], {size}"
        given = '"r"((unsigned)__cvta_generic_to_shared(to)), "l"(from)'
        for guard in (False, True):
            title, source = f"dlc_copy_{size}{'_if' * guard}", "all ? from : 0" if guard else "from"
            size_of = f', "r"(all ? {size} : 0)' * guard
            head = f"{INLINE} void {title}(void *to, const void *from{', int all' * guard})"
            own = f'asm volatile("{how}{", %2" * guard};" :: {given}{size_of} : "memory");'
            found[title] = either(head, own, f"DLC_COPY_ASYNC(to, {source}, {size});")
    return found


def _dots() -> dict[str, str]:
    """The functions of dot products of four bytes: by `dp4a`, and in C for the simulator."""
    found = {}
    for dot in BYTE_DOTS:
        a, b, name = dot.a, dot.b, f"dlc_dot_{dot.a}_{dot.b}"
        signs = ".".join("u32" if each == "uint8" else "s32" for each in (a, b))
        own = f"""int32_t total;
asm("dp4a.{signs} %0, %1, %2, %3;" : "=r"(total) : "r"(*(const int *)a), "r"(*(const int *)b), "r"(sum));
return total;"""
        products = " + ".join(f"a[{i}] * b[{i}]" for i in range(dot.group))
        here = f"return (int32_t)((uint32_t)sum + (uint32_t)({products}));"
        head = f"{INLINE} int32_t {name}(int32_t sum, const {a}_t *a, const {b}_t *b)"
        found[name] = either(head, own, here)
    return found


WORDS = {
    "INFINITY": "#ifndef INFINITY\n#define INFINITY __int_as_float(0x7f800000)\n#endif\n",
    "NAN": "#ifndef NAN\n#define NAN __int_as_float(0x7fffffff)\n#endif\n",
    "INT64_C": "#ifndef INT64_C\n#define INT64_C(x) x##LL\n#endif\n",
    "UINT64_C": "#ifndef UINT64_C\n#define UINT64_C(x) x##ULL\n#endif\n",
    "dlc_dynamic": """#ifdef __CUDACC__
#define dlc_dynamic extern
#define dlc_static_size(bytes)
#else
#define dlc_dynamic
#define dlc_static_size(bytes) bytes
#endif
""",
    **polyfills.vector_words(INLINE, "__align__({size})", LANES, WIDEST),
    **_copies(),
    **_dots(),
}
"""Definitions, by the words that need them. A text that uses a word is preceded by its definition."""


def _instruction(name: str, own: str) -> str:
    """A helper of the C family that uses an instruction on the device, and its C text elsewhere."""
    head, _, rest = fixed_text(name, INLINE).partition("\n{\n")
    return either(head, own, rest.removesuffix("}\n"))


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
"""Conversions by instructions of the device."""

_VARIABLES = "blockIdx threadIdx blockDim gridDim warpSize dim3 half"
_FUNCTIONS = """
    max min clock clock64 printf malloc free assert memcpy memset rsqrt cbrt hypot norm normcdf erfc erfcx
    erfinv lgamma tgamma fdim fmax fmin frexp ldexp ilogb logb modf remainder remquo scalbn sincos sincospi
    sinpi cospi mulhi saturate umin umax llmin ullmin llmax ullmax signbit isnan isinf isfinite
"""
RESERVED = frozenset((*_VARIABLES.split(), *_FUNCTIONS.split(), *WORDS))

__all__ = ["COPIES", "FIXED", "INLINE", "LANES", "RESERVED", "TYPES", "WIDEST", "WORDS", "either", "operands"]
