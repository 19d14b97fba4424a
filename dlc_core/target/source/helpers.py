"""Small helper functions of generated C programs. A program defines only those that it uses.

A helper is requested by its name: `dlc_min_f32`, `dlc_splat_f32x8`. The suffix of the name is the type, or
the element type and lanes, for which its text is generated.
"""

from __future__ import annotations

from dlc_core.diag import CodegenError
from dlc_core.ir.dtype import DType, dtype

PREFIX = "dlc_"
NARROW = {"float16": "f16", "bfloat16": "bf16"}
"""Floats that are computed as float32 and rounded after each operation, as names of helpers have them."""


def short(type_: DType) -> str:
    """The short name of a type in names of helpers and vector types: `f32`, `i64`, `u8x16`."""
    kind = {"float": "f", "int": "i", "uint": "u", "bool": "b"}.get(type_.scalar.kind, "")
    scalar = "bf16" if type_.scalar.name == "bfloat16" else f"{kind}{type_.bits}"
    return scalar if type_.lanes == 1 else f"{scalar}x{storage_lanes(type_.lanes)}"


def storage_lanes(lanes: int) -> int:
    """The lanes of the vector type that stores a vector of `lanes` lanes."""
    return 1 << (lanes - 1).bit_length()


# Scalar helpers: `{T}` the C type, `{N}` its short name, `{U}` the unsigned type of its width, `{F}` the
# suffix of library functions.

MINMAX = ("min", "max", "min_number", "max_number")
"""The second argument of the last two is not NaN."""
_FLOAT_MINMAX = """{inline} {T} dlc_{op}_{N}({T} a, {T} b)
{{
    /* a NaN on either side is the result */
    return a {sign} b || a != a ? a : b;
}}
"""
_NUMBER_MINMAX = """{inline} {T} dlc_{op}_{N}({T} a, {T} b)
{{
    /* b is a number: a NaN can only be a */
    return b {sign}= a ? b : a;
}}
"""
_INT_MINMAX = """{inline} {T} dlc_{op}_{N}({T} a, {T} b)
{{
    return a {sign} b ? a : b;
}}
"""
_SCALAR = {
    # Hardware may trap for the divisors 0 and -1.
    "floordiv": """{inline} {T} dlc_floordiv_{N}({T} a, {T} b)
{{
    if (b == 0 || b == -1)
        return b == 0 ? 0 : ({T})(({U})0 - ({U})a);
    const {T} q = ({T})(a / b);
    return ({T})(q - (a % b != 0 && (a < 0) != (b < 0)));
}}
""",
    "floormod": """{inline} {T} dlc_floormod_{N}({T} a, {T} b)
{{
    const {T} r = ({T})(b == 0 || b == -1 ? 0 : a % b);
    return ({T})(r != 0 && (r < 0) != (b < 0) ? r + b : r);
}}
""",
    "truncdiv": """{inline} {T} dlc_truncdiv_{N}({T} a, {T} b)
{{
    if (b == 0 || b == -1)
        return b == 0 ? 0 : ({T})(({U})0 - ({U})a);
    return ({T})(a / b);
}}
""",
    "truncmod": """{inline} {T} dlc_truncmod_{N}({T} a, {T} b)
{{
    return ({T})(b == 0 || b == -1 ? 0 : a % b);
}}
""",
    "udiv": """{inline} {T} dlc_udiv_{N}({T} a, {T} b)
{{
    return ({T})(b == 0 ? 0 : a / b);
}}
""",
    "umod": """{inline} {T} dlc_umod_{N}({T} a, {T} b)
{{
    return ({T})(b == 0 ? 0 : a % b);
}}
""",
    "shl": """{inline} {T} dlc_shl_{N}({T} a, {T} n)
{{
    return ({U})n < {bits} ? ({T})({U})((uint64_t)({U})a << ({U})n) : 0;
}}
""",
    "shr": """{inline} {T} dlc_shr_{N}({T} a, {T} n)
{{
    return ({U})n < {bits} ? ({T})(a >> ({U})n) : ({T})(a < 0 ? -1 : 0);
}}
""",
    "ushr": """{inline} {T} dlc_ushr_{N}({T} a, {T} n)
{{
    return n < {bits} ? ({T})(a >> n) : 0;
}}
""",
    "sigmoid": """{inline} {T} dlc_sigmoid_{N}({T} x)
{{
    const {T} e = exp{F}(-fabs{F}(x));
    return (x >= 0 ? ({T})1 : e) / (1 + e);
}}
""",
    "rounded_mul": """{inline} {T} dlc_rounded_mul_{N}({T} a, {T} b)
{{
    /* in memory a product has its own type's digits: no compiler fuses it with a sum */
    volatile {T} product = a * b;
    return product;
}}
""",
    "rsqrt": """{inline} {T} dlc_rsqrt_{N}({T} x)
{{
    return 1 / sqrt{F}(x);
}}
""",
    "sign": """{inline} {T} dlc_sign_{N}({T} x)
{{
    return x > 0 ? 1 : x < 0 ? -1 : x;
}}
""",
    # Computed as a minimum, because GCC 12 converts true to 255 in vectors of two bytes.
    "usign": """{inline} {T} dlc_usign_{N}({T} x)
{{
    return x > 1 ? 1 : x;
}}
""",
    "iabs": """{inline} {T} dlc_iabs_{N}({T} x)
{{
    return x < 0 ? ({T})(({U})0 - ({U})x) : x;
}}
""",
    "popcount": """{inline} {T} dlc_popcount_{N}({T} x)
{{
    {U} rest = ({U})x;
    {T} count = 0;
    for (; rest != 0; rest = ({U})(rest & (rest - 1u)))
        ++count;
    return count;
}}
""",
    "ipow": """{inline} {T} dlc_ipow_{N}({T} x, {T} n)
{{
    {U} result = 1, power = ({U})x;
    {negative}
    for (; n > 0; n = ({T})(n / 2)) {{
        if (n % 2 != 0)
            result = ({U})((uint64_t)result * power);
        power = ({U})((uint64_t)power * power);
    }}
    return ({T})result;
}}
""",
}
_NEGATIVE_POWER = """if (n < 0)
        return ({T})(x == 1 ? 1 : x == -1 ? (n % 2 != 0 ? -1 : 1) : 0);"""

_FIXED = {
    "f16_to_f32": """{inline} float dlc_f16_to_f32(uint16_t half)
{{
    const uint32_t sign = (uint32_t)(half & 0x8000u) << 16, rest = half & 0x7fffu;
    uint32_t bits = (rest << 13) + 0x38000000u;
    float value;
    if (rest >= 0x7c00u)
        bits += 0x38000000u;
    if (rest < 0x0400u) {{
        /* below the normal numbers: a multiple of 2^-24 */
        value = (float)rest * 5.9604644775390625e-08f;
        memcpy(&bits, &value, sizeof bits);
    }}
    bits |= sign;
    memcpy(&value, &bits, sizeof value);
    return value;
}}
""",
    "f32_to_f16": """{inline} uint16_t dlc_f32_to_f16(float value)
{{
    uint32_t bits, sign, rest;
    memcpy(&bits, &value, sizeof bits);
    sign = bits >> 16 & 0x8000u;
    bits &= 0x7fffffffu;
    if (bits > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u | (bits >> 13 & 0x3ffu));
    if (bits >= 0x477ff000u)
        return (uint16_t)(sign | 0x7c00u);
    if (bits < 0x38800000u) {{
        /* below the normal numbers: adding 0.5 leaves a multiple of 2^-24, rounded to even */
        float small;
        memcpy(&small, &bits, sizeof small);
        small += 0.5f;
        memcpy(&rest, &small, sizeof rest);
        return (uint16_t)(sign | (rest - 0x3f000000u));
    }}
    rest = bits - 0x38000000u;
    return (uint16_t)(sign | (rest + 0x0fffu + (rest >> 13 & 1u)) >> 13);
}}
""",
    "bf16_to_f32": """{inline} float dlc_bf16_to_f32(uint16_t half)
{{
    const uint32_t bits = (uint32_t)half << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}}
""",
    "f32_to_bf16": """{inline} uint16_t dlc_f32_to_bf16(float value)
{{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (value != value)
        return (uint16_t)(bits >> 16 | 0x40u);
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}}
""",
    "f64_to_f32_odd": """{inline} float dlc_f64_to_f32_odd(double value)
{{
    /* what is not exact gets an odd last bit, so that a second rounding is right */
    const double size = value < 0 ? -value : value;
    float near = (float)size;
    uint32_t bits;
    if (near == size || value != value || near == INFINITY)
        return (float)value;
    memcpy(&bits, &near, sizeof bits);
    bits = (near > size ? bits - 1 : bits) | 1u;
    memcpy(&near, &bits, sizeof near);
    return value < 0 ? -near : near;
}}
""",
    "round_f16": """{inline} float dlc_round_f16(float value)
{{
    return dlc_f16_to_f32(dlc_f32_to_f16(value));
}}
""",
    "round_bf16": """{inline} float dlc_round_bf16(float value)
{{
    return dlc_bf16_to_f32(dlc_f32_to_bf16(value));
}}
""",
}
_NEEDS = {
    "round_f16": ("f32_to_f16", "f16_to_f32"),
    "round_bf16": ("f32_to_bf16", "bf16_to_f32"),
}
"""Helpers that a helper calls."""


def needs(name: str) -> tuple[str, ...]:
    """The names, without the prefix, of the helpers that a helper calls."""
    return _NEEDS.get(name, ())


def fixed_text(name: str, inline: str) -> str:
    """A helper that is the same for all types."""
    return _FIXED[name].format(inline=inline)


def scalar_text(op: str, type_: DType, c_type: str, inline: str, suffix: str = "f") -> str:
    """The helper `dlc_<op>_<type>` over scalars of type `c_type`. `suffix` ends the names of float32
    functions.
    """
    name = short(type_)
    unsigned = f"uint{type_.bits}_t"
    words = {
        "inline": inline, "T": c_type, "N": name, "U": unsigned, "bits": type_.bits, "op": op,
        "F": "" if type_.bits == 64 else suffix, "sign": "<" if op.startswith("min") else ">", "negative": "",
    }  # fmt: skip
    if op in MINMAX and op not in ("min", "max"):
        return _NUMBER_MINMAX.format(**words)
    if op in ("min", "max"):
        return (_FLOAT_MINMAX if type_.is_float else _INT_MINMAX).format(**words)
    if op == "ipow" and type_.kind == "int":
        words["negative"] = _NEGATIVE_POWER.format(T=c_type)
    if op not in _SCALAR:
        raise CodegenError(f"operation {op} is not defined on {type_}")
    return _SCALAR[op].format(**words)


# Vector helpers: `{V}` the vector type, `{T}` the element's, `{M}` the mask's, `{n}` the lanes in use.

_VECTOR = {
    "splat": """{inline} {V} dlc_splat_{V}({T} x)
{{
    /* minus zero keeps the sign of a zero */
    return x - ({V}){{0}};
}}
""",
    "select": """{inline} {V} dlc_select_{V}({M} mask, {V} a, {V} b)
{{
    return ({V})((({M})a & mask) | (({M})b & ~mask));
}}
""",
    "min": """{inline} {V} dlc_min_{V}({V} a, {V} b)
{{
    return dlc_select_{V}({first}, a, b);
}}
""",
    "max": """{inline} {V} dlc_max_{V}({V} a, {V} b)
{{
    return dlc_select_{V}({first}, a, b);
}}
""",
    "min_number": """{inline} {V} dlc_min_number_{V}({V} a, {V} b)
{{
    return dlc_select_{V}(b <= a, b, a);
}}
""",
    "max_number": """{inline} {V} dlc_max_number_{V}({V} a, {V} b)
{{
    return dlc_select_{V}(b >= a, b, a);
}}
""",
    "load": """{inline} {V} dlc_load_{V}(const {T} *p)
{{
    {V} v;
    memcpy(&v, p, sizeof v);
    return v;
}}
""",
    "store": """{inline} void dlc_store_{V}({T} *p, {V} v)
{{
    memcpy(p, &v, sizeof v);
}}
""",
    "load_some": """{inline} {V} dlc_load_some_{V}(const {T} *p, size_t count)
{{
    {V} v = {{0}};
    memcpy(&v, p, count * sizeof *p);
    return v;
}}
""",
    "store_some": """{inline} void dlc_store_some_{V}({T} *p, {V} v, size_t count)
{{
    memcpy(p, &v, count * sizeof *p);
}}
""",
    "reduce_add": """{inline} {T} dlc_reduce_add_{V}({V} v, int count)
{{
    {T} sums[4] = {{v[0], count > 1 ? v[1] : 0, count > 2 ? v[2] : 0, count > 3 ? v[3] : 0}};
    for (int i = 4; i < count; ++i)
        sums[i % 4] += v[i];
    return (sums[0] + sums[2]) + (sums[1] + sums[3]);
}}
""",
    "reduce_min": """{inline} {T} dlc_reduce_min_{V}({V} v, int count)
{{
    {T} best = v[0];
    for (int i = 1; i < count; ++i)
        best = dlc_min_{N}(best, v[i]);
    return best;
}}
""",
    "reduce_max": """{inline} {T} dlc_reduce_max_{V}({V} v, int count)
{{
    {T} best = v[0];
    for (int i = 1; i < count; ++i)
        best = dlc_max_{N}(best, v[i]);
    return best;
}}
""",
}


def vector_needs(op: str) -> tuple[str, ...]:
    """The vector helpers of the same type that a vector helper calls."""
    return ("select",) if op in MINMAX else ()


def vector_text(op: str, type_: DType, c_type: str, inline: str) -> str:
    """The helper `dlc_<op>_<vector type>`; `type_` has lanes."""
    sign = "<" if op == "min" else ">"
    first = f"(a {sign} b) | (a != a)" if type_.is_float else f"a {sign} b"
    mask = short(dtype(f"int{type_.bits}").with_lanes(type_.lanes))
    return _VECTOR[op].format(
        inline=inline, V=short(type_), T=c_type, M=mask, N=short(type_.scalar), first=first
    )


LANE_HELPERS = frozenset({"rounded_mul", "sigmoid", "rsqrt", "sign"})
"""Functions of floats that are helpers instead of library functions."""

_TWO = frozenset({"rounded_mul", "pow", "fmod", "atan2", "copysign", "nextafter"})


def lanewise_text(op: str, type_: DType, function: str, inline: str) -> str:
    """The helper `dlc_<op>_<vector type>` that calls a scalar function for each lane."""
    name = short(type_)
    args = "abc"[: 3 if op == "fma" else 2 if op in _TWO else 1]
    params = ", ".join(f"{name} {arg}" for arg in args)
    lanes = ", ".join(f"{arg}[i]" for arg in args)
    return f"""{inline} {name} dlc_{op}_{name}({params})
{{
    {name} result;
    for (int i = 0; i < {storage_lanes(type_.lanes)}; ++i)
        result[i] = {function}({lanes});
    return result;
}}
"""


__all__ = [
    "LANE_HELPERS",
    "MINMAX",
    "NARROW",
    "PREFIX",
    "fixed_text",
    "lanewise_text",
    "needs",
    "scalar_text",
    "short",
    "storage_lanes",
    "vector_needs",
    "vector_text",
]
