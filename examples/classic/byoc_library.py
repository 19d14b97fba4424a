"""A maths library takes the GEMMs of a model. Its function `cblas_sgemm` is declared as a foreign function,
and a partitioner puts calls of it in place of matrix products; everything else is compiled as usual.

The library is OpenBLAS of the package scipy-openblas32 (pip) or libopenblas-dev (apt). Compiled files name
the function, not the library: `dlc.open` finds it by the plugin, as here.
"""

import ctypes.util
import os
import tempfile
from importlib.util import find_spec
from pathlib import Path

import dlc_backend_llvm.plugin
import numpy as np

import dlc_core as dlc
from dlc_core.backend import Partitioner, RegionPattern
from dlc_core.foreign import CSymbol, ForeignFunction
from dlc_core.graph import Function, constant, param
from dlc_core.hooks import hookimpl
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.plugin.registry import fresh_registry
from dlc_core.rewrite import match_op, var
from dlc_core.runtime.executable import Executable
from dlc_core.testing.networks import mlp


def library() -> tuple[str, str]:
    """The library and its symbol; "" if it is not installed."""
    found = find_spec("scipy_openblas32")
    if found is not None and found.origin is not None:
        return str(next((Path(found.origin).parent / "lib").glob("libscipy_openblas.*"))), "scipy_cblas_sgemm"
    return ctypes.util.find_library("openblas") or "", "cblas_sgemm"


# The numbers are constants of BLAS: row-major order, no transposition. `call_dps` passes the defaults, and
# for m, n, k and the leading dimensions the sizes of the arrays. A transposed operand would be a second
# function with another default.
SGEMM = ForeignFunction(
    "blas.sgemm",
    "(int32 order=101, int32 trans_a=111, int32 trans_b=111, int32 m, int32 n, int32 k, float32 alpha=1,"
    " in float32 a[m, k], int32 lda=k, in float32 b[k, n], int32 ldb=n, float32 beta=0,"
    " out float32 c[m, n], int32 ldc=n)",
    [CSymbol(lambda: library()[0], library()[1])],
)


def is_gemm(found, target):
    """Whether the library computes a product: True, or the reason for `dlc explain`."""
    a, b = found["a"].tensor_type, found["b"].tensor_type
    if a.ndim != 2 or b.ndim != 2:
        return f"operands of {a.ndim} and {b.ndim} dims"
    return a.dtype.name == b.dtype.name == "float32" or f"products of {a.dtype} and {b.dtype}"


def call_blas(found, target):
    return std.call_dps(found["a"], found["b"], function="blas.sgemm")


class Plugin:
    """The object of the package's entry point."""

    DLC_API = "0.1"

    @hookimpl
    def dlc_foreign_functions(self):
        return [SGEMM]

    @hookimpl
    def dlc_partitioners(self):
        gemm = RegionPattern("gemm", match_op("matmul", var("a"), var("b")), is_gemm)
        return [Partitioner("blas", "llvm", [gemm], replacement=call_blas)]


def compiled(model: IRModule, *plugins: object) -> Executable:
    """A model compiled for one thread. With installed packages, this is `dlc.compile(model)` alone."""
    with fresh_registry({"llvm": dlc_backend_llvm.plugin, **{type(p).__name__: p for p in plugins}}):
        return dlc.compile(model, "llvm", num_threads=1)


def check() -> None:
    """A perceptron whose products the library computes, in memory and from a file."""
    model = mlp()
    x = np.random.default_rng(0).standard_normal((1, 64)).astype(np.float32)
    exe = compiled(model, Plugin())
    with fresh_registry({"llvm": dlc_backend_llvm.plugin, "blas": Plugin()}):
        np.testing.assert_allclose(exe(x), dlc.compile(model, "reference")(x), rtol=1e-4, atol=1e-5)
        with tempfile.TemporaryDirectory() as folder:
            exe.save(Path(folder) / "mlp.dlc")
            np.testing.assert_array_equal(dlc.open(Path(folder) / "mlp.dlc")(x), exe(x))
    print(exe.explain())


def measure(size: int) -> None:
    """Time a product of square matrices by generated code and by the library, alternately."""
    rng = np.random.default_rng(size)
    x, w = (rng.standard_normal((size, size)).astype(np.float32) for _ in range(2))
    a = param("a", tensor_type((size, size)))
    model = IRModule({"main": Function("main", (a,), std.matmul(a, constant(w)))})
    exes = compiled(model), compiled(model, Plugin())
    with fresh_registry({"blas": Plugin()}):
        results = [exe(x) for exe in exes]
        np.testing.assert_allclose(*results, rtol=1e-3, atol=1e-3)
        number = max(1, 400_000_000 // size**3)
        times = [[exe.time_evaluator(number=number, repeat=1)(x).mean for exe in exes] for _ in range(5)]
    rates = 2e-9 * size**3 / np.min(times, 0)
    print(f"{size:5} x {size}: generated code {rates[0]:6.1f} GFLOP/s, library {rates[1]:6.1f} GFLOP/s")


if __name__ == "__main__":
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    if not library()[0]:
        print("no OpenBLAS: pip install scipy-openblas32")
    else:
        check()
        for size in (64, 256, 1024):
            measure(size)
