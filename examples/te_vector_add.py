"""Vector addition: an expression, its loop nest, and the nest after a split."""

import numpy as np

import dlc_core as dlc
from dlc_core import te
from dlc_core.schedule import Schedule

N = 1000

a = te.placeholder((N,), name="a")
b = te.placeholder((N,), name="b")
c = te.compute((N,), lambda i: a[i] + b[i], name="c")
func = te.create_prim_func([a, b], [c], name="vector_add")
print(func.script())

schedule = Schedule(func)
(i,) = schedule.get_loops(schedule.get_block("c"))
outer, inner = schedule.split(i, [None, 16])
print(f"after the split, 16 elements a step ({N} is no multiple of 16: the last step is guarded)\n")
print(schedule.show(), "\n")

# A separate tail needs no guard in the main loop, so its iterations can be vectors.
schedule = Schedule(func)
(i,) = schedule.get_loops(schedule.get_block("c"))
loops = schedule.split(i, [None, 16], tail="partition")
schedule.vectorize(loops[1])
print("the same with a tail of its own, and vectors\n")
print(schedule.show())

exe = dlc.build(schedule, num_threads=1)
rng = np.random.default_rng(0)
x, y = rng.standard_normal((2, N), np.float32)
np.testing.assert_array_equal(exe(x, y), x + y)
print("\nequal to NumPy")
