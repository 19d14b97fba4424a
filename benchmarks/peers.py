"""Those who run the models: `load(path, threads)` gives a session, `session(feeds)` its outputs by name.

Every peer runs as its users run it by default: all graph optimisations, its own memory and thread pools, and
as many threads as are asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Session = Callable[[Mapping[str, Array]], Mapping[str, Array]]


@dataclass(frozen=True)
class Peer:
    """`load` includes everything from the model's file to the first possible call."""

    name: str
    package: str
    load: Callable[[Path, int], Session]

    @property
    def version(self) -> str:
        return version(self.package)

    @property
    def installed(self) -> bool:
        return find_spec(self.package.replace("-", "_")) is not None


def _dlc(path: Path, threads: int) -> Session:
    import dlc_core as dlc

    exe = dlc.compile(path, num_threads=threads, cache=False)
    return exe.run


def _onnxruntime(path: Path, threads: int) -> Session:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3  # it tells of constants that old models list among their inputs
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [each.name for each in session.get_outputs()]
    return lambda feeds: dict(zip(names, session.run(None, dict(feeds))))


OURS = Peer("dlc", "dlc-core", _dlc)
PEERS = (OURS, Peer("onnxruntime", "onnxruntime", _onnxruntime))
"""Ours first."""


def installed_peers() -> list[Peer]:
    return [peer for peer in PEERS if peer.installed]
