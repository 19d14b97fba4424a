"""The command line on a small generated model, in a temporary folder with its own cache."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

from dlc_core.cli.main import main

MODEL = """
<ir_version: 10, opset_import: ["" : 20]>
perceptron (float[batch, 4] x) => (float[batch, 3] y)
<float[4, 3] w = {0.5, -1, 2, 1, 0, -1, 3, 0.25, 1, -2, 1, 0.5}, float[3] b = {0.5, -1, 0.25}>
{
    product = MatMul(x, w)
    shifted = Add(product, b)
    y = Relu(shifted)
}
"""

W = np.array([[0.5, -1, 2], [1, 0, -1], [3, 0.25, 1], [-2, 1, 0.5]], np.float32)
B = np.array([0.5, -1, 0.25], np.float32)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with model.onnx; the cache is kept for all tests."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("DLC_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "cache"))
    monkeypatch.setenv("DLC_REPRODUCER_DIR", str(tmp_path / "reproducers"))
    for name in ("DLC_DEBUG", "DLC_PLUGINS", "FORCE_COLOR", "DLC_CACHE", "DLC_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    onnx.save(onnx.parser.parse_model(MODEL), tmp_path / "model.onnx")
    return tmp_path


@pytest.fixture
def case() -> dict[str, Any]:
    """An input of the model, and its output."""
    x = np.random.default_rng(3).standard_normal((5, 4)).astype(np.float32)
    return {"x": x, "y": np.maximum(x @ W + B, 0)}


@pytest.fixture
def dlc(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run a command line and return its output: that of stderr if it fails, with nothing on stdout."""

    def run(*arguments: object, code: int = 0) -> str:
        capsys.readouterr()
        got = main([str(each) for each in arguments])
        printed = capsys.readouterr()
        assert got == code, printed.out + printed.err
        return printed.err if code == 2 or (code and not printed.out) else printed.out

    return run


@pytest.fixture
def dlc_json(dlc: Callable[..., str]) -> Callable[..., Any]:
    """Run a command line with --json and return the parsed output."""
    return lambda *arguments, code=0: json.loads(dlc(*arguments, "--json", code=code))
