"""Ours, with default options and without the cache."""

from __future__ import annotations

from pathlib import Path

import dlc_core as dlc
from benchmarks.peers.base import Peer, Session


def load(path: Path, threads: int) -> Session:
    return dlc.compile(path, num_threads=threads, cache=False).run


PEER = Peer("dlc", ("dlc-core",), ("dlc_core",), load)
