"""A tensor program that is scheduled by hand and called in a graph by `call_tir`. The schedule is kept; rules
schedule the other operations.
"""

from __future__ import annotations

import numpy as np

import dlc_core as dlc
from dlc_core.schedule import Schedule
from dlc_core.script import G, T, module

M = N = K = 128


@module
class Model:
    @G.function
    def main(x: G.Tensor((M, K), "float32"), w: G.Tensor((K, N), "float32")):
        y = G.call_tir(matmul, (G.relu(x), w), G.Tensor((M, N), "float32"))
        return G.tanh(y)

    @T.prim_func
    def matmul(
        A: T.Buffer((M, K), "float32"), B: T.Buffer((K, N), "float32"), C: T.Buffer((M, N), "float32")
    ):
        for i, j, k in T.grid(M, N, K):
            with T.block("C"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    C[vi, vj] = 0.0
                C[vi, vj] += A[vi, vk] * B[vk, vj]


sch = Schedule(Model)
sch.work_on("matmul")
block = sch.get_block("C")
i, j, k = sch.get_loops(block)
i0, i1 = sch.split(i, [None, 4])
j0, j1 = sch.split(j, [None, 16])
sch.reorder(i0, j0, k, i1, j1)
sch.decompose_reduction(block, k)
sch.parallel(i0)
sch.unroll(i1)
sch.vectorize(j1)
print(sch.mod["matmul"].script())

x, w = (np.random.default_rng(seed).standard_normal((M, K), np.float32) for seed in (0, 1))
expected = np.tanh(np.maximum(x, 0) @ w)
for label, model in (("scheduled by rules", Model), ("scheduled by hand", sch.mod)):
    exe = dlc.compile(model, target="llvm")
    np.testing.assert_allclose(exe(x, w), expected, rtol=1e-4, atol=1e-5)
    print(f"{label:20} {exe.time_evaluator(number=10, repeat=3)(x, w)}")
