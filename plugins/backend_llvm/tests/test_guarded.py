"""The conformance kit in guard mode: no kernel of this backend touches what is not its own."""

from __future__ import annotations

import numpy as np
import pytest

import dlc_core as dlc
from dlc_core.testing import conformance_suite
from dlc_core.testing.guarded import call_guarded

EDGES = ("conv", "max_pool", "slice", "pad")
"""Ops whose kernels reach before and behind what they compute on."""
OPS = (*EDGES, "matmul", "softmax", "concat", "gather", "transpose")
DTYPES = ("float32", "int8")
MORE = ("device", "ops", "graphs", "models")

TestEnd = conformance_suite("llvm", tiers=("ops",), ops=OPS, dtypes=DTYPES, guard="end")
TestBegin = conformance_suite("llvm", tiers=("ops",), ops=EDGES, dtypes=DTYPES, guard="begin")
TestAllEnd = pytest.mark.slow(conformance_suite("llvm", tiers=MORE, guard="end"))
TestAllBegin = pytest.mark.slow(conformance_suite("llvm", tiers=MORE, guard="begin"))

PICKED = """
@T.prim_func
def picked(
    A: T.Buffer((40,), "float32"), I: T.Buffer((n,), "int64"), B: T.Buffer((16,), "float32"), n: T.int64
):
    B[T.ramp(0, 1, 16)] = T.if_then_else(
        T.ramp(0, 1, 16) < T.broadcast(n, 16),
        A[T.max(T.min(I[T.ramp(0, 1, 16)], T.broadcast(39, 16)), T.broadcast(0, 16))],
        T.broadcast(T.float32(0), 16))
"""


@pytest.mark.parametrize("count", [0, 1, 5, 16])
def test_indices_of_lanes_that_are_off_are_not_read(count):
    exe = dlc.build(dlc.script.parse(PICKED), "llvm", config={"guard": "end"})
    a, i = np.arange(40, dtype=np.float32), (np.arange(count, dtype=np.int64) * 7) % 40
    (found,) = call_guarded(exe, a, i)
    np.testing.assert_array_equal(found[:count], a[i])
    np.testing.assert_array_equal(found[count:], 0)
