"""A 4×4 sum of int64 with loops of every kind: parallel rows, unrolled pairs, vectors of two."""

import numpy as np

import dlc_core as dlc
from dlc_core import te
from dlc_core.schedule import Schedule

a = te.placeholder((4, 4), "int64", name="a")
b = te.placeholder((4, 4), "int64", name="b")
c = te.compute((4, 4), lambda i, j: a[i, j] + b[i, j], name="c")

schedule = Schedule(te.create_prim_func([a, b], [c], name="add"))
i, j = schedule.get_loops(schedule.get_block("c"))
i0, i1 = schedule.split(i, [2, 2])
j0, j1 = schedule.split(j, [2, 2])
schedule.parallel(i0)
schedule.unroll(i1)
schedule.unroll(j0)
schedule.vectorize(j1)
print(schedule.func.script())
print("the same schedule again, as its trace:\n")
print(schedule.trace)

exe = dlc.build(schedule, num_threads=2)
x = np.arange(16).reshape(4, 4)
y = 2**40 * x[::-1].copy()
np.testing.assert_array_equal(exe(x, y), x + y)
print("\nequal to NumPy:")
print(exe(x, y))
