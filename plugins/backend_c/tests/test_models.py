"""Whole models: C computes the same results as native code."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import dlc_core as dlc

pytest.importorskip("dlc_backend_llvm", reason="the backend for this machine is not installed")
onnx = pytest.importorskip("onnx")
light = pytest.importorskip("dlc_frontend_onnx.testing.light")

FAST = ("squeezenet",)


def compared(name: str, folder: Path, target: str) -> None:
    path = folder / f"{name}.onnx"
    onnx.save(light.with_weights(name), path)
    feeds = light.input_of(name)
    expected = dlc.compile(path, "llvm", cache=False).run(feeds)
    exe = dlc.compile(path, target, cache=False)
    assert exe.program is None, "all of it is C"
    for output, found in exe.run(feeds).items():
        np.testing.assert_allclose(found, expected[output], 1e-3, 1e-5, err_msg=output)


@pytest.mark.parametrize("name", FAST)
def test_a_classifier(name: str, tmp_path: Path) -> None:
    compared(name, tmp_path, "c -mcpu=native")


@pytest.mark.slow
@pytest.mark.parametrize("target", ["c", "c -mcpu=native", "c -opt-for=size"])
@pytest.mark.parametrize("name", light.NETWORKS)
def test_classifiers(name: str, target: str, tmp_path: Path) -> None:
    compared(name, tmp_path, target)
