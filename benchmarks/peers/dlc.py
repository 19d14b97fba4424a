"""Ours, with default options: compiled without the cache, or opened from a saved file as a server does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.peers.base import Peer, Session

_COMPILE = "import sys, dlc_core as dlc; dlc.compile(sys.argv[1]).save(sys.argv[2])"


def load(path: Path, threads: int) -> Session:
    import dlc_core as dlc

    return dlc.compile(path, num_threads=threads, cache=False).run


def load_saved(path: Path, threads: int) -> Session:
    """The compile is in another process, so that this one has the memory of a server."""
    import dlc_core as dlc

    with TemporaryDirectory(prefix="dlc-bench-") as folder:
        saved = str(Path(folder, "model.dlc"))
        subprocess.run([sys.executable, "-c", _COMPILE, str(path), saved], check=True)
        return dlc.open(saved, num_threads=threads).run


PEER = Peer("dlc", ("dlc-core",), ("dlc_core",), load, together=True)
SAVED = Peer("dlc", ("dlc-core",), ("dlc_core",), load_saved)
