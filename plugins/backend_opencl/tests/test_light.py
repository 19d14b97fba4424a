"""The nine light classifiers on an OpenCL device."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

import dlc_core as dlc

onnx = pytest.importorskip("onnx")
light = pytest.importorskip("dlc_frontend_onnx.testing.light")

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("opencl")]
LLVM = importlib.util.find_spec("dlc_backend_llvm") is not None


@pytest.mark.parametrize("name", light.NETWORKS)
def test_classifiers(name: str, tmp_path: Path) -> None:
    path = tmp_path / f"{name}.onnx"
    onnx.save(light.with_weights(name), path)
    feeds = light.input_of(name)
    wanted = dlc.compile(path, "llvm" if LLVM else "reference", cache=False).run(feeds)
    exe = dlc.compile(path, "opencl -device=0", cache=False)
    assert exe.program is None, "all of it runs on the device"
    for output, found in exe.run(feeds).items():
        np.testing.assert_allclose(found, wanted[output], 1e-3, 1e-5, err_msg=output)
