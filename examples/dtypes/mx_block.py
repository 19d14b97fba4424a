"""Quantisation formats of packed groups: MXFP6 and MXINT8 of the OCP MX specification, and a vendor's format.

A group of 32 elements shares an exponent. The inner loop of a product reads the packed bytes of the weights.
Elements of 6 bits are a dtype that this module declares; those of 3 bits, too.
"""

import sys

import dlc_backend_c.plugin
import dlc_backend_llvm.plugin
import numpy as np

import dlc_core as dlc
from dlc_core.graph import Function, constant, param
from dlc_core.hooks import hookimpl
from dlc_core.ir.codes import codec
from dlc_core.ir.dtype_decl import DTypeDecl
from dlc_core.ir.expr import eq, minimum, select
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type
from dlc_core.op.quant_format import QuantFormat
from dlc_core.plugin.registry import fresh_registry
from dlc_core.testing.dtypes import check_dtype
from dlc_core.tir.intrinsics import intrinsic


def value(code):
    size = code & 31
    return (size if size < 16 else 2 * size - 16 if size < 24 else 4 * size - 64) / (-8 if code > 31 else 8)


def lower_decode(code):
    size = (code & 31).astype("int32")
    eighths = select(size < 16, size, select(size < 24, 2 * size - 16, 4 * size - 64))
    return eighths.astype("float32") * select(code > 31, -0.125, 0.125)


def lower_encode(number):
    eighths = 8 * minimum(intrinsic("abs", number), 7.5)
    step = select(eighths < 16, 1.0, select(eighths < 32, 2.0, 4.0))
    first = select(eighths < 16, 0.0, select(eighths < 32, 8.0, 16.0))
    size = (intrinsic("round", eighths / step) + first).astype("uint8")
    return select(eq(number, number), select((number < 0) & (size > 0), size + 32, size), 63)


E2M3 = DTypeDecl("e2m3", 6, "float", *codec(6, value), lower_decode, lower_encode, doc="6-bit floats of MX")
UINT3 = DTypeDecl("uint3", 3, "uint", lambda a: a, lambda a: a & 7, lambda e: e, lambda e: e & 7)
FORMATS = (
    QuantFormat("mxfp6", "e2m3", group=32, scale="float8_e8m0fnu"),
    QuantFormat("mxint8", "int8", group=32, scale="float8_e8m0fnu"),
    QuantFormat("npu3", "uint3", group=64, scale="float16", zero=True),
)


@hookimpl
def dlc_dtypes():
    return [E2M3, UINT3]


@hookimpl
def dlc_quant_formats():
    return FORMATS


if __name__ == "__main__":
    check_dtype(E2M3)
    rng = np.random.default_rng(0)
    w, x = (rng.standard_normal(shape).astype(np.float32) for shape in ((256, 64), (4, 256)))
    plugins = {"mx": sys.modules[__name__], "llvm": dlc_backend_llvm.plugin, "c": dlc_backend_c.plugin}
    with fresh_registry(plugins):
        a = param("x", tensor_type((4, 256), "float32"))
        model = IRModule({"main": Function("main", (a,), dlc.ops()["matmul"].build(a, constant(w)))})
        for made in FORMATS:
            expected = x @ made.dequantize(*made.quantize(w))
            for target in ("reference", "llvm", "c"):
                exe = dlc.compile(dlc.quantize_weights(model, made.name), target)
                error = np.abs(exe(x) - expected).max()
                print(f"{made.name} on {target}: {made.bits_per_weight} bits per weight, {error:.1e}")
                assert error < 1e-4
