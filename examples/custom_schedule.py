"""A custom schedule: the primitives of `Schedule`, and the resulting program. Each primitive checks that the
program keeps its meaning; otherwise it is refused with the reason.
"""

import numpy as np

import dlc_core as dlc
from dlc_core import te
from dlc_core.schedule import Schedule

M, N, K = 64, 96, 128

a = te.placeholder((M, K), name="a")
b = te.placeholder((K, N), name="b")
k = te.reduce_axis(K, "k")
product = te.compute((M, N), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="product")
func = te.create_prim_func([a, b], [product], name="product")

schedule = Schedule(func)
block = schedule.get_block("product")
i, j, r = schedule.get_loops(block)
i_outer, i_inner = schedule.split(i, [None, 4])
j_outer, j_inner = schedule.split(j, [None, 8])
schedule.reorder(i_outer, j_outer, r, i_inner, j_inner)
cached = schedule.cache_write(block, 0, "local")
schedule.reverse_compute_at(cached, j_outer)
schedule.decompose_reduction(block, r)
schedule.compact_buffers()
schedule.vectorize(j_inner)
schedule.unroll(i_inner)
schedule.parallel(i_outer)
print(schedule.show())

try:
    schedule.vectorize(r)
except dlc.DlcError as error:
    print(f"\nrefused: {error.what}")

exe = dlc.build(schedule, num_threads=2)
rng = np.random.default_rng(0)
x, w = (rng.standard_normal(shape).astype(np.float32) for shape in ((M, K), (K, N)))
np.testing.assert_allclose(exe(x, w), x @ w, rtol=1e-4, atol=1e-4)
