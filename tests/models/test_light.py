"""The nine networks of the onnx package, natively: their stored outputs, and the reference's with weights."""

from __future__ import annotations

import numpy as np
import pytest
from dlc_frontend_onnx.testing import light

import dlc_core as dlc

pytest.importorskip("dlc_backend_llvm", reason="the backend for this machine is not installed")

RTOL, ATOL = 1e-3, 1e-4


@pytest.mark.parametrize("network", light.NETWORKS)
def test_stored_output(network):
    exe = dlc.compile(light.path_of(network), "llvm", cache=False)
    results = exe.run(light.input_of(network))
    (found,) = results.values()
    np.testing.assert_allclose(found, light.stored_output(network), RTOL, ATOL)
    told = exe.explain()
    assert told.live_peak is not None
    assert told.live_peak <= int(told.arena) <= 1.2 * told.live_peak


@pytest.mark.slow
@pytest.mark.parametrize("network", light.NETWORKS)
def test_random_weights(network):
    """All classes of the stored outputs are alike; these depend on every layer."""
    model = light.with_weights(network)
    feeds = light.input_of(network)
    (found,) = dlc.compile(model, "llvm", cache=False).run(feeds).values()
    (wanted,) = dlc.compile(model, "reference", cache=False).run(feeds).values()
    assert np.abs(found - wanted).max() < 1e-3 * np.ptp(wanted)
