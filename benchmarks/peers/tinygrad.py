"""tinygrad: its own ONNX runner with its JIT, on the CPU by clang, without a search for schedules.

Kernels are split into as many parts as there are threads, but its CPU device runs the parts serially.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from benchmarks.peers.base import Array, Peer, Session


def load(path: Path, threads: int) -> Session:
    compiler = os.environ.get("CC", "clang")
    if shutil.which(compiler) is None:
        raise RuntimeError(f"tinygrad compiles with {compiler}, which is not on this machine")
    # It reads these when it is imported; without the second it finds code of earlier processes.
    os.environ |= {"DEV": "CPU", "CACHELEVEL": "0", "NUM_CPU_THREADS": str(threads)}
    from tinygrad import Tensor, TinyJit
    from tinygrad.nn.onnx import OnnxRunner

    runner = OnnxRunner(path)
    # In 0.14 its fast path for constant indices fails if these have several dims, so it is disabled.
    known = runner.graph_values
    runner.const_names = {name for name in runner.const_names if getattr(known.get(name), "ndim", 0) < 2}

    @TinyJit
    def step(**given: Tensor) -> dict[str, Tensor]:
        return {name: value.realize() for name, value in runner(given).items()}

    def session(feeds: Mapping[str, Array]) -> dict[str, Array]:
        found = step(**{name: Tensor(value) for name, value in feeds.items()})
        return {name: value.numpy() for name, value in found.items()}

    return session


PEER = Peer("tinygrad", ("tinygrad",), ("tinygrad.nn.onnx",), load)
