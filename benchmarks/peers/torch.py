"""PyTorch, eager and compiled by inductor: the graph as a module of functions of torch, by `onnx_torch`."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.peers.base import Array, Peer, Session, input_names, output_names


def load(path: Path, threads: int) -> Session:
    import torch

    from benchmarks.peers.onnx_torch.trace import module_of

    torch.set_num_threads(threads)
    return _session(module_of(path), path)


def load_compiled(path: Path, threads: int) -> Session:
    """The first call compiles, without the cache of earlier processes. `freezing`, which is for inference,
    makes the weights constants, which can then be packed.
    """
    import torch
    from torch._inductor import config

    from benchmarks.peers.onnx_torch.trace import module_of

    torch.set_num_threads(threads)
    config.freezing = True
    run, compiled = _session(torch.compile(module_of(path)), path), False

    def session(feeds: Mapping[str, Array]) -> Mapping[str, Array]:
        nonlocal compiled
        if compiled:
            return run(feeds)
        compiled = True
        with TemporaryDirectory(prefix="dlc-bench-") as folder:
            os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder
            return run(feeds)

    return session


def _session(module: Callable[..., Any], path: Path) -> Session:
    import torch

    takes, results = input_names(path), output_names(path)

    def session(feeds: Mapping[str, Array]) -> dict[str, Array]:
        with torch.inference_mode():
            found = module(*(torch.from_numpy(feeds[each]) for each in takes))
        return dict(zip(results, (each.numpy() for each in found)))

    return session


_PACKAGES = ("torch", "onnx")
PEER = Peer("torch", _PACKAGES, _PACKAGES, load)
COMPILED = Peer("torch-compiled", _PACKAGES, _PACKAGES, load_compiled)
