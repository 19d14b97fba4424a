"""Partitioners that put calls of foreign functions in place of nodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dlc_core as dlc
from dlc_core.backend import Partitioner, RegionPattern
from dlc_core.diag import TargetError
from dlc_core.foreign import ForeignFunction, PythonCallable
from dlc_core.graph import Function, constant, param
from dlc_core.hooks import hookimpl
from dlc_core.ir.expr import Var
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.plugin.registry import fresh_registry
from dlc_core.rewrite import match_op, var

plugin = pytest.importorskip("dlc_backend_llvm.plugin", reason="the plugin of llvm is not installed")
W = np.random.default_rng(0).standard_normal((8, 8)).astype(np.float32)
X = np.random.default_rng(1).standard_normal((3, 8)).astype(np.float32)


def gemm(x: Any, w: Any, y: Any, m: int, n: int, k: int) -> None:
    y[:] = x @ w + 1  # so that the tests see who has computed a product


GEMM = ForeignFunction(
    "vendor.gemm",
    "(in float32 x[m, k], in float32 w[k, n], out float32 y[m, n], int64 m, int64 n, int64 k)",
    [PythonCallable(gemm)],
)


class Vendor:
    """A package that takes products of matrices."""

    def __init__(self, replacement: Any) -> None:
        self.replacement = replacement

    @hookimpl
    def dlc_foreign_functions(self) -> list[ForeignFunction]:
        return [GEMM]

    @hookimpl
    def dlc_partitioners(self) -> list[Partitioner]:
        product = match_op("matmul", var("a"), var("b"))
        is_plain = RegionPattern("gemm", product, lambda found, target: found["a"].tensor_type.ndim == 2)
        return [Partitioner("vendor", "llvm", [is_plain], replacement=self.replacement)]


def call(found: Any, target: Any) -> Any:
    return std.call_dps(found["a"], found["b"], function="vendor.gemm")


def model(*shape: Any) -> IRModule:
    """exp(relu(x) @ w @ w)."""
    x = param("x", tensor_type(shape))
    y = std.matmul(std.matmul(std.relu(x), constant(W)), constant(W))
    return IRModule({"main": Function("main", (x,), std.exp(y))})


def vendor(replacement: Any = call) -> Any:
    return fresh_registry({"llvm": plugin, "vendor": Vendor(replacement)})


@pytest.mark.parametrize("rows", [3, Var("rows")])
def test_matches_become_calls(rows: Any, tmp_path: Path) -> None:
    with vendor():
        exe = dlc.compile(model(rows, 8), "llvm", num_threads=1)
        expected = np.exp((np.maximum(X, 0) @ W + 1) @ W + 1)
        np.testing.assert_allclose(exe(X), expected, rtol=1e-4)
        explained = exe.explain()
        assert explained.replaced == ("matmul: vendor: gemm",) * 2
        assert "replaced matmul: vendor: gemm × 2" in str(explained)
        assert explained.totals()["multiply_adds"] is None  # those of a foreign function are not known
        assert not explained.segments
        assert not explained.refusals()
        exe.save(tmp_path / "model.dlc")
        np.testing.assert_array_equal(dlc.open(tmp_path / "model.dlc")(X), exe(X))


def test_refusals_stay_with_the_target() -> None:
    with vendor():
        exe = dlc.compile(model(2, 3, 8), "llvm", num_threads=1)
        x = np.stack([X, X])
        np.testing.assert_allclose(exe(x), np.exp(np.maximum(x, 0) @ W @ W), rtol=1e-4)
        assert "matmul" in str(exe.explain().refusals())


def test_other_targets_do_not_take_part() -> None:
    with vendor():
        found = dlc.compile(model(3, 8), "reference")(X)
    np.testing.assert_allclose(found, np.exp(np.maximum(X, 0) @ W @ W), rtol=1e-4)


def fails(found: Any, target: Any) -> Any:
    raise KeyError("b")


@pytest.mark.parametrize(
    ("replacement", "why"),
    [
        (fails, "KeyError: 'b'"),
        (lambda found, target: found["a"], "its node is float32[3, 4], not float32[3, 8]"),
        (
            lambda found, target: std.call_dps(found["a"], function="vendor.gemm"),
            "TypeInferenceError: call_dps: 1 arguments, and vendor.gemm reads 2",
        ),
    ],
)
def test_faults_of_a_replacement_name_the_partitioner(replacement: Any, why: str) -> None:
    x = param("x", tensor_type((3, 4)))
    module = IRModule({"main": Function("main", (x,), std.matmul(x, constant(W[:4])))})
    with vendor(replacement), pytest.raises(TargetError, match="'vendor' cannot replace gemm") as caught:
        dlc.compile(module, "llvm")
    assert why in str(caught.value)
