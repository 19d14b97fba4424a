"""CUDA C in the simulator of threads, with and without checks of all accesses."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dlc_core as dlc
from dlc_core import te
from dlc_core.backend.compiler import compiler_problem
from dlc_core.cli.main import main
from dlc_core.graph.node import param
from dlc_core.ir.dtype import dtype
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.script import parse
from dlc_core.testing import conformance_suite
from dlc_core.testing.cases import module_of
from dlc_core.testing.languages import (
    check_dots,
    check_math,
    check_missing_barrier,
    check_narrow_floats,
    check_network,
    check_shuffles,
    check_skinny_gemm,
    check_transposition,
    numbers,
)
from dlc_core.testing.networks import cifar, feed

pytestmark = pytest.mark.skipif(compiler_problem() is not None, reason=str(compiler_problem()))

TestSomeOps = conformance_suite("cuda_simulated", levels=("ops",), ops=("relu",), dtypes=("float16", "int8"))
TestAll = pytest.mark.slow(
    conformance_suite(
        "cuda_simulated", levels=("ops", "graphs", "device"), dtypes=("float32", "float16", "int8")
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


@pytest.mark.parametrize("b", ["int8", "uint8"])
@pytest.mark.parametrize("a", ["int8", "uint8"])
def test_int8_gemm_uses_dot_products(a: str, b: str) -> None:
    exe = check_dots("cuda_simulated -arch=sm_70 -check=true", a, b)
    assert f"dlc_dot_{a}_{b}(matmul" in exe.source("cu")


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
def test_skinny_gemm(dtype: str) -> None:
    check_skinny_gemm("cuda_simulated -check=true", dtype)


def test_shuffles_of_bools() -> None:
    """Exchanges of bools by threads whose values differ: all threads take part in the exchange."""
    x = param("x", tensor_type((2, 300), "bool"))
    exe = dlc.compile(module_of(std.reduce_any(x, axes=(1,)), [x]), "cuda_simulated -check=true")
    given = np.zeros((2, 300), bool)
    given[1, ::7] = True
    np.testing.assert_array_equal(exe(given), [False, True])


def test_a_missing_barrier_is_reported() -> None:
    check_missing_barrier("cuda_simulated -check=true")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_functions_of_floats(dtype: str) -> None:
    check_math("cuda_simulated", dtype)


def test_a_network() -> None:
    check_network("cuda_simulated -arch=sm_90")


def test_reports_count_units_instead_of_threads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Reports call units of the device `units`, and do not compare them with the roofline of the host."""
    x = param("x", tensor_type((4, 100)))
    path, target = str(tmp_path / "model.dlc"), "cuda_simulated -arch=sm_90 -units=7"
    dlc.compile(module_of(std.relu(x), [x]), target).save(path)
    assert main(["bench", path, "-n", "1", "--profile"]) == 0
    benched = capsys.readouterr().out
    assert main(["explain", path, "--measure"]) == 0
    explained = capsys.readouterr().out
    assert "units  median ms" in benched
    assert "7 units" in benched
    assert re.match(rf"target +{re.escape(target)}, 7 units\n", explained)
    assert re.search(r"machine \d+ GFLOP/s a unit, .* \(from the target's description\)", explained)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_narrow_floats_round_ties_to_even(dtype: str) -> None:
    check_narrow_floats("cuda_simulated", dtype)


@pytest.mark.parametrize("arch", ["sm_70", "sm_80"])
def test_asynchronous_copies_to_shared_memory(arch: str) -> None:
    """Architectures with asynchronous copies use them. The simulator copies when a thread waits, so a missing
    wait is detected.
    """
    x, y = param("x", tensor_type((64, 40))), param("y", tensor_type((40, 96)))
    module = module_of(std.matmul(x, y), [x, y])
    exe = dlc.compile(module, f"cuda_simulated -arch={arch} -check=true", cache=False)
    text = exe.source("cu")
    assert ("    dlc_copy_4(" in text) is (arch != "sm_70")
    assert ("dlc_wait_for_copies();\n" in text) is (arch != "sm_70")
    given = numbers(64, 40), numbers(40, 96, seed=1)
    np.testing.assert_array_equal(exe(*given), given[0] @ given[1])


@pytest.mark.parametrize(
    ("of", "option"),
    [("float16", ""), ("bfloat16", ""), ("int8", ""), ("uint8", ""), ("float32", " -tf32")],
)
def test_products_by_matrix_units(of: str, option: str) -> None:
    """Products with split tiles and fragments, checked for races."""
    x, y = param("x", tensor_type((70, 100), of)), param("y", tensor_type((100, 52), of))
    whole = of.endswith("int8")
    made = std.matmul(x, y, out_dtype="int32") if whole else std.matmul(x, y)
    exe = dlc.compile(module_of(made, [x, y]), f"cuda_simulated -check=true{option}", cache=False)
    assert exe.explain().kernels[0].rule == "gpu.matrix"
    given = [numbers(70, 100), numbers(100, 52, seed=1)]
    given = [(np.abs(each) if of == "uint8" else each).astype(x.type.dtype.numpy) for each in given]
    expected = given[0].astype(np.float64) @ given[1].astype(np.float64)
    np.testing.assert_allclose(exe(*given).astype(np.float64), expected, {"bfloat16": 1e-2}.get(of, 1e-3))


def product_of_floats8(a: str, b: str, m: int, n: int, k: int) -> list[te.Tensor]:
    """A product of 8-bit floats with float32 accumulators, which no graph op computes."""
    x, y, r = te.placeholder((m, k), a, "x"), te.placeholder((k, n), b, "y"), te.reduce_axis((0, k), "r")

    def term(i: Any, j: Any) -> Any:
        return te.sum(x[i, r].astype("float32") * y[r, j].astype("float32"), axis=r)

    return [x, y, te.compute((m, n), term, "z")]


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_products_of_floats_of_8_bits(arch: str) -> None:
    types = "float8_e4m3fn", "float8_e5m2"
    exe = dlc.build(product_of_floats8(*types, 40, 24, 70), f"cuda_simulated -arch={arch} -check=true")
    assert exe.explain().kernels[0].rule == ("gpu.contraction" if arch == "sm_80" else "gpu.matrix")
    assert ("dlc_mma_e4m3_e5m2(" in exe.source("cu")) is (arch == "sm_90")
    given = [
        numbers(*shape, seed=seed).astype(dtype(name).numpy)
        for seed, (shape, name) in enumerate(zip(((40, 70), (70, 24)), types, strict=True))
    ]
    np.testing.assert_array_equal(exe(*given), given[0].astype(np.float32) @ given[1].astype(np.float32))


@pytest.mark.parametrize(("precision", "near"), [("float16", 1e-3), ("bfloat16", 1e-2)])
def test_a_network_in_reduced_precision_by_matrix_units(precision: str, near: float) -> None:
    picture = feed(cifar())
    exe = dlc.compile(cifar(), "cuda_simulated", precision=precision)
    assert [kernel.rule for kernel in exe.explain().kernels].count("gpu.matrix") == 3
    np.testing.assert_allclose(exe(picture), dlc.compile(cifar(), "reference")(picture), near, near)


@pytest.mark.parametrize("layout", ["NXC", "NCX"])
def test_convolutions_by_matrix_units(layout: str) -> None:
    shape = (1, 9, 10, 16) if layout == "NXC" else (1, 16, 9, 10)
    x, w = param("x", tensor_type(shape, "float16")), param("w", tensor_type((24, 16, 3, 3), "float16"))
    made = std.relu(std.conv(x, w, padding=(1, 1, 1, 1), layout=layout))
    module = module_of(made, [x, w])
    exe = dlc.compile(module, "cuda_simulated -check=true", cache=False)
    assert "gpu.matrix" in [kernel.rule for kernel in exe.explain().kernels]
    # The copies fill elements outside of the image with zeros.
    assert "    dlc_copy_16_if(" in exe.source("cu")
    rng = np.random.default_rng(0)
    given = [rng.standard_normal(each).astype(np.float16) for each in (shape, (24, 16, 3, 3))]
    expected = dlc.compile(module, "reference")(*given)
    np.testing.assert_allclose(exe(*given).astype(np.float32), expected.astype(np.float32), 2e-2, 2e-2)


READ_BY_ALL = """
@T.prim_func
def main(a: T.Buffer((64,), "float32"), b: T.Buffer((64, 64), "float32")):
    for g in T.thread_binding(64, thread="block.x"):
        row = T.alloc_buffer((64,), "float32", scope="shared")
        for t in T.thread_binding(64, thread="thread.x"):
            row[t] = a[t]
            b[g, t] = row[{read}]
"""


@pytest.mark.parametrize(("read", "beside"), [("t // 2", True), ("t", False), ("63 - t", False)])
def test_copies_read_without_a_barrier_are_not_asynchronous(read: str, beside: bool) -> None:
    exe = dlc.build(parse(READ_BY_ALL.replace("{read}", read)), "cuda_simulated -check=true")
    assert ("    dlc_copy_4(" in exe.source("cu")) is beside
    row = numbers(64)
    expected = {"t": row, "t // 2": row.repeat(2)[:64], "63 - t": row[::-1]}[read]
    np.testing.assert_array_equal(exe(row), np.tile(expected, (64, 1)))
