"""Software pipelines with several tiles in flight, in the simulator: results for sizes that are not multiples
of the tile, symbolic, or shorter than the pipeline; and detection of missing waits.
"""

from __future__ import annotations

import ctypes
import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from dlc_backend_cuda import polyfills, tma, warpgroups

import dlc_core as dlc
from dlc_core.backend import read_launches
from dlc_core.backend.compiler import compiler_problem
from dlc_core.backend.launches import Tensor
from dlc_core.diag import RuntimeFailure
from dlc_core.graph.node import param
from dlc_core.ir.expr import Var
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.testing.cases import module_of
from dlc_core.testing.languages import numbers

executed = pytest.mark.skipif(compiler_problem() is not None, reason=str(compiler_problem()))
M, K = Var("m"), Var("k")
ARCHS = ("sm_80", "sm_90a")


def compiled(arch: str, m: Any, n: int, k: Any, *, batches: int = 0, checked: bool = True) -> dlc.Executable:
    outer = (batches,) * (batches > 0)
    x, y = (
        param(name, tensor_type((*outer, *dims), "float16")) for name, dims in (("x", (m, k)), ("y", (k, n)))
    )
    target = f"cuda_simulated -arch={arch} -units=1{' -check=true' * checked}"
    exe = dlc.compile(module_of(std.relu(std.matmul(x, y)), [x, y]), target, cache=False)
    assert [kernel.rule for kernel in exe.explain().kernels] == ["gpu.matrix"]
    return exe


def check(exe: dlc.Executable, m: int, n: int, k: int, batches: int = 0) -> None:
    outer = (batches,) * (batches > 0)
    x, y = numbers(*outer, m, k).astype(np.float16), numbers(*outer, k, n, seed=1).astype(np.float16)
    expected = np.maximum(x.astype(np.float64) @ y.astype(np.float64), 0)
    np.testing.assert_allclose(exe(x, y).astype(np.float64), expected, 1e-3, 1e-3)


def found(checked: bool) -> Any:
    """The errors of a kernel without waits: a race in a checked program, else wrong results."""
    failure, match = (RuntimeFailure, "race") if checked else (AssertionError, "Mismatch")
    return pytest.raises(failure, match=match)


@executed
@pytest.mark.parametrize("arch", ARCHS)
def test_sizes_that_are_not_multiples_of_the_tile(arch: str) -> None:
    exe = compiled(arch, 70, 72, 330)
    assert "    dlc_wait_for_copies_but_1();\n" in exe.source("cu")
    assert exe.source("cu").count("    dlc_commit_copies();\n") >= 3
    check(exe, 70, 72, 330)


@executed
@pytest.mark.parametrize("k", [40, 100, 130, 200])
@pytest.mark.parametrize("arch", ARCHS)
def test_steps_fewer_than_the_stages(arch: str, k: int) -> None:
    check(compiled(arch, 64, 64, k), 64, 64, k)


@executed
@pytest.mark.parametrize("arch", ARCHS)
def test_symbolic_rows(arch: str) -> None:
    exe = compiled(arch, M, 64, 330, checked=False)
    for rows in (1, 65):
        check(exe, rows, 64, 330)


@executed
@pytest.mark.parametrize("arch", ARCHS)
def test_symbolic_numbers_of_steps(arch: str) -> None:
    exe = compiled(arch, 64, 64, K)
    for steps in (1, 64, 100, 250, 400):
        check(exe, 64, 64, steps)


@executed
@pytest.mark.parametrize("arch", ARCHS)
def test_batches(arch: str) -> None:
    check(compiled(arch, 64, 64, 320, batches=2, checked=False), 64, 64, 320, 2)


@executed
@pytest.mark.parametrize("arch", ARCHS)
def test_convolutions(arch: str) -> None:
    shapes = (1, 7, 9, 64), (64, 64, 3, 3)
    x, w = (param(name, tensor_type(shape, "float16")) for name, shape in zip("xw", shapes, strict=True))
    module = module_of(std.relu(std.conv(x, w, padding=(1, 1, 1, 1), layout="NXC")), [x, w])
    exe = dlc.compile(module, f"cuda_simulated -arch={arch} -units=1 -check=true", cache=False)
    assert "    dlc_commit_copies();\n" in exe.source("cu")
    rng = np.random.default_rng(0)
    given = [rng.standard_normal(each).astype(np.float16) for each in shapes]
    expected = dlc.compile(module, "reference")(*given)
    np.testing.assert_allclose(exe(*given).astype(np.float32), expected.astype(np.float32), 2e-2, 4e-2)


@executed
@pytest.mark.parametrize("checked", [False, True])
@pytest.mark.parametrize("arch", ARCHS)
def test_a_missing_wait_is_found(arch: str, checked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(polyfills, "COPIES", replace(polyfills.COPIES, wait_but=""))
    exe = compiled(arch, 64, 64, 400, checked=checked)
    assert re.search(r"    ;\n", exe.source("cu"))
    with found(checked):
        check(exe, 64, 64, 400)


@executed
@pytest.mark.parametrize("checked", [False, True])
def test_missing_waits_for_matrix_products_are_found(checked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Products of one step may overlap the next step, because their operands are overwritten one
    step later.
    """
    monkeypatch.setattr(warpgroups, "AROUND", replace(warpgroups.AROUND, wait_but=""))
    exe = compiled("sm_90a", 128, 128, 640, checked=checked)
    assert "    dlc_wgmma_f16_f16_n" in exe.source("cu")
    with found(checked):
        check(exe, 128, 128, 640)


# Tensor copies by one thread


@executed
@pytest.mark.parametrize("k", [64, 104, 128, 330 // 8 * 8])
def test_tensor_copies_fill_out_of_range_elements_with_zeros(k: int) -> None:
    """Kernels have no bounds checks, because tensor copies fill elements outside of the tensor with zeros.
    The number of steps may be less than the number of stages.
    """
    exe = compiled("sm_90a", 72, 72, k)
    assert exe.source("cu").count("    dlc_tensor_copy_2(") >= 2
    assert "    dlc_copy_16" not in exe.source("cu")
    check(exe, 72, 72, k)


@executed
def test_tensor_copies_of_symbolic_rows() -> None:
    """Tensor descriptors have the dims of the call."""
    exe = compiled("sm_90a", M, 128, 256, checked=False)
    assert "    dlc_tensor_copy_2(" in exe.source("cu")
    for rows in (1, 129):
        check(exe, rows, 128, 256)


@executed
def test_a_batch_is_a_dim_of_the_tensor_map() -> None:
    exe = compiled("sm_90a", 128, 128, 256, batches=2, checked=False)
    assert "    dlc_tensor_copy_3(" in exe.source("cu")
    check(exe, 128, 128, 256, 2)


@executed
@pytest.mark.parametrize(("n", "k"), [(130, 256), (128, 250)])
def test_unaligned_rows_are_copied_by_threads(n: int, k: int) -> None:
    """One operand is copied by tensor copies, the other by all threads. The same barriers wait for both."""
    exe = compiled("sm_90a", 128, n, k)
    text = exe.source("cu")
    assert "    dlc_tensor_copy_2(" in text
    assert "    dlc_copy_4" in text
    check(exe, 128, n, k)


@executed
def test_symbolic_strides_are_copied_by_threads() -> None:
    exe = compiled("sm_90a", 128, 128, K, checked=False)
    assert exe.source("cu").count("const __grid_constant__ dlc_tensor") == 1
    check(exe, 128, 128, 201)


@executed
@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"wait": ""}, None),
        ({"wait": "dlc_wait_for_tensor_copies({barrier}, 1 - {parity})"}, None),
        ({"end": ""}, "would wait without end: the batch of tensor copies"),
        (
            {"copy": tma.COPIES.copy.replace("{bytes}", "{bytes} - 2")},
            "bytes are expected, and tensor copies have",
        ),
    ],
)
def test_missing_waits_of_tensor_copies_are_found(
    change: dict[str, str], problem: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tma, "COPIES", replace(tma.COPIES, **change))
    exe = compiled("sm_90a", 128, 128, 512, checked=False)
    failures = (AssertionError, "Mismatch") if problem is None else (RuntimeFailure, problem)
    with pytest.raises((failures[0], RuntimeFailure), match=f"{failures[1]}|no thread has waited"):
        check(exe, 128, 128, 512)


@pytest.mark.usefixtures("compiler")
def test_nvrtc_compiles_tensor_copies() -> None:
    x, y = (
        param("x", tensor_type((2, 1024, 512), "float16")),
        param("y", tensor_type((2, 512, 1024), "float16")),
    )
    exe = dlc.compile(module_of(std.matmul(x, y), [x, y]), "cuda -arch=sm_90a", cache=False)
    (facts,) = exe.explain().compiled.values()
    assert (facts["spill bytes"], facts["stack bytes"]) == (0, 0)
    assert "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes" in exe.source("ptx")
    assert "mbarrier.try_wait.parity" in exe.source("ptx")


class Library:
    """A driver that records its arguments."""

    def __init__(self, status: int) -> None:
        self.status = status
        self.given: tuple[Any, ...] = ()

    def cuTensorMapEncodeTiled(self, made: Any, *given: Any) -> int:
        self.given = given
        made[:] = bytes(range(128))
        return self.status


def test_tensor_maps_encode_dims_strides_and_boxes(monkeypatch: pytest.MonkeyPatch) -> None:
    library = Library(0)
    monkeypatch.setattr(tma, "library", lambda: library)
    tensor = Tensor(0, 2, True, (3, 100, 200), (20000, 200, 1), (1, 64, 64))
    assert tma.tensor_map(1 << 20, tensor) == bytes(range(128))
    kind, rank, address, dims, strides, box, ones, interleave, swizzle, _, fill = library.given
    assert (kind, rank, address.value, interleave, swizzle, fill) == (1, 3, 1 << 20, 0, 3, 0)
    assert (list(dims), list(strides)[:2]) == ([200, 100, 3], [400, 40000])
    assert (list(box), list(ones)) == ([64, 64, 1], [1, 1, 1])
    assert isinstance(box, ctypes.c_uint32 * 3)
    library.status = 1
    with pytest.raises(RuntimeFailure, match="has no tensor copies"):
        tma.tensor_map(2 << 20, tensor)


@executed
def test_launches_create_tensor_maps(device: Any, driver: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensor descriptors have the addresses of a call's memory."""
    monkeypatch.setattr(
        "dlc_backend_cuda.device.nvrtc.compile_kernels",
        lambda text, arch: SimpleNamespace(cubin=text.encode()),
    )
    driver.arch = "sm_90a"
    x, y = (param(name, tensor_type((128, 128), "float16")) for name in "xy")
    target = "cuda -arch=sm_90a -units=1 -code=text"
    exe = dlc.compile(module_of(std.matmul(x, y), [x, y]), target, cache=False)
    assert "    dlc_tensor_copy_2(" in exe.source("cu")
    driver.takes(exe.artifact, read_launches(exe.artifact.metadata["launches"])[0])
    given = [numbers(128, 128, seed=seed).astype(np.float16) for seed in (0, 1)]
    expected = given[0].astype(np.float32) @ given[1].astype(np.float32)
    np.testing.assert_allclose(exe(*given).astype(np.float32), expected, 1e-3)
    assert [(one.dims, one.strides, one.swizzled) for one in driver.tensors] == [
        ((128, 128), (128, 1), True)
    ] * 2
