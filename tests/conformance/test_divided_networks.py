"""Networks that a unit with its own memory and this machine share, in guard mode.

The unit takes products and convolutions, whose regions it evaluates. Pools, concatenations and activations
run in segments on this machine, which read values that were copied from the unit. In guard mode a segment
that reads beyond such a value crashes, which fails the test of the network.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from dlc_core.plugin.registry import fresh_registry
from dlc_core.testing import conformance_suite
from dlc_core.testing.runner import expectations_of, usable_target
from tests.conformance.kinds import LargeCard, Unit

llvm_plugin = pytest.importorskip("dlc_backend_llvm.plugin", reason="the backend for this machine is missing")
onnx_plugin = pytest.importorskip("dlc_frontend_onnx.plugin", reason="the ONNX frontend is not installed")

pytestmark = pytest.mark.skipif(os.name != "posix", reason="isolated processes inherit pipes")


@pytest.fixture(scope="module", autouse=True)
def installed() -> Iterator[None]:
    with fresh_registry({"unit": Unit(device=LargeCard), "llvm": llvm_plugin, "onnx": onnx_plugin}):
        usable_target.cache_clear()
        expectations_of.cache_clear()
        yield
    usable_target.cache_clear()
    expectations_of.cache_clear()


TestEnd = conformance_suite("unit", levels=("models",), guard="end")
TestBegin = conformance_suite("unit", levels=("models",), guard="begin")
