"""Tuning on an OpenCL device: kernels are built, run and compared there, and compiles use the records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from dlc_tune import verifying
from dlc_tune.measuring.comparing import Ratios
from dlc_tune.measuring.job import OK, Comparison, Job
from dlc_tune.measuring.local import LocalMeasurer
from dlc_tune.records.database import Database
from dlc_tune.tuner import tune

import dlc_core as dlc
from dlc_core.graph.node import Function, constant, param
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type
from dlc_core.op import std

platforms = pytest.importorskip("dlc_backend_opencl.platforms", reason="needs the OpenCL backend")


@pytest.fixture(autouse=True)
def device() -> None:
    """Skip the tests if there is no device."""
    why = platforms.problem()
    if why:
        pytest.skip(why)


@pytest.fixture
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The database that compiles use."""
    url = f"sqlite:///{tmp_path / 'records.db'}"
    monkeypatch.setenv("DLC_RECORDS_URL", url)
    return url


def dense() -> IRModule:
    """A GEMM with relu."""
    rng = np.random.default_rng(0)
    x = param("x", tensor_type((64, 48)))
    body = std.relu(std.matmul(x, constant(rng.standard_normal((48, 80)).astype(np.float32))))
    return IRModule({"main": Function("main", (x,), body, {"inputs": ("x",), "outputs": ("y",)})})


class Preferring(LocalMeasurer):
    """Measures on the device, and states that each candidate whose results agree is twice as fast."""

    comparisons: Sequence[Comparison] = ()

    def compare(self, candidate: Job, default: Job) -> Comparison:
        found = super().compare(candidate, default)
        self.comparisons = (*self.comparisons, found)
        if found.state != OK:
            return found
        return replace(found, candidate=(1.0,), default=(2.0,), ratio=0.5, noise=0.0)


def test_a_model_is_tuned_and_compiles_use_the_records(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verifying, "compare_models", lambda *_: ("", Ratios((1.0,), (2.0,), 0.5, 0.5, 0.5)))
    x = np.random.default_rng(1).standard_normal((64, 48)).astype(np.float32)
    before = dlc.compile(dense(), "opencl")
    expected = before(x)
    assert all(kernel.rule != "tuned" for kernel in before.explain().kernels)
    measurer = Preferring(builders=1)
    try:
        result = tune(
            dense(),
            "opencl",
            inputs=[x],
            seconds=60,
            trials=2,
            batch=2,
            space="decisions",
            strategy="random",
            graph=False,
            measurer=measurer,
        )
    finally:
        measurer.close()
    assert result.trials > 0
    assert [each.failed for each in result.results] == [0] * len(result.results)
    assert measurer.comparisons
    assert {each.state for each in measurer.comparisons} == {OK}
    assert result.chosen
    with Database(database) as records:
        assert {each.outcome for each in records.find()} == {OK}
    exe = dlc.compile(dense(), "opencl")
    by_name = {kernel.name: kernel for kernel in exe.explain().kernels}
    for each in result.chosen:
        assert by_name[each.name].rule == "tuned"
        assert by_name[each.name].origin
    np.testing.assert_allclose(exe(x), expected, 1e-4, 1e-5)
