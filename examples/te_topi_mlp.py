"""A perceptron of library functions, with a schedule of its own for the first layer.

`dlc_core.topi` has a function on te tensors for every op that has a lowering. The stages of their results are
scheduled like those of other tensors.
"""

from __future__ import annotations

import numpy as np

import dlc_core as dlc
from dlc_core import te, topi

ROWS, INPUTS, HIDDEN, CLASSES = 32, 784, 256, 10

x = te.placeholder((ROWS, INPUTS), name="x")
w1, b1 = te.placeholder((HIDDEN, INPUTS), name="w1"), te.placeholder((HIDDEN,), name="b1")
w2, b2 = te.placeholder((CLASSES, HIDDEN), name="w2"), te.placeholder((CLASSES,), name="b2")

product = topi.nn.matmul(x, w1, transpose_b=True)
biased = topi.nn.bias_add(product, b1)
hidden = topi.nn.relu(biased)
scores = topi.nn.softmax(topi.nn.dense(hidden, w2, b2))
arguments = [x, w1, b1, w2, b2, scores]

# The first product and its epilogue, in tiles of four rows and sixteen columns.
s = dlc.create_schedule(scores)
s[biased].compute_inline()
rows, columns, row, column = s[hidden].tile(*hidden.op.axis, 4, 16)
s[hidden].parallel(rows)
s[hidden].vectorize(column)
s[product].compute_at(s[hidden], columns)
i, j = s[product].op.axis
outer, inner = s[product].split(s[product].op.reduce_axis[0], factor=8)
s[product].reorder(outer, inner, i, j)
s[product].unroll(i)
s[product].vectorize(j)
print(s.show())

rng = np.random.default_rng(0)
arrays = [rng.standard_normal([int(str(d)) for d in t.shape], np.float32) / 8 for t in arguments[:-1]]
data, weights1, bias1, weights2, bias2 = arrays
logits = np.maximum(data @ weights1.T + bias1, 0) @ weights2.T + bias2
expected = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)

for name, exe in (("this schedule", dlc.build(s, arguments)), ("the rules' choice", dlc.build(arguments))):
    np.testing.assert_allclose(exe(*arrays), expected, rtol=1e-4, atol=1e-5)
    timing = exe.time_evaluator(repeat=5, min_repeat_ms=2)(*arrays)
    print(f"{name:18} {timing.min * 1e6:7.1f} us, equal to NumPy")
