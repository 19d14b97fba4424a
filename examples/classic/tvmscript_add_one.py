"""TVMScript: `add_one` as a module of a graph function and a tensor program that it calls by `call_tir`."""

from __future__ import annotations

import numpy as np

import dlc_core as dlc
from dlc_core.script import G, T, module


@module
class AddOne:
    @G.function
    def main(x: G.Tensor(("n",), "float32")):
        with G.dataflow():
            y = G.call_tir(add_one, (x,), G.Tensor(("n",), "float32"))
            z = G.relu(y)
            G.output(z)
        return z

    @T.prim_func
    def add_one(A: T.Buffer((n,), "float32"), B: T.Buffer((n,), "float32"), n: T.int64):
        for i in range(n):
            with T.block("B"):
                vi = T.axis.spatial(n, i)
                B[vi] = A[vi] + 1.0


AddOne.show()
exe = dlc.compile(AddOne, target="llvm")
x = np.array([-3, -1, 0, 2], np.float32)
print(exe(x))
np.testing.assert_array_equal(exe(x), np.maximum(x + 1, 0))
assert "add_one_relu" in exe.source("tir"), "the two are one kernel"
