"""`time_evaluator`: the time of a function, measured as `repeat` runs of `number` calls each."""

import numpy as np

import dlc_core as dlc
from dlc_core import te

n = 1024
A, B = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
k = te.reduce_axis((0, n), name="k")
C = te.compute((n, n), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
func = dlc.build([A, B, C], target="llvm", num_threads=1)

a, b = (np.random.default_rng(seed).standard_normal((n, n), np.float32) for seed in (0, 1))
evaluator = func.time_evaluator(number=3, repeat=3)
timing = evaluator(a, b)
print(f"mean {1e3 * timing.mean:.2f} ms, median {1e3 * timing.median:.2f} ms, min {1e3 * timing.min:.2f} ms")
print(f"{2 * n**3 / timing.median / 1e9:.1f} GFLOP/s on one thread")
assert len(timing.results) == 3
