"""Whole models on an OpenCL device have the results of the reference, in all kinds of calls."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

import dlc_core as dlc
from dlc_core.runtime.call.arrays import NDArray
from dlc_core.testing import networks
from dlc_core.testing.languages import check_skinny_gemm

pytestmark = pytest.mark.usefixtures("opencl")


def compared(exe: dlc.Executable, module: object) -> None:
    rng = np.random.default_rng(0)
    x = [rng.standard_normal(v.shape).astype(np.float32) for v in exe.inputs]
    np.testing.assert_allclose(exe(*x), dlc.compile(module, "reference")(*x), 1e-4, 1e-5)


def test_a_network_and_its_saved_artefact(tmp_path: Path) -> None:
    module = networks.mlp()
    exe = dlc.compile(module, "opencl", cache=False)
    assert exe.program is None, "all of it runs on the device"
    compared(exe, module)
    exe.save(tmp_path / "mlp.dlc")
    compared(dlc.open(tmp_path / "mlp.dlc"), module)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["opencl", "opencl -device=0"])
@pytest.mark.parametrize("network", [networks.cifar, networks.keywords])
def test_networks(network: object, target: str) -> None:
    module = network()
    compared(dlc.compile(module, target, cache=False), module)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
def test_skinny_gemm(dtype: str) -> None:
    check_skinny_gemm("opencl", dtype)


def test_contexts_of_several_threads() -> None:
    """Two devices with the same target options have separate contexts."""
    module = networks.mlp()
    exes = [dlc.compile(module, target) for target in ("opencl", "opencl -platform=0 -device=0")]
    assert exes[0].device is not exes[1].device
    inputs = [np.random.default_rng(seed).standard_normal((1, 64)).astype(np.float32) for seed in range(4)]
    expected = [dlc.compile(module, "reference")(x) for x in inputs]
    wrong: list[object] = []

    def work(number: int) -> None:
        try:
            for _ in range(10):
                found = exes[number % 2](inputs[number])
                np.testing.assert_allclose(found, expected[number], 1e-5, 1e-6)
        except Exception as error:  # noqa: BLE001 (shown by the assertion)
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_kernels_are_measured_by_the_device() -> None:
    exe = dlc.compile(networks.mlp(), "opencl")
    report = exe.profile([np.zeros((1, 64), np.float32)], runs=3, warmup=1)
    assert len(report) == len(exe.explain().kernels)
    assert all(row.calls == 1 and 0 < row.milliseconds < report.milliseconds for row in report)


def test_arrays_stay_on_the_device() -> None:
    exe = dlc.compile(networks.mlp(), "opencl")
    x = np.random.default_rng(0).standard_normal((1, 64)).astype(np.float32)
    there = NDArray.from_host(exe.device, x)
    found = exe(there)
    assert found.device is exe.device
    np.testing.assert_array_equal(found.numpy(), exe(x))
