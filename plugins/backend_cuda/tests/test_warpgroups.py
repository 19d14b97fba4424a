"""Products of warpgroups (four warps) with operands in shared memory: results in the simulator, and
compilation by NVRTC.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from dlc_backend_cuda import matrices, nvrtc, warpgroups
from dlc_backend_cuda.codegen import with_words

import dlc_core as dlc
from dlc_core import te
from dlc_core.backend.compiler import compiler_problem
from dlc_core.diag import RuntimeFailure
from dlc_core.driver import find_target
from dlc_core.graph.node import Node, param
from dlc_core.ir.dtype import dtype
from dlc_core.ir.expr import Var
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.testing.cases import module_of
from dlc_core.testing.languages import numbers

ARCH = "-arch=sm_90a -units=1"
"""A machine with few multiprocessors, so that large tiles are chosen for small products."""
M = Var("m")
executed = pytest.mark.skipif(compiler_problem() is not None, reason=str(compiler_problem()))


def product(of: str, m: Any, n: int, k: int, majors: str = "nt") -> tuple[Node, list[Node]]:
    """A product with an epilogue. `majors` has a letter for each operand: n if it is contiguous along K."""
    x = param("x", tensor_type((m, k) if majors[0] == "n" else (k, m), of))
    y = param("y", tensor_type((n, k) if majors[1] == "n" else (k, n), of))
    left = x if majors[0] == "n" else std.transpose(x, axes=(1, 0))
    right = std.transpose(y, axes=(1, 0)) if majors[1] == "n" else y
    if of.endswith("int8"):
        return std.matmul(left, right, out_dtype="int32"), [x, y]
    return std.relu(std.matmul(left, right)), [x, y]


def compiled(of: str, *sizes: Any, majors: str = "nt", target: str = "cuda_simulated") -> dlc.Executable:
    exe = dlc.compile(module_of(*product(of, *sizes, majors)), f"{target} {ARCH}", cache=False)
    assert [kernel.rule for kernel in exe.explain().kernels] == ["gpu.matrix"]
    assert re.search(
        rf"dlc_wgmma_\w+_n\d+_{majors if of in ('float16', 'bfloat16') else 'nn'}\(matmul", exe.source("cu")
    )
    return exe


def check(exe: dlc.Executable, of: str, m: int, n: int, k: int, majors: str = "nt") -> None:
    x, y = numbers(m, k), numbers(k, n, seed=1)
    if of == "uint8":
        x, y = abs(x), abs(y)
    x, y = (each.astype(dtype(of).numpy) for each in (x, y))
    expected = x.astype(np.float64) @ y.astype(np.float64)
    expected = expected if of.endswith("int8") else np.maximum(expected, 0)
    given = (
        x if majors[0] == "n" else np.ascontiguousarray(x.T),
        y if majors[1] == "t" else np.ascontiguousarray(y.T),
    )
    near = {"bfloat16": 1e-2}.get(of, 1e-3)
    np.testing.assert_allclose(exe(*given).astype(np.float64), expected, near, near)


@executed
@pytest.mark.parametrize("majors", ["nt", "nn", "tt", "tn"])
def test_operands_may_be_transposed(majors: str) -> None:
    check(compiled("float16", 128, 128, 192, majors=majors), "float16", 128, 128, 192, majors)


@executed
def test_sizes_that_are_not_multiples_of_the_tile() -> None:
    """Partial tiles are padded with zeros. All accesses are checked."""
    check(compiled("bfloat16", 100, 110, 190, target="cuda_simulated -check=true"), "bfloat16", 100, 110, 190)


@executed
@pytest.mark.parametrize("of", ["int8", pytest.param("uint8", marks=pytest.mark.slow)])
def test_bytes(of: str) -> None:
    """Bytes must be contiguous along K. Other layouts use units of one warp."""
    check(compiled(of, 128, 128, 256, majors="nn"), of, 128, 128, 256, "nn")
    other = dlc.compile(module_of(*product(of, 128, 128, 256)), f"cuda_simulated {ARCH}", cache=False).source(
        "cu"
    )
    assert "dlc_wgmma" not in other


@executed
@pytest.mark.slow
def test_floats_of_8_bits() -> None:
    x, y = te.placeholder((128, 256), "float8_e4m3fn", "x"), te.placeholder((128, 256), "float8_e5m2", "y")
    r = te.reduce_axis((0, 256), "r")
    z = te.compute(
        (128, 128), lambda i, j: te.sum(x[i, r].astype("float32") * y[j, r].astype("float32"), axis=r), "z"
    )
    exe = dlc.build([x, y, z], f"cuda_simulated {ARCH}")
    assert "dlc_wgmma_e4m3_e5m2_n" in exe.source("cu")
    types = dtype("float8_e4m3fn").numpy, dtype("float8_e5m2").numpy
    given = [numbers(128, 256, seed=seed).astype(of) for seed, of in enumerate(types)]
    np.testing.assert_array_equal(exe(*given), given[0].astype(np.float32) @ given[1].astype(np.float32).T)


@executed
def test_symbolic_rows() -> None:
    exe = compiled("float16", M, 128, 128)
    for rows in (1, 100, 129):
        check(exe, "float16", rows, 128, 128)


@executed
def test_batches_with_an_epilogue() -> None:
    x, y = param("x", tensor_type((2, 128, 128), "float16")), param("y", tensor_type((2, 128, 64), "float16"))
    b = param("b", tensor_type((64,), "float16"))
    module = module_of(std.add(std.matmul(x, y), b), [x, y, b])
    exe = dlc.compile(module, f"cuda_simulated {ARCH}", cache=False)
    assert "dlc_wgmma_f16_f16_n" in exe.source("cu")
    shapes = (2, 128, 128), (2, 128, 64), (64,)
    given = [numbers(*shape, seed=i).astype(np.float16) for i, shape in enumerate(shapes)]
    expected = given[0].astype(np.float32) @ given[1].astype(np.float32) + given[2]
    np.testing.assert_allclose(exe(*given).astype(np.float32), expected, 1e-3)


@executed
def test_convolutions() -> None:
    x, w = (
        param("x", tensor_type((1, 13, 12, 64), "float16")),
        param("w", tensor_type((64, 64, 3, 3), "float16")),
    )
    module = module_of(std.relu(std.conv(x, w, padding=(1, 1, 1, 1), layout="NXC")), [x, w])
    exe = dlc.compile(module, f"cuda_simulated {ARCH}", cache=False)
    assert "dlc_wgmma_f16_f16_n" in exe.source("cu")
    rng = np.random.default_rng(0)
    given = [rng.standard_normal(each).astype(np.float16) for each in ((1, 13, 12, 64), (64, 64, 3, 3))]
    expected = dlc.compile(module, "reference")(*given)
    np.testing.assert_allclose(exe(*given).astype(np.float32), expected.astype(np.float32), 2e-2, 4e-2)


@executed
def test_missing_waits_change_the_results(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warpgroups, "AROUND", replace(warpgroups.AROUND, wait=""))
    exe = compiled("float16", 128, 128, 128)
    with pytest.raises(AssertionError, match="Mismatched elements"):
        check(exe, "float16", 128, 128, 128)


@executed
@pytest.mark.parametrize(
    ("word", "problem"),
    [("fence", "without a fence in between"), ("begin", "a product of matrices outside of a batch")],
)
def test_missing_waits_are_reported(word: str, problem: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warpgroups, "AROUND", replace(warpgroups.AROUND, **{word: ""}))
    # Rows of 264 bytes cannot be tensor copies, so the threads copy them.
    exe = compiled("float16", 128, 132, 128, target="cuda_simulated -check=true")
    with pytest.raises(RuntimeFailure, match=problem):
        check(exe, "float16", 128, 132, 128)


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("of", ["float16", "bfloat16", "int8"])
def test_nvrtc_compiles_warpgroup_products(of: str) -> None:
    """There are no spills, and groups use dynamic shared memory."""
    majors = "nn" if of == "int8" else "nt"
    exe = dlc.compile(
        module_of(*product(of, 1024, 1024, 512, majors)), "cuda -arch=sm_90a -units=16", cache=False
    )
    (facts,) = exe.explain().compiled.values()
    assert (facts["spill bytes"], facts["stack bytes"]) == (0, 0)
    assert facts["shared bytes"] > 48 << 10
    kind = {"float16": "k16.f32.f16.f16", "bfloat16": "k16.f32.bf16.bf16", "int8": "k32.s32.s8.s8"}[of]
    assert re.search(rf"wgmma\.mma_async\.sync\.aligned\.m64n\d+{kind} ", exe.source("ptx"))


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("columns", [64, *(pytest.param(n, marks=pytest.mark.slow) for n in (128, 192, 256))])
def test_every_matrix_product_is_one_instruction(columns: int) -> None:
    known = find_target("cuda -arch=sm_90a").describe().matrix_units
    units = [unit for unit in known if unit.in_place and unit.n == columns]
    words = warpgroups.words_of(units)
    calls = []
    for name in (word for word in words if "wgmma" in word):
        kind = "float" if re.search("f16|e[45]m", name) else "int32_t"
        sums = f"{kind} sums[128];\n    for (int i = 0; i < 128; ++i) sums[i] = at[i];"
        calls.append(
            f"__global__ void run_{name}(uint32_t *at)\n{{\n    {sums}\n    {name}(sums, at, 64, at, 64);"
        )
        calls.append("    for (int i = 0; i < 128; ++i) at[i] = sums[i];\n}")
    text = with_words("\n".join(calls), matrices.matrix_words(units))
    assert nvrtc.compile_kernels(text, "sm_90a").ptx.count(b"wgmma.mma_async") == len(calls) // 2
