"""CUDA C without a device: by the executor of threads, with every access checked where asked for."""

from __future__ import annotations

import numpy as np
import pytest

import dlc_core as dlc
from dlc_core.backend.compiler import compiler_problem
from dlc_core.diag import RuntimeFailure
from dlc_core.passes import PassContext
from dlc_core.script import parse
from dlc_core.testing import conformance_suite
from dlc_core.testing.languages import (
    TILES,
    check_narrow_floats,
    check_shuffles,
    check_transposition,
    numbers,
)
from dlc_core.testing.networks import cifar

pytestmark = pytest.mark.skipif(compiler_problem() is not None, reason=str(compiler_problem()))

TestSomeOps = conformance_suite("cuda_simulated", tiers=("ops",), ops=("relu",), dtypes=("float16", "int8"))
TestAll = pytest.mark.slow(
    conformance_suite(
        "cuda_simulated", tiers=("ops", "graphs", "device"), dtypes=("float32", "float16", "int8")
    )
)


@pytest.mark.parametrize("target", ["cuda_simulated", "cuda_simulated -check=true"])
def test_a_transposition_through_shared_memory(target: str) -> None:
    text = check_transposition(target).source("cu")
    assert "__shared__ __align__(16) float" in text
    assert "*(const floatx4 *)" in text
    assert "make_floatx4(" in text


def test_threads_exchange_values() -> None:
    check_shuffles("cuda_simulated")


def test_a_missing_barrier_is_reported() -> None:
    with PassContext(disabled=("thread_sync",)):
        exe = dlc.build(parse(TILES), "cuda_simulated -check=true")
    with pytest.raises(RuntimeFailure, match=r"race: byte \d+ of shared_tile"):
        exe(numbers(64, 64))


def test_a_network() -> None:
    picture = np.random.default_rng(0).standard_normal((1, 3, 32, 32)).astype(np.float32)
    exe = dlc.compile(cifar(), "cuda_simulated -arch=sm_90")
    np.testing.assert_allclose(exe(picture), dlc.compile(cifar(), "reference")(picture), 1e-4, 1e-6)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_narrow_floats_are_rounded_to_even(dtype: str) -> None:
    check_narrow_floats("cuda_simulated", dtype)
