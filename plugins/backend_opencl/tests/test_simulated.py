"""OpenCL C without a driver: by the executor of threads, with every access checked where asked for."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from dlc_backend_opencl.simulated import c_literals

import dlc_core as dlc
from dlc_core import te
from dlc_core.backend.compiler import compiler_problem
from dlc_core.diag import RuntimeFailure
from dlc_core.passes import PassContext
from dlc_core.script import parse
from dlc_core.testing import conformance_suite
from dlc_core.testing.networks import cifar

pytestmark = pytest.mark.skipif(compiler_problem() is not None, reason=str(compiler_problem()))

TestAll = pytest.mark.slow(
    conformance_suite(
        "opencl_simulated", tiers=("ops", "graphs", "device"), dtypes=("float32", "float16", "int8")
    )
)

TILES = """
@T.prim_func
def main(a: T.Buffer((64, 64), "float32"), b: T.Buffer((64, 64), "float32")):
    for g in T.thread_binding(16, thread="block.x"):
        tile = T.alloc_buffer((16, 16), "float32", scope="shared")
        for y in T.thread_binding(16, thread="thread.y"):
            for x in T.thread_binding(4, thread="thread.x"):
                for v in T.vectorized(4):
                    tile[y, x * 4 + v] = a[g // 4 * 16 + y, g % 4 * 16 + x * 4 + v]
                for v in T.vectorized(4):
                    b[g % 4 * 16 + y, g // 4 * 16 + x * 4 + v] = tile[x * 4 + v, y]
"""


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(-3, 4, shape).astype(np.float32)


@pytest.mark.parametrize("target", ["opencl_simulated", "opencl_simulated -check=true"])
def test_a_transposition_through_shared_memory(target: str) -> None:
    exe = dlc.build(parse(TILES), target)
    np.testing.assert_array_equal(exe(numbers(64, 64)), numbers(64, 64).T)
    text = exe.source("cl")
    assert "__local float" in text
    assert "vload4" in text
    assert "(float4)(" in text


def test_a_missing_barrier_is_reported() -> None:
    with PassContext(disabled=("thread_sync",)):
        exe = dlc.build(parse(TILES), "opencl_simulated -check=true")
    with pytest.raises(RuntimeFailure, match=r"race: byte \d+ of shared_tile"):
        exe(numbers(64, 64))


def test_a_network() -> None:
    picture = np.random.default_rng(0).standard_normal((1, 3, 32, 32)).astype(np.float32)
    exe = dlc.compile(cifar(), "opencl_simulated")
    np.testing.assert_allclose(exe(picture), dlc.compile(cifar(), "reference")(picture), 1e-4, 1e-6)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_narrow_floats_are_rounded_to_even(dtype: str) -> None:
    known = np.dtype(getattr(ml_dtypes, dtype, dtype))
    a = te.placeholder((1 << 16,), dtype, name="a")
    exe = dlc.build([a, te.compute((1 << 16,), lambda i: a[i] * a[i], "b")], "opencl_simulated")
    x = np.arange(1 << 16, dtype=np.uint16).view(known)
    with np.errstate(all="ignore"):
        want = (x.astype(np.float32) ** 2).astype(known)
    have = exe(x)
    same = (have.view(np.uint16) == want.view(np.uint16)) | (np.isnan(have) & np.isnan(want))
    assert same.all(), x[~same][:5]


def test_vectors_of_values_are_written_in_braces() -> None:
    text = "vstore4((float4)(a, f(b, (c)), d, e), 0, p); x = (float)(y); z = (int2)(1, 2);"
    want = "vstore4(((float4){a, f(b, (c)), d, e}), 0, p); x = (float)(y); z = ((int2){1, 2});"
    assert c_literals(text) == want
