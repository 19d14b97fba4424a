"""Ours, with default options: compiled without the cache, or opened from a saved file as a server does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.peers.base import Peer, Session

NARROW = ("bfloat16", "float16")
_COMPILE = "import sys, dlc_core as dlc; dlc.compile(sys.argv[1], precision=sys.argv[3]).save(sys.argv[2])"


def load(path: Path, threads: int, precision: str = "float32") -> Session:
    import dlc_core as dlc

    return dlc.compile(path, num_threads=threads, precision=precision, cache=False).run


def load_saved(path: Path, threads: int, precision: str = "float32") -> Session:
    """The compile is in another process, so that this one has the memory of a server."""
    import dlc_core as dlc

    with TemporaryDirectory(prefix="dlc-bench-") as folder:
        saved = str(Path(folder, "model.dlc"))
        subprocess.run([sys.executable, "-c", _COMPILE, str(path), saved, precision], check=True)
        return dlc.open(saved, num_threads=threads).run


PEER = Peer("dlc", ("dlc-core",), ("dlc_core",), load, together=True, precisions=NARROW)
SAVED = Peer("dlc", ("dlc-core",), ("dlc_core",), load_saved, precisions=NARROW)
