"""OpenCL C of representative kernels: kept as golden files, the same bytes each time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import dlc_core as dlc
from dlc_core.graph.node import Node, constant, param
from dlc_core.ir.expr import Var
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.script import parse
from dlc_core.testing import Golden
from dlc_core.testing.cases import module_of

Built = tuple[Node, list[Node]]


def chain() -> Built:
    x, y = param("x", tensor_type((32, 8))), param("y", tensor_type((8,)))
    return std.tanh(std.add(x, y)), [x, y]


def symbolic() -> Built:
    x = param("x", tensor_type((Var("n"),)))
    return std.mul(x, x), [x]


def halves() -> Built:
    x, y = (param(name, tensor_type((64,), "float16")) for name in "xy")
    return std.add(x, y), [x, y]


def doubles() -> Built:
    x = param("x", tensor_type((64,), "float64"))
    return std.exp(x), [x]


def bytes_and_bools() -> Built:
    x, y = param("x", tensor_type((19,), "int8")), param("y", tensor_type((19,), "bool"))
    return std.logical_and(std.less(x, constant(np.int8(3))), y), [x, y]


def large() -> Built:
    x = param("x", tensor_type((1 << 16, 1 << 15), "uint8"))
    return std.bitwise_not(x), [x]


@pytest.mark.parametrize("kernel", [chain, symbolic, halves, doubles, bytes_and_bools, large])
def test_text(kernel: Callable[[], Built], bless: bool) -> None:
    result, params = kernel()
    text = dlc.compile(module_of(result, params), "opencl", cache=False).source("cl")
    Golden(Path(__file__).parent / "golden", bless).check(f"{kernel.__name__}.cl", text)


SHUFFLES = """
@T.prim_func
def main(A: T.Buffer((4, 32), "float32"), B: T.Buffer((4, 32), "float32")):
    for g in T.thread_binding(4, thread="block.x"):
        for t in T.thread_binding(32, thread="thread.x"):
            B[g, t] = (T.subgroup_shuffle_down(A[g, t], 3, 8) + T.subgroup_shuffle_xor(A[g, t], 5, 16)
                       + T.subgroup_shuffle(A[g, t], 2, 32))
"""


def test_subgroups(bless: bool) -> None:
    target = "opencl -extensions=cl_khr_subgroup_shuffle -subgroup=32"
    exe = dlc.build(parse(SHUFFLES), target)
    Golden(Path(__file__).parent / "golden", bless).check("shuffles.cl", exe.source("cl"))
    assert exe.artifact.metadata["extensions"] == ["cl_khr_subgroup_shuffle"]


GLOBAL = """
@T.prim_func
def main(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32")):
    for t in T.thread_binding(8, thread="thread.x"):
        B[t] = A[t]
        T.evaluate(T.barrier())
        C[t] = B[7 - t]
"""


def test_fences_are_for_the_memory_that_threads_meet_in() -> None:
    text = dlc.build(parse(GLOBAL), "opencl").source("cl")
    assert "barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);" in text
