"""Golden files with the OpenCL C of representative kernels."""

from __future__ import annotations

from pathlib import Path

import pytest

import dlc_core as dlc
from dlc_core.script import parse
from dlc_core.testing import Golden
from dlc_core.testing.cases import module_of
from dlc_core.testing.languages import LANGUAGE, SHUFFLES


@pytest.mark.parametrize("kernel", LANGUAGE)
def test_text_is_the_golden_one(kernel: str, bless: bool) -> None:
    text = dlc.compile(module_of(*LANGUAGE[kernel]()), "opencl", cache=False).source("cl")
    Golden(Path(__file__).parent / "golden", bless).check(f"{kernel}.cl", text)


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


def test_barriers_fence_the_memory_that_threads_share() -> None:
    text = dlc.build(parse(GLOBAL), "opencl").source("cl")
    assert "barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);" in text
