"""A recurrent cell as a scan: h[t] = tanh(W h[t-1] + x[t]).  Schedules keep the order of its steps.

Each step's product runs over vectors of the new state; making the steps themselves parallel is refused.
"""

import numpy as np

import dlc_core as dlc
from dlc_core import te
from dlc_core.diag import ScheduleError

STATE = 64
steps = te.var("steps")
x = te.placeholder((steps, STATE), name="x")
w = te.placeholder((STATE, STATE), name="W")  # transposed: W[j, i] leads from state j to state i
start = te.placeholder((1, STATE), name="start")

state = te.placeholder((steps, STATE), name="state")
k = te.reduce_axis(STATE, "k")
product = te.compute((steps, STATE), lambda t, i: te.sum(w[k, i] * state[t - 1, k], axis=k), name="product")
step = te.compute((steps, STATE), lambda t, i: te.tanh(product[t, i] + x[t, i]), name="step")
hidden = te.scan(start, step, state, inputs=[x, w], name="hidden")

s = dlc.create_schedule(hidden)
time, i = s[product].op.axis
(k,) = s[product].op.reduce_axis
s[product].reorder(k, i)
s[product].vectorize(s[product].split(i, 16)[1])
s[step].vectorize(s[step].split(step.op.axis[1], 16)[1])
print(s.show(), "\n")
try:
    s[product].parallel(time)
except ScheduleError as error:
    print(error, "\n")

exe = dlc.build(s, [x, w, start, hidden])
for count in (1, 10, 100):
    rng = np.random.default_rng(count)
    inputs = rng.standard_normal((count, STATE), np.float32)
    weights = rng.standard_normal((STATE, STATE), np.float32) / STATE**0.5
    first = rng.standard_normal((1, STATE), np.float32)
    expected = [first[0]]
    for row in inputs[1:]:
        expected.append(np.tanh(expected[-1] @ weights + row))
    np.testing.assert_allclose(exe(inputs, weights, first), np.stack(expected), rtol=1e-3, atol=1e-4)
    print(f"{count:3} steps: equal to NumPy")
