"""OpenCL C in the simulator of threads, with and without checks of all accesses."""

from __future__ import annotations

import numpy as np
import pytest
from dlc_backend_opencl.simulated import c_literals

import dlc_core as dlc
from dlc_core.backend.compiler import compiler_problem
from dlc_core.graph.node import param
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.testing import conformance_suite
from dlc_core.testing.cases import module_of
from dlc_core.testing.languages import (
    check_dots,
    check_math,
    check_missing_barrier,
    check_narrow_floats,
    check_network,
    check_skinny_gemm,
    check_transposition,
    numbers,
)

pytestmark = pytest.mark.skipif(compiler_problem() is not None, reason=str(compiler_problem()))

TestAll = pytest.mark.slow(
    conformance_suite(
        "opencl_simulated", levels=("ops", "graphs", "device"), dtypes=("float32", "float16", "int8")
    )
)


@pytest.mark.parametrize("target", ["opencl_simulated", "opencl_simulated -check=true"])
def test_a_transposition_through_shared_memory(target: str) -> None:
    text = check_transposition(target).source("cl")
    assert "__local float" in text
    assert "vload4" in text
    assert "(float4)(" in text


@pytest.mark.parametrize("b", ["int8", "uint8"])
@pytest.mark.parametrize("a", ["int8", "uint8"])
def test_products_of_bytes_use_the_extension(a: str, b: str) -> None:
    target = "opencl_simulated -extensions=cl_khr_integer_dot_product -check=true"
    exe = check_dots(target, a, b)
    assert "dot(vload4(0, " in exe.source("cl")
    assert exe.artifact.metadata["extensions"] == ["cl_khr_integer_dot_product"]
    assert "dot(" not in check_dots("opencl_simulated", a, b).source("cl")


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
def test_skinny_gemm(dtype: str) -> None:
    check_skinny_gemm("opencl_simulated -check=true", dtype)


def test_a_missing_barrier_is_reported() -> None:
    check_missing_barrier("opencl_simulated -check=true")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_functions_of_floats(dtype: str) -> None:
    check_math("opencl_simulated", dtype)


def test_a_network() -> None:
    check_network("opencl_simulated")


@pytest.mark.parametrize("causal", [False, True])
def test_attention_in_one_launch(causal: bool) -> None:
    shapes = (1, 2, 9, 16), (1, 2, 37, 16), (1, 2, 37, 16)
    given = [param(name, tensor_type(shape, "float32")) for name, shape in zip("qkv", shapes, strict=True)]
    module = module_of(std.attention(*given, causal=causal, past=28), given)
    exe = dlc.compile(module, "opencl_simulated -check=true")
    assert [kernel.rule for kernel in exe.explain().kernels] == ["gpu.attention"]
    arrays = [numbers(*shape) for shape in shapes]
    np.testing.assert_allclose(exe(*arrays), dlc.compile(module, "reference")(*arrays), 1e-4, 1e-5)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_narrow_floats_round_ties_to_even(dtype: str) -> None:
    check_narrow_floats("opencl_simulated", dtype)


def test_vector_literals_use_braces() -> None:
    text = "vstore4((float4)(a, f(b, (c)), d, e), 0, p); x = (float)(y); z = (int2)(1, 2);"
    expected = "vstore4(((float4){a, f(b, (c)), d, e}), 0, p); x = (float)(y); z = ((int2){1, 2});"
    assert c_literals(text) == expected
