"""A declared dtype: posit<8,0>, and a matrix product in it, with float32 sums, on three targets.

A posit has a sign, a run of equal bits (the regime, a power of two) and a fraction. Code 0x80 is NaN.
"""

import sys

import dlc_backend_c.plugin
import dlc_backend_llvm.plugin
import numpy as np

import dlc_core as dlc
from dlc_core import te
from dlc_core.hooks import hookimpl
from dlc_core.ir.codes import codec
from dlc_core.ir.convert import convert
from dlc_core.ir.dtype_decl import DTypeDecl
from dlc_core.ir.expr import const, eq, minimum, ne, select
from dlc_core.plugin.registry import fresh_registry
from dlc_core.testing.dtypes import check_dtype
from dlc_core.tir.intrinsics import intrinsic, reinterpret


def value(code):
    if code in (0, 0x80):
        return 0.0 if code == 0 else float("nan")
    if code > 0x80:
        return -value(256 - code)
    bits = f"{code:07b}"
    run = len(bits) - len(bits.lstrip(bits[0]))
    fraction = bits[run + 1 :]
    return 2.0 ** (run - 1 if bits[0] == "1" else -run) * (1 + int(fraction or "0", 2) / 2 ** len(fraction))


def lower_decode(code):
    # Below 1, values are multiples of 1/64; above, the length of the regime is the exponent.
    size = select(code >= 128, 256 - code.astype("int32"), code.astype("int32"))
    exponent = 132 - (reinterpret("int32", select(size < 127, 127 - size, 1).astype("float32")) >> 23)
    fraction = size & ((const(1, "int32") << (5 - minimum(exponent, 5))) - 1)
    large = reinterpret("float32", ((exponent + 127) << 23) | (fraction << (18 + exponent)))
    found = select(size < 64, size.astype("float32") / 64, select(eq(size, 127), 64.0, large))
    return select(eq(code, 128), float("nan"), select(code > 128, -found, found))


def lower_encode(number):
    # Ties go to even codes.
    size = intrinsic("abs", number)
    small = intrinsic("round", minimum(size, 1.0) * 64).astype("int32")
    small = select(ne(size, 0.0) & eq(small, 0), 1, small)
    bits = reinterpret("int32", minimum(size, 64.0))
    exponent = select(size < 1, 0, (bits >> 23) - 127)
    fraction, shift = bits & 0x7FFFFF, exponent + 18
    up = (const(1, "int32") << (shift - 1)) - 1 + ((fraction >> shift) & 1)
    large = 128 - (const(1, "int32") << (6 - exponent)) + ((fraction + up) >> shift)
    code = select(size < 1, small, minimum(large, 127))
    return select(size < float("inf"), select(number < 0, (256 - code) & 255, code), 128).astype("uint8")


NUMPY = codec(8, value, boundary=lambda a, b: a and b and (value(a) + value(b)) / 2, overflow="nan")
POSIT8 = DTypeDecl(
    "posit8", 8, "float", *NUMPY, lower_decode, lower_encode, special=(0, 1, 48, 64, 1e9, 1e-9)
)


@hookimpl
def dlc_dtypes():  # in a package, the entry point in the group `dlc` names this module
    return [POSIT8]


if __name__ == "__main__":
    check_dtype(POSIT8)
    plugins = {"posit": sys.modules[__name__], "llvm": dlc_backend_llvm.plugin, "c": dlc_backend_c.plugin}
    with fresh_registry(plugins):
        x, y = (convert(np.random.default_rng(i).standard_normal((64, 64)), "posit8") for i in range(2))
        a, b = (te.placeholder((64, 64), "posit8", name=name) for name in ("a", "b"))
        model = te.create_prim_func([a, b], [dlc.topi.matmul(a, b)])
        expected = convert(convert(x, "float32") @ convert(y, "float32"), "posit8")
        for target in ("reference", "llvm", "c"):
            print(target, "equal codes:", (dlc.build(model, target)(x, y) == expected).all())
