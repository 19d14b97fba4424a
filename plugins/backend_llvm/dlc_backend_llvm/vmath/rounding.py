"""floor, ceil, round (ties to even), trunc, sqrt, rsqrt, and conversions of the 16-bit floats.

If the target has no rounding instruction (x86 before SSE4.1), LLVM would call libm for each lane. Instead,
adding 2^23 (2^52 for float64) rounds. bfloat16 is always converted by integer instructions, because the
conversion instruction of some processors flushes denormals. float16 is converted by the target's instructions
if it has them, else by integer instructions.
"""

from __future__ import annotations

from dlc_backend_llvm.vmath.code import Code

_FLOAT32_END = 2.0**128 - 2.0**103
"""The smallest float64 value that is rounded to infinity in float32."""


def sqrt(c: Code, x: str) -> str:
    """Square root, correctly rounded."""
    return c.sqrt(x)


def rsqrt(c: Code, x: str) -> str:
    """1 / sqrt(x)"""
    return c.div(1.0, c.sqrt(x))


def _rounded(c: Code, a: str) -> str:
    """Round a >= 0 (or NaN) to an integral value, ties to even, without a rounding instruction."""
    limit = 2.0**c.mantissa
    return c.select(c.compare("olt", a, limit), c.sub(c.add(a, limit), limit), a)


def round_even(c: Code, x: str) -> str:
    """Round to the nearest integral value, ties to even."""
    if c.machine.rounding:
        return c.call("roundeven", x)
    return c.copysign(_rounded(c, c.abs(x)), x)


def floor(c: Code, x: str) -> str:
    """Round down to an integral value."""
    if c.machine.rounding:
        return c.call("floor", x)
    near = round_even(c, x)
    lower = c.sub(near, 1.0)
    return c.copysign(c.select(c.compare("ogt", near, x), lower, near), x)


def ceil(c: Code, x: str) -> str:
    """Round up to an integral value."""
    if c.machine.rounding:
        return c.call("ceil", x)
    near = round_even(c, x)
    upper = c.add(near, 1.0)
    return c.copysign(c.select(c.compare("olt", near, x), upper, near), x)


def trunc(c: Code, x: str) -> str:
    """Round towards zero to an integral value."""
    if c.machine.rounding:
        return c.call("trunc", x)
    a = c.abs(x)
    near = _rounded(c, a)
    lower = c.sub(near, 1.0)
    return c.copysign(c.select(c.compare("ogt", near, a), lower, near), x)


def _vector(lanes: int, element: str) -> str:
    return element if lanes == 1 else f"<{lanes} x {element}>"


def bfloat16_to_float32(c: Code, x: str) -> str:
    """Exact."""
    short = c.put(f"bitcast {_vector(c.lanes, 'bfloat')} {x} to {_vector(c.lanes, 'i16')}")
    wide = c.put(f"zext {_vector(c.lanes, 'i16')} {short} to {c.itype}")
    return c.from_bits(c.integer("shl", wide, 16))


def float32_to_bfloat16(c: Code, x: str) -> str:
    """Round to nearest, ties to even. NaN becomes a quiet NaN."""
    bits = c.to_bits(x)
    high = c.integer("lshr", bits, 16)
    odd = c.integer("and", high, 1)
    near = c.integer("lshr", c.integer("add", c.integer("add", bits, 0x7FFF), odd), 16)
    chosen = c.iselect(c.compare("uno", x, x), c.integer("or", high, 0x40), near)
    short = c.put(f"trunc {c.itype} {chosen} to {_vector(c.lanes, 'i16')}")
    return c.put(f"bitcast {_vector(c.lanes, 'i16')} {short} to {_vector(c.lanes, 'bfloat')}")


def float16_to_float32(c: Code, x: str) -> str:
    """An exact conversion. The integer code shifts the fields into position and multiplies by 2^112, which
    also normalises denormals.
    """
    half = _vector(c.lanes, "half")
    if c.machine.float16:
        return c.put(f"fpext {half} {x} to {c.type}")
    wide = c.put(
        f"zext {_vector(c.lanes, 'i16')} "
        + c.put(f"bitcast {half} {x} to {_vector(c.lanes, 'i16')}")
        + f" to {c.itype}"
    )
    body = c.from_bits(c.integer("shl", c.integer("and", wide, 0x7FFF), 13))
    value = c.to_bits(c.mul(body, 2.0**112))
    special = c.compare("oge", c.from_bits(value), 65536.0)
    bits = c.iselect(special, c.integer("or", value, 0x7F800000), value)
    sign = c.integer("shl", c.integer("and", wide, 0x8000), 16)
    return c.from_bits(c.integer("or", bits, sign))


def float32_to_float16(c: Code, x: str) -> str:
    """Round to nearest, ties to even, with gradual underflow. NaN becomes a quiet NaN."""
    half = _vector(c.lanes, "half")
    if c.machine.float16:
        return c.put(f"fptrunc {c.type} {x} to {half}")
    bits = c.to_bits(x)
    magnitude = c.integer("and", bits, 0x7FFFFFFF)
    a = c.from_bits(magnitude)
    odd = c.integer("and", c.integer("lshr", magnitude, 13), 1)
    normal = c.integer("add", c.integer("add", magnitude, 0xFFF - (112 << 23)), odd)
    normal = c.integer("lshr", normal, 13)
    tiny = c.integer("sub", c.to_bits(c.add(a, 0.5)), c.to_bits_of(0.5))
    result = c.iselect(c.compare("olt", a, 2.0**-14), tiny, normal)
    result = c.iselect(c.compare("oge", a, 65520.0), 0x7C00, result)
    result = c.iselect(c.compare("uno", x, x), 0x7E00, result)
    sign = c.integer("and", c.integer("lshr", bits, 16), 0x8000)
    short = c.put(f"trunc {c.itype} {c.integer('or', result, sign)} to {_vector(c.lanes, 'i16')}")
    return c.put(f"bitcast {_vector(c.lanes, 'i16')} {short} to {half}")


def float64_to_float32_odd(c: Code, x: str) -> str:
    """Convert float64 to float32 with rounding to odd, so that a second rounding to 16 bits is correct. `c`
    is the `Code` of float64.
    """
    narrow = Code(32, c.lanes, c.machine, c.lines)
    near = c.put(f"fptrunc {c.type} {x} to {narrow.type}")
    back = c.put(f"fpext {narrow.type} {near} to {c.type}")
    beyond = c.compare("ogt", c.abs(back), c.abs(x))
    inexact = c.mask("and", c.compare("one", back, x), c.compare("olt", c.abs(x), _FLOAT32_END))
    bits = narrow.to_bits(near)
    toward_zero = narrow.iselect(beyond, narrow.integer("sub", bits, 1), bits)
    odd = narrow.integer("or", toward_zero, 1)
    return narrow.from_bits(narrow.iselect(inexact, odd, bits))


__all__ = [
    "bfloat16_to_float32",
    "ceil",
    "float16_to_float32",
    "float32_to_bfloat16",
    "float32_to_float16",
    "float64_to_float32_odd",
    "floor",
    "round_even",
    "rsqrt",
    "sqrt",
    "trunc",
]
