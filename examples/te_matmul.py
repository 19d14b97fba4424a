"""A matrix product as tensor expressions, compiled by `dlc.build`. The rules of the target choose the
schedule from the loops and the reads. A product with bias and ReLU becomes one kernel.
"""

import numpy as np

import dlc_core as dlc
from dlc_core import te
from dlc_core.ir.expr import maximum

M, N, K = 128, 256, 512

a = te.placeholder((M, K), name="a")
b = te.placeholder((K, N), name="b")
bias = te.placeholder((N,), name="bias")
k = te.reduce_axis(K, "k")
product = te.compute((M, N), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="product")
out = te.compute((M, N), lambda i, j: maximum(product[i, j] + bias[j], 0.0), name="out")

func = te.create_prim_func([a, b, bias], [out], name="dense_relu")
exe = dlc.build(func, num_threads=1)

rng = np.random.default_rng(0)
x, w, c = (rng.standard_normal(shape).astype(np.float32) for shape in ((M, K), (K, N), (N,)))
y = exe(x, w, c)
np.testing.assert_allclose(y, np.maximum(x @ w + c, 0), rtol=1e-4, atol=1e-4)
report = exe.profile([x, w, c], runs=100)
print(report)
