"""Functions in all languages, and a program that calls them."""

from __future__ import annotations

from typing import Any

from dlc_core.foreign import CSymbol, ForeignFunction, PythonCallable, Source

TWICE = "(in float32 x[*n], out float32 y[*n], int64 n)"
CUBE = "(float32 x) -> float32"

PROGRAM = """
@T.prim_func
def main(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32"), C: T.Buffer((64,), "float32")):
    with T.block("twice"):
        T.reads(A[0:64])
        T.writes(B[0:64])
        T.evaluate(T.call_extern("test.twice", T.address_of(A), T.address_of(B), 64, dtype="int32"))
    for i in range(64):
        with T.block("cube"):
            v = T.axis.spatial(64, i)
            C[v] = T.call_pure_extern("test.cube", A[v], dtype="float32")
"""


def twice(x: Any, y: Any, n: int) -> None:
    assert x.shape == y.shape == (n,)
    assert y.flags.writeable
    assert not x.flags.writeable
    y[:] = x * 2


C_TWICE = Source(
    "c",
    "static const float twice_factor[2] = {0, 2};\n"
    "void twice(const float *x, float *y, long n)\n"
    "{\n    for (long i = 0; i < n; ++i)\n        y[i] = x[i] * twice_factor[1];\n}\n",
    "twice",
)
C_CUBE = Source("c", "float cube(float x) { return x * x * x; }", "cube")
LLVM_TWICE = Source(
    "llvm",
    """
define void @twice(ptr %x, ptr %y, i64 %n) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %j, %loop ]
  %from = getelementptr float, ptr %x, i64 %i
  %to = getelementptr float, ptr %y, i64 %i
  %value = load float, ptr %from
  %double = fadd float %value, %value
  store float %double, ptr %to
  %j = add i64 %i, 1
  %more = icmp slt i64 %j, %n
  br i1 %more, label %loop, label %done
done:
  ret void
}
""",
    "twice",
)
LLVM_CUBE = Source(
    "llvm",
    "define float @cube(float %x) {\n  %y = fmul float %x, %x\n  %z = fmul float %y, %x\n  ret float %z\n}\n",
    "cube",
)
CL_TWICE = Source(
    "opencl",
    "void twice(global const float *x, global float *y, long n)\n"
    "{\n    for (long i = 0; i < n; ++i)\n        y[i] = x[i] + x[i];\n}\n",
    "twice",
)
CL_CUBE = Source("opencl", "float cube(float x) { return x * x * x; }", "cube")
CUDA_TWICE = Source(
    "cuda",
    "__device__ void twice(const float *x, float *y, long long n)\n"
    "{\n    for (long long i = 0; i < n; ++i)\n        y[i] = x[i] + x[i];\n}\n",
    "twice",
)
CUDA_CUBE = Source("cuda", "__device__ float cube(float x) { return x * x * x; }", "cube")
PY_TWICE, PY_CUBE = PythonCallable(twice), PythonCallable(lambda x: x**3)

PAIRS = {
    "python": (PY_TWICE, PY_CUBE),
    "c": (C_TWICE, C_CUBE),
    "llvm": (LLVM_TWICE, LLVM_CUBE),
    "opencl": (CL_TWICE, CL_CUBE),
    "cuda": (CUDA_TWICE, CUDA_CUBE),
}
"""Implementations of both functions, by language."""


def declared(twice: Any, cube: Any) -> tuple[ForeignFunction, ForeignFunction]:
    """Both functions with these implementations."""
    return (
        ForeignFunction("test.twice", TWICE, [twice]),
        ForeignFunction("test.cube", CUBE, [cube], pure=True),
    )


HYPOT = ForeignFunction(
    "test.hypot", "(float64 x, float64 y) -> float64", [CSymbol("libm.so.6", "hypot")], pure=True
)
