"""Models, each with random inputs and what onnxruntime makes of them."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.exported.recipes import SEED, all_recipes


def build_one(name: str, folder: Path) -> None:
    """Write one model, its inputs and what onnxruntime makes of them."""
    import onnxruntime

    if name.startswith(("torch", "vision", "timm", "transformers")):
        import torch

        torch.manual_seed(SEED)
        torch.set_num_threads(1)
    path = folder / f"{name.replace('/', '-')}.onnx"
    all_recipes(name)[name](path)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(SEED)
    feeds = {info.name: drawn(info, rng) for info in session.get_inputs()}
    found = session.run(None, feeds)
    arrays = {f"in_{n}": array for n, array in feeds.items()}
    arrays |= {f"out_{i}": np.asarray(array) for i, array in enumerate(found) if not isinstance(array, list)}
    np.savez(path.with_suffix(".npz"), **arrays)


def drawn(info: Any, rng: np.random.Generator) -> Any:
    """An input of a session: dims without a size are 2."""
    shape = [size if isinstance(size, int) else 2 for size in info.shape]
    if info.type == "tensor(int64)":
        return np.ones(shape, np.int64) if "1" in info.name else rng.integers(3, 50, shape)
    if info.type == "tensor(bool)":
        return np.ones(shape, np.bool_)
    return rng.standard_normal(shape).astype({"tensor(double)": np.float64}.get(info.type, np.float32))


def build(folder: Path, only: str, limit: float) -> None:
    """Each model in a process of its own; what fails is told."""
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
