"""The networks of the onnx package in native code, compared with stored outputs and with the reference."""

from __future__ import annotations

import numpy as np
import pytest
from dlc_frontend_onnx.testing import light

import dlc_core as dlc
from dlc_core.passes.lower.graph_work import graph_work
from dlc_core.runtime.guard.mode import MODES
from dlc_core.testing.guarded import call_guarded

pytest.importorskip("dlc_backend_llvm", reason="the backend for this machine is not installed")

RTOL, ATOL = 1e-3, 1e-4


def test_multiply_adds_of_resnet50():
    """The number that publications give: 4.09 billion."""
    module = dlc.load(light.path_of("resnet50"))
    assert graph_work(module[module.entry]).multiply_adds == 4_089_184_256


@pytest.mark.parametrize("network", light.NETWORKS)
def test_stored_output(network):
    exe = dlc.compile(light.path_of(network), "llvm", cache=False)
    results = exe.run(light.input_of(network))
    (found,) = results.values()
    np.testing.assert_allclose(found, light.stored_output(network), RTOL, ATOL)
    explanation = exe.explain()
    assert explanation.live_peak is not None
    assert explanation.live_peak <= int(explanation.arena) <= 1.2 * explanation.live_peak


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "network", [n if n == "squeezenet" else pytest.param(n, marks=pytest.mark.slow) for n in light.NETWORKS]
)
def test_stored_output_in_guard_mode(network, mode):
    exe = dlc.compile(light.path_of(network), "llvm", config={"guard": mode}, cache=False)
    feeds = light.input_of(network)
    (found,) = call_guarded(exe, *(feeds[value.name] for value in exe.inputs))
    np.testing.assert_allclose(found, light.stored_output(network), RTOL, ATOL)


@pytest.mark.slow
@pytest.mark.parametrize("network", light.NETWORKS)
def test_random_weights(network):
    """The stored outputs are equal for all classes. With random weights, outputs depend on every layer."""
    model = light.with_weights(network)
    feeds = light.input_of(network)
    (found,) = dlc.compile(model, "llvm", cache=False).run(feeds).values()
    (expected,) = dlc.compile(model, "reference", cache=False).run(feeds).values()
    assert np.abs(found - expected).max() < 1e-3 * np.ptp(expected)
