"""Softmax of rows, whose sums run in vector lanes by `rfactor`. The compiler does not reorder a sum of floats
by itself, so a single accumulator waits for each addition. `rfactor` requests it: partial sums, one for each
lane of a vector, and a final sum over those.
"""

import numpy as np

import dlc_core as dlc
from dlc_core import te
from dlc_core.schedule import Schedule

ROWS, COLUMNS, LANES = 64, 512, 16

x = te.placeholder((ROWS, COLUMNS), name="x")
k = te.reduce_axis(COLUMNS, "k")
top = te.compute((ROWS,), lambda i: te.max(x[i, k], axis=k), name="top")
power = te.compute((ROWS, COLUMNS), lambda i, j: te.exp(x[i, j] - top[i]), name="power")
n = te.reduce_axis(COLUMNS, "n")
total = te.compute((ROWS,), lambda i: te.sum(power[i, n], axis=n), name="total")
y = te.compute((ROWS, COLUMNS), lambda i, j: power[i, j] / total[i], name="y")
func = te.create_prim_func([x], [y], name="softmax")
plain = Schedule(func)
print(plain.show())

s = Schedule(func)
row, columns = s.get_loops(s.get_block("y"))
# All stages of a row run while it is in L1: the last one first, since each needs the next.
for name in ("total", "power", "top"):
    s.compute_at(s.get_block(name), row)
for name in ("top", "total"):
    block = s.get_block(name)
    _, lane = s.split(s.get_loops(block)[-1], [None, LANES])
    partial = s.rfactor(lane, 0)
    *_, steps, own = s.get_loops(partial)
    init = s.decompose_reduction(partial, steps)
    s.vectorize(own)
    s.vectorize(s.get_loops(init)[-1])
    s.unroll(s.get_loops(block)[-1])
for name in ("power", "y"):
    _, lane = s.split(s.get_loops(s.get_block(name))[-1], [None, LANES])
    s.vectorize(lane)
s.parallel(row)
s.compact_buffers()
print("\nwith partial results\n")
print(s.show(), "\n")

values = np.random.default_rng(0).standard_normal((ROWS, COLUMNS), np.float32)
powers = np.exp(values - values.max(axis=1, keepdims=True))
expected = powers / powers.sum(axis=1, keepdims=True)
for label, schedule in (("as written", plain), ("with rfactor", s)):
    exe = dlc.build(schedule, num_threads=1)
    np.testing.assert_allclose(exe(values), expected, rtol=1e-5)
    timing = exe.time_evaluator(repeat=5, min_repeat_ms=2)(values)
    print(f"{label:12} {timing.min * 1e6:8.1f} us, equal to NumPy")
