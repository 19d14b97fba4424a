"""How to optimise a GEMM on a CPU: blocking, vectorisation, permutation, packing, a write cache, threads.

Each version is checked, and timed on one thread (the last one on all).
"""

import numpy as np

import dlc_core as dlc
from dlc_core import te

M = N = K = 256
BLOCK = 32

k = te.reduce_axis((0, K), "k")
A, B = te.placeholder((M, K), name="A"), te.placeholder((K, N), name="B")
C = te.compute((M, N), lambda m, n: te.sum(A[m, k] * B[k, n], axis=k), name="C")
PACKED = te.compute((N // BLOCK, K, BLOCK), lambda block, k, n: B[k, block * BLOCK + n], name="packedB")
D = te.compute((M, N), lambda m, n: te.sum(A[m, k] * PACKED[n // BLOCK, k, n % BLOCK], axis=k), name="C")


def baseline():
    return te.create_schedule(C.op), C


def blocking(vectorize=False):
    s = te.create_schedule(C.op)
    mo, no, mi, ni = s[C].tile(*C.op.axis, BLOCK, BLOCK)
    ko, ki = s[C].split(s[C].op.reduce_axis[0], factor=4)
    s[C].reorder(mo, no, ko, ki, mi, ni)
    if vectorize:
        s[C].vectorize(ni)
    return s, C


def loop_permutation():
    s = te.create_schedule(C.op)
    mo, no, mi, ni = s[C].tile(*C.op.axis, BLOCK, BLOCK)
    ko, ki = s[C].split(s[C].op.reduce_axis[0], factor=4)
    s[C].reorder(mo, no, ko, mi, ki, ni)
    s[C].vectorize(ni)
    return s, C


def packed(parallel=False):
    s = te.create_schedule(D.op)
    cache = s.cache_write(D, "local")
    mo, no, _, _ = s[D].tile(*s[D].op.axis, BLOCK, BLOCK)
    s[cache].compute_at(s[D], no)
    mc, nc = s[cache].op.axis
    ko, ki = s[cache].split(s[cache].op.reduce_axis[0], factor=4)
    s[cache].reorder(ko, mc, ki, nc)
    s[cache].unroll(ki)
    s[cache].vectorize(nc)
    _, _, little = s[PACKED].op.axis
    s[PACKED].vectorize(little)
    if parallel:
        s[PACKED].parallel(s[PACKED].op.axis[0])
        s[D].parallel(mo)
    return s, D


a, b = (np.random.default_rng(seed).standard_normal((M, K), np.float32) for seed in (0, 1))
expected = a @ b
versions = {
    "baseline": baseline,
    "blocking": blocking,
    "vectorization": lambda: blocking(vectorize=True),
    "loop permutation": loop_permutation,
    "packing and write cache": packed,
    "parallel": lambda: packed(parallel=True),
}
for name, make in versions.items():
    s, result = make()
    func = dlc.build(s, [A, B, result], target="llvm", num_threads=None if name == "parallel" else 1)
    c = np.empty((M, N), np.float32)
    func(a, b, c)
    np.testing.assert_allclose(c, expected, rtol=1e-4, atol=1e-3)
    timing = func.time_evaluator(number=2, repeat=3)(a, b)
    print(f"{name:24} {1e3 * timing.min:8.2f} ms  {2 * M * N * K / timing.min / 1e9:7.1f} GFLOP/s")
