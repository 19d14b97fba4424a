"""TVMScript: a perceptron of graph ops, tensor programs, a te function and a helper function."""

from __future__ import annotations

import numpy as np

import dlc_core as dlc
from dlc_core import te
from dlc_core.script import G, T, module


def scaled(x):
    """A function over te tensors, called by `call_te`."""
    return te.compute(x.shape, lambda *i: x[i] * 0.5, "scaled")


@module
class Mlp:
    @G.function
    def main(
        x: G.Tensor(("n", 784), "float32"),
        w0: G.Tensor((784, 128), "float32"),
        w1: G.Tensor((128, 10), "float32"),
    ):
        with G.dataflow():
            hidden = layer(x, w0)
            half = G.call_te(scaled, hidden)
            logits = G.call_tir(dense, (half, w1), G.Tensor(("n", 10), "float32"))
            y = G.softmax(logits, axis=1)
            G.output(y)
        return y

    @G.function
    def layer(x: G.Tensor(("n", "k"), "float32"), w: G.Tensor(("k", "m"), "float32")) -> G.Tensor(
        ("n", "m"), "float32"
    ):
        y = G.matmul(x, w)
        return G.relu(y)

    @T.prim_func
    def dense(X: T.Buffer((n, 128), "float32"), W: T.Buffer((128, 10), "float32"),
              Y: T.Buffer((n, 10), "float32"), n: T.int64):  # fmt: skip
        for i, j, k in T.grid(n, 10, 128):
            with T.block("Y"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    Y[vi, vj] = 0.0
                Y[vi, vj] += X[vi, vk] * W[vk, vj]


rng = np.random.default_rng(0)
x, w0, w1 = (rng.standard_normal(s, np.float32) for s in ((3, 784), (784, 128), (128, 10)))
logits = np.maximum(x @ w0, 0) * 0.5 @ w1
expected = np.exp(logits - logits.max(1, keepdims=True))
expected /= expected.sum(1, keepdims=True)
for target in ("reference", "llvm", "c"):
    np.testing.assert_allclose(dlc.compile(Mlp, target=target)(x, w0, w1), expected, rtol=1e-3, atol=1e-5)
    print(f"{target:10} equals NumPy")
print(dlc.compile(Mlp, target="llvm").profile([x, w0, w1]))
