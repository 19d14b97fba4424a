"""Models divided between llvm and a device with its own memory, in guard mode.

The device takes all convolutions, so that most segments of the host read values that were copied to it, and
not values of its arena.
"""

from __future__ import annotations

import numpy as np
import pytest

import dlc_core as dlc
from dlc_core.backend import Partitioner, RegionPattern, SimulatedDevice, SourceCodegen
from dlc_core.hooks import hookimpl
from dlc_core.plugin.registry import fresh_registry
from dlc_core.rewrite import const_var, match_op, var
from dlc_core.target import Description, TargetKind

onnx_plugin = pytest.importorskip("dlc_frontend_onnx.plugin", reason="the ONNX frontend is not installed")
llvm_plugin = pytest.importorskip("dlc_backend_llvm.plugin", reason="the backend for this machine is missing")
light = pytest.importorskip("dlc_frontend_onnx.testing.light", reason="the ONNX frontend is not installed")

HOST_OPS = ("max_pool", "avg_pool", "lrn", "concat", "softmax")


class _Codegen(SourceCodegen):
    name, kinds, format = "npu", ("npu",), "npu-source"


class _Device(SimulatedDevice):
    name, formats = "npu", ("npu-source",)
    memory_bytes = 256 << 20


class _Plugin:
    DLC_API = "0.1"

    @hookimpl
    def dlc_targets(self):
        def describe(options):
            return Description(vector_bits=256, fma=True, parallel=False)

        return [TargetKind("npu", "convolutions only", codegen="npu", device="npu", describe=describe)]

    @hookimpl
    def dlc_codegens(self):
        return [_Codegen()]

    @hookimpl
    def dlc_devices(self):
        return [_Device()]

    @hookimpl
    def dlc_partitioners(self):
        conv = match_op("conv", var("x"), const_var("w"))
        fused = match_op("relu", match_op("add", conv, const_var("b")))
        patterns = [RegionPattern("conv_relu", fused), RegionPattern("conv", conv)]
        return [Partitioner("npu-conv", "npu", patterns)]


@pytest.mark.slow  # a C compiler translates some dozens of convolutions for the simulated device
@pytest.mark.parametrize("guard", ["end", "begin"])
@pytest.mark.parametrize("network", ["densenet121", "inception_v1", "inception_v2", "squeezenet"])
def test_segments_stay_inside_their_values(network, guard):
    model, feeds = light.with_weights(network), light.input_of(network)
    with fresh_registry({"npu": _Plugin(), "onnx": onnx_plugin, "llvm": llvm_plugin}):
        expected = dlc.compile(model, "llvm", cache=False).run(feeds)
        place = dict.fromkeys(HOST_OPS, "llvm")
        exe = dlc.compile(model, targets=["npu", "llvm"], place=place, config={"guard": guard}, cache=False)
        assert {one.target.split()[0] for one in exe.explain().segments} == {"npu", "llvm"}
        found = exe.run(feeds)
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-4, atol=1e-4 * np.abs(value).max())
