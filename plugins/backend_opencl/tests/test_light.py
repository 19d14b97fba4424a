"""The nine light classifiers on an OpenCL device, and larger models.

These are ONNX files of the folder that the variable DLC_TEST_MODELS names, with a .npz file beside each: its
inputs and outputs, as `dlc run` takes them.
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import numpy as np
import pytest

import dlc_core as dlc
from dlc_core.cli.main import main

onnx = pytest.importorskip("onnx")
light = pytest.importorskip("dlc_frontend_onnx.testing.light")

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("opencl")]
LLVM = importlib.util.find_spec("dlc_backend_llvm") is not None
FOLDER = os.environ.get("DLC_TEST_MODELS", "")
LARGE = sorted(path.stem for path in Path(FOLDER).glob("*.npz")) if FOLDER else []


@pytest.mark.parametrize("name", light.NETWORKS)
def test_classifiers(name: str, tmp_path: Path) -> None:
    path = tmp_path / f"{name}.onnx"
    onnx.save(light.with_weights(name), path)
    feeds = light.input_of(name)
    expected = dlc.compile(path, "llvm" if LLVM else "reference", cache=False).run(feeds)
    exe = dlc.compile(path, "opencl -device=0", cache=False)
    assert exe.program is None, "all of it runs on the device"
    for output, found in exe.run(feeds).items():
        np.testing.assert_allclose(found, expected[output], 1e-3, 1e-5, err_msg=output)


@pytest.mark.parametrize(
    "name", LARGE or [pytest.param("", marks=pytest.mark.skip("DLC_TEST_MODELS names no models"))]
)
def test_large_models(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    model, case = (str(Path(FOLDER, f"{name}.{suffix}")) for suffix in ("onnx", "npz"))
    given = ["--target", "opencl -device=0", "--no-cache", "--inputs", case, "--expect", case]
    assert main(["run", model, *given, "--rtol", "1e-3", "--atol", "1e-3"]) == 0, capsys.readouterr()
    assert "fits" in capsys.readouterr().out
