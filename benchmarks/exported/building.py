"""Models, each with random inputs and what onnxruntime makes of them."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.exported.families import all_recipes
from benchmarks.exported.published import given
from benchmarks.exported.recipes import SEED


def build_one(name: str, folder: Path) -> None:
    """Write one model, its inputs and what onnxruntime makes of them, where the recipe did not say what is
    wanted.
    """
    import onnxruntime

    if name.startswith(("torch", "vision", "timm", "transformers", "quantized", "sized")):
        import torch

        torch.manual_seed(SEED)
        torch.set_num_threads(1)
    path = folder / f"{name.replace('/', '-')}.onnx"
    all_recipes(name)[name](path)
    if path.with_suffix(".npz").exists():
        return
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(SEED)
    feeds = {info.name: drawn(info, rng, given(name, info)) for info in session.get_inputs()}
    found = session.run(None, {n: a.astype(object) if a.dtype.kind == "U" else a for n, a in feeds.items()})
    arrays = {f"in_{n}": array for n, array in feeds.items()}
    arrays |= {f"out_{i}": plain(value) for i, value in enumerate(found)}
    np.savez(path.with_suffix(".npz"), **arrays)


def plain(value: Any) -> Any:
    """A value as an array that can be stored: texts of NumPy's own kind, of maps a row of values for each."""
    if isinstance(value, list):
        return np.array([list(item.values()) for item in value])
    array = np.asarray(value)
    return array.astype(str) if array.dtype == object else array


def drawn(info: Any, rng: np.random.Generator, own: Any = None) -> Any:
    """An input of a session, of a shape of its own or that value; dims without a size are 2."""
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


def build(folder: Path, only: str, limit: float) -> None:
    """Build each model in a process of its own; failures are reported."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in all_recipes():
        done = folder / f"{name.replace('/', '-')}.npz"
        if only not in name or done.exists():
            continue
        start = time.perf_counter()
        command = [
            sys.executable,
            "-W",
            "ignore",
            "-m",
            "benchmarks.exported",
            "one",
            str(folder),
            "--only",
            name,
        ]
        try:
            result = subprocess.run(command, capture_output=True, text=True, timeout=limit)
            last = (result.stderr.strip().splitlines() or [""])[-1] if result.returncode else "built"
        except subprocess.TimeoutExpired:
            last = f"took more than {limit:g} s"
        print(f"{name}: {last[:200]} ({time.perf_counter() - start:.0f} s)", flush=True)
