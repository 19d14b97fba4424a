"""Building models with inputs and outputs, each in a separate process."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.corpus.catalog import recipes
from benchmarks.corpus.exporting import save
from benchmarks.corpus.quantizing import outputs_of
from benchmarks.corpus.recipe import SEED, Recipe
from benchmarks.corpus.small.published import given


def build_one(name: str, folder: Path) -> None:
    """Write one model, its inputs, and the outputs of onnxruntime if the recipe wrote none."""
    if find_spec("torch") is not None:
        import torch

        torch.manual_seed(SEED)
        torch.set_num_threads(1)
    recipe = recipes()[name]
    path = folder / f"{recipe.stem}.onnx"
    recipe.make(path)
    if path.with_suffix(".npz").exists():
        return
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(SEED)
    feeds = {info.name: drawn(info, rng, given(name, info)) for info in session.get_inputs()}
    fed = {n: a.astype(object) if a.dtype.kind == "U" else a for n, a in feeds.items()}
    save(path, feeds, list(map(plain, outputs_of(path, fed))))


def plain(value: Any) -> Any:
    """A value as an array that can be stored: strings have NumPy's dtype, and maps are rows of values."""
    if isinstance(value, list):
        return np.array([list(item.values()) for item in value])
    array = np.asarray(value)
    return array.astype(str) if array.dtype == object else array


def drawn(info: Any, rng: np.random.Generator, own: Any = None) -> Any:
    """A random input of a session, or the given shape or value; dims without a size are 2."""
    if isinstance(own, np.ndarray):
        return own
    shape = own or [size if isinstance(size, int) else 2 for size in info.shape]
    if info.type == "tensor(string)":
        return rng.choice(np.array(["red", "blue", "a bb e", "dd ccc dd", "?"]), shape)
    if info.type == "tensor(int32)":
        return rng.integers(0, 50, shape, np.int32)
    if info.type == "tensor(int64)":
        return np.ones(shape, np.int64) if "1" in info.name else rng.integers(3, 50, shape)
    if info.type == "tensor(bool)":
        return np.ones(shape, np.bool_)
    return rng.standard_normal(shape).astype({"tensor(double)": np.float64}.get(info.type, np.float32))


def build(folder: Path, wanted: Sequence[Recipe], limit: float) -> int:
    """Build each model that is not in the folder; print each outcome, and return the number of failures."""
    folder.mkdir(parents=True, exist_ok=True)
    failures = 0
    for recipe in wanted:
        path = folder / f"{recipe.stem}.onnx"
        if path.with_suffix(".npz").exists():
            continue
        start = time.perf_counter()
        outcome = _apart(recipe.name, folder, limit)
        if outcome:
            failures += 1
            path.unlink(missing_ok=True)  # the file may be incomplete
        print(f"{recipe.name}: {outcome or 'built'} ({time.perf_counter() - start:.0f} s)", flush=True)
    return failures


def _apart(name: str, folder: Path, limit: float) -> str:
    """Build a model in a separate process. Returns the error, or an empty text."""
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.corpus", "one", str(folder), "--only", name]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        return f"took more than {limit:g} s"
    if done.returncode == 0:
        return ""
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    return (lines or [f"ended with {done.returncode}"])[-1][:200]
