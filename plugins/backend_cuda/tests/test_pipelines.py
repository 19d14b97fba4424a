"""Tiles that are under way several at a time: right numbers from the emitted text, with no device, for sizes
that are no multiple, unknown, or shorter than the pipeline; what does not wait is found."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from dlc_backend_cuda import warpgroups, words

import dlc_core as dlc
from dlc_core.backend.compiler import compiler_problem
from dlc_core.diag import RuntimeFailure
from dlc_core.graph.node import param
from dlc_core.ir.expr import Var
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.testing.cases import module_of
from dlc_core.testing.languages import numbers

pytestmark = pytest.mark.skipif(compiler_problem() is not None, reason=str(compiler_problem()))
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
    wanted = np.maximum(x.astype(np.float64) @ y.astype(np.float64), 0)
    np.testing.assert_allclose(exe(x, y).astype(np.float64), wanted, 1e-3, 1e-3)


def found(checked: bool) -> Any:
    """By who touches what in a checked program, else by wrong numbers."""
    failure, match = (RuntimeFailure, "race") if checked else (AssertionError, "Mismatch")
    return pytest.raises(failure, match=match)


@pytest.mark.parametrize("arch", ARCHS)
def test_sizes_that_are_no_multiple(arch: str) -> None:
    exe = compiled(arch, 70, 72, 330)
    assert "    dlc_wait_for_copies_but_1();\n" in exe.source("cu")
    assert exe.source("cu").count("    dlc_end_of_copies();\n") >= 3
    check(exe, 70, 72, 330)


@pytest.mark.parametrize("k", [40, 100, 130, 200])
@pytest.mark.parametrize("arch", ARCHS)
def test_steps_fewer_than_the_stages(arch: str, k: int) -> None:
    check(compiled(arch, 64, 64, k), 64, 64, k)


@pytest.mark.parametrize("arch", ARCHS)
def test_symbolic_rows(arch: str) -> None:
    exe = compiled(arch, M, 64, 330, checked=False)
    for rows in (1, 65):
        check(exe, rows, 64, 330)


@pytest.mark.parametrize("arch", ARCHS)
def test_unknown_numbers_of_steps(arch: str) -> None:
    exe = compiled(arch, 64, 64, K)
    for steps in (1, 64, 100, 250, 400):
        check(exe, 64, 64, steps)


@pytest.mark.parametrize("arch", ARCHS)
def test_batches(arch: str) -> None:
    check(compiled(arch, 64, 64, 320, batches=2, checked=False), 64, 64, 320, 2)


@pytest.mark.parametrize("arch", ARCHS)
def test_convolutions(arch: str) -> None:
    shapes = (1, 7, 9, 64), (64, 64, 3, 3)
    x, w = (param(name, tensor_type(shape, "float16")) for name, shape in zip("xw", shapes, strict=True))
    module = module_of(std.relu(std.conv(x, w, padding=(1, 1, 1, 1), layout="NXC")), [x, w])
    exe = dlc.compile(module, f"cuda_simulated -arch={arch} -units=1 -check=true", cache=False)
    assert "    dlc_end_of_copies();\n" in exe.source("cu")
    rng = np.random.default_rng(0)
    given = [rng.standard_normal(each).astype(np.float16) for each in shapes]
    wanted = dlc.compile(module, "reference")(*given)
    np.testing.assert_allclose(exe(*given).astype(np.float32), wanted.astype(np.float32), 2e-2, 4e-2)


@pytest.mark.parametrize("checked", [False, True])
@pytest.mark.parametrize("arch", ARCHS)
def test_a_missing_wait_is_found(arch: str, checked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(words, "COPIES", replace(words.COPIES, wait_but=""))
    exe = compiled(arch, 64, 64, 400, checked=checked)
    assert re.search(r"    ;\n", exe.source("cu"))
    with found(checked):
        check(exe, 64, 64, 400)


@pytest.mark.parametrize("checked", [False, True])
def test_products_that_run_too_long_are_found(checked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of one step may run beside the next: what these read is overwritten a step later."""
    monkeypatch.setattr(warpgroups, "AROUND", replace(warpgroups.AROUND, wait_but=""))
    exe = compiled("sm_90a", 128, 128, 640, checked=checked)
    assert "    dlc_wgmma_f16_f16_n" in exe.source("cu")
    with found(checked):
        check(exe, 128, 128, 640)
