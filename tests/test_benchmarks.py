"""The benchmarks run: models are generated, peers take turns, tables and JSON have what was measured."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

ROOT = Path(__file__).resolve().parents[1]


def run(*arguments: str, cache: Path, code: int = 0) -> str:
    environment = {**os.environ, "DLC_CACHE_DIR": str(cache), "NO_COLOR": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """A folder with one model that has inputs and outputs, and one that has none."""
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 20]> twice (float[2, 3] x) => (float[2, 3] y) { y = Add(x, x) }'
    )
    folder = tmp_path / "models"
    folder.mkdir()
    onnx.save(model, folder / "twice.onnx")
    onnx.save(model, folder / "alone.onnx")
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.savez(folder / "twice.npz", in_x=x, out_0=x + x)
    return folder


def test_models_of_a_folder_are_measured(models: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    arguments = ("--models", str(models), "--threads", "1", "--seconds", "0.05", "--json", str(out))
    text = run(*arguments, cache=tmp_path / "cache")
    assert "twice" in text
    assert "alone" not in text
    record = json.loads(out.read_text())
    (result,) = record["results"]
    assert result["model"] == "twice"
    assert result["errors"]["expected"] == 0
    assert result["milliseconds"]["dlc"]["median"] > 0
    assert result["memory_bytes"]["dlc"] > 1 << 20
    for name in set(record["peers"]) - {"dlc"}:
        ratio = result["milliseconds"]["dlc"]["median"] / result["milliseconds"][name]["median"]
        assert record["geometric_means"][f"{name}, threads 1"] == pytest.approx(ratio)


def test_wrong_results_are_named(models: Path, tmp_path: Path) -> None:
    x = np.ones((2, 3), np.float32)
    np.savez(models / "twice.npz", in_x=x, out_0=3 * x)
    arguments = ("--models", str(models), "--threads", "1", "--seconds", "0.01", "--no-memory", "--markdown")
    text = run(*arguments, cache=tmp_path / "cache", code=1)
    assert "twice, threads 1: results differ from expected" in text
    assert "| model |" in text


def test_a_generated_model_is_measured(tmp_path: Path) -> None:
    arguments = ("perceptron", "--threads", "1", "--seconds", "0.05", "--no-memory")
    assert "perceptron" in run(*arguments, cache=tmp_path / "cache")
    assert "no model nothing" in run("nothing", cache=tmp_path / "cache", code=2)
