"""A matrix product scheduled stage by stage, with the schedules of tensors: `s[C].split(…)`.

The product is computed in tiles of the result, each kept in registers until its sums are complete.
"""

import numpy as np

import dlc_core as dlc
from dlc_core import te

M, N, K, ROWS, COLUMNS = 128, 128, 128, 4, 16

a, b = te.placeholder((M, K), name="A"), te.placeholder((K, N), name="B")
k = te.reduce_axis(K, "k")
c = te.compute((M, N), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
d = te.compute((M, N), lambda i, j: te.max(c[i, j], 0.0), name="D")

s = dlc.create_schedule(d)
outer_rows, outer_columns, rows, columns = s[d].tile(*d.op.axis, ROWS, COLUMNS)
s[d].parallel(outer_rows)
s[d].unroll(rows)
s[d].vectorize(columns)

tile = s.cache_write(c, "local")
s[c].compute_inline()
s[tile].compute_at(s[d], outer_columns)
i, j = s[tile].op.axis
s[tile].reorder(*s[tile].op.reduce_axis, i, j)
s[tile].unroll(i)
s[tile].vectorize(j)
print(s.show(), "\n")
print(dlc.lower(s, [a, b, d], before="flatten_buffers").script())

x, y = (np.random.default_rng(seed).standard_normal((M, K), np.float32) for seed in (0, 1))
plain = dlc.build(dlc.create_schedule(d), [a, b, d], num_threads=1)
staged = dlc.build(s, [a, b, d], num_threads=1)
for label, exe in (("as written", plain), ("by stages", staged)):
    np.testing.assert_allclose(exe(x, y), np.maximum(x @ y, 0), rtol=1e-4, atol=1e-4)
    timing = exe.time_evaluator(repeat=3, min_repeat_ms=2)(x, y)
    print(f"{label:12} {2 * M * N * K / timing.min / 1e9:6.1f} GFLOP/s, equal to NumPy")
