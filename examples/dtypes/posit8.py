"""A declared dtype: posit<8,0>, with float32 sums.

A posit has a sign, a run of equal bits (the regime, a power of two), and a fraction. Code 0x80 is NaN ("not a
real"). Numbers beyond the largest posit are rounded to it, and none but 0 is rounded to 0.

In a package, the entry point names this module: its hook declares the dtype.
"""

import numpy as np

import dlc_core as dlc
from dlc_core.hooks import hookimpl
from dlc_core.ir.codes import codec
from dlc_core.ir.convert import convert
from dlc_core.ir.dtype_decl import DTypeDecl
from dlc_core.ir.expr import cast_to, const, eq, minimum, ne, select
from dlc_core.plugin.registry import fresh_registry
from dlc_core.tir.intrinsics import intrinsic, reinterpret

DLC_API = "0.1"


def value(code, bits=8):
    """The definition: the number that a code means."""
    if code in (0, 1 << (bits - 1)):
        return 0.0 if code == 0 else float("nan")
    if code >> (bits - 1):
        return -value((1 << bits) - code, bits)
    text = f"{code:0{bits - 1}b}"
    run = len(text) - len(text.lstrip(text[0]))
    fraction = text[run + 1 :]
    scale = run - 1 if text[0] == "1" else -run
    return 2.0**scale * (1 + int(fraction or "0", 2) / 2.0 ** len(fraction))


def boundary(low, high):
    """Nothing but 0 is rounded to 0; other boundaries are the posits of 9 bits between two of 8 bits."""
    return 0.0 if 0 in (low, high) else (value(low) + value(high)) / 2


def lower_decode(codes):
    """Values below 1 are multiples of 1/64; above, the regime is the exponent, and the rest the fraction."""
    wide = cast_to("int32", codes)
    size = select(wide >= 128, 256 - wide, wide)
    rest = cast_to("float32", select(size >= 127, 1, 127 - size))
    exponent = 132 - (reinterpret("int32", rest) >> 23)
    fraction = size & ((const(1, "int32") << (5 - minimum(exponent, 5))) - 1)
    large = reinterpret("float32", ((exponent + 127) << 23) | (fraction << (18 + exponent)))
    found = select(size < 64, cast_to("float32", size) * (1 / 64), select(eq(size, 127), 64.0, large))
    found = select(wide > 128, -found, found)
    return select(eq(wide, 128), float("nan"), found)


def lower_encode(values):
    """The same in the other direction; ties go to the even code."""
    size = intrinsic("abs", values)
    small = cast_to("int32", intrinsic("round", minimum(size, 1.0) * 64.0))
    small = select(ne(size, 0.0) & eq(small, 0), 1, small)
    bits = reinterpret("int32", minimum(size, 64.0))
    exponent = select(size < 1.0, 0, (bits >> 23) - 127)
    fraction, shift = bits & 0x7FFFFF, 18 + exponent
    half = (const(1, "int32") << (shift - 1)) - 1
    large = (
        128 - (const(1, "int32") << (6 - exponent)) + ((fraction + half + ((fraction >> shift) & 1)) >> shift)
    )
    code = select(size < 1.0, small, minimum(large, 127))
    code = select(values < 0.0, (256 - code) & 255, code)
    return cast_to("uint8", select(size < float("inf"), code, 128))


POSIT8 = DTypeDecl(
    "posit8",
    8,
    "float",
    *codec(8, value, boundary=boundary, overflow="nan"),
    lower_decode,
    lower_encode,
    special=(0.0, 1.0, 64.0, 100.0, 1 / 64, 1e-9, 48.0, 0.9921875, float("inf"), float("nan")),
)


@hookimpl
def dlc_dtypes():
    return [POSIT8]
