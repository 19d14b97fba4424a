"""dlc with default options: compiled without the cache, or opened from a saved file as in a server.
`for_targets` compares several targets.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.peers.base import Peer, Session

PRECISIONS = ("fast", "bfloat16", "float16")
_COMPILE = """
import sys, dlc_core as dlc
dlc.compile(sys.argv[1], sys.argv[4] or None, precision=sys.argv[3]).save(sys.argv[2])
"""


def load(path: Path, threads: int, precision: str = "float32", target: str = "") -> Session:
    import dlc_core as dlc

    if not target:
        return dlc.compile(path, num_threads=threads, precision=precision, cache=False).run
    return _made_anew(path, threads, precision, target)


def _made_anew(path: Path, threads: int, precision: str, target: str) -> Session:
    """Compile without the cache folder, so that the time of C compilers is included."""
    import dlc_core as dlc
    from dlc_core.config import config

    with TemporaryDirectory(prefix="dlc-bench-") as folder, config.override(cache_dir=Path(folder)):
        made = dlc.compile(path, target, num_threads=threads, precision=precision, cache=False)
        return made.with_threads(threads).run


def load_saved(path: Path, threads: int, precision: str = "float32", target: str = "") -> Session:
    """The compile runs in another process, so that this one has the memory of a server."""
    import dlc_core as dlc

    with TemporaryDirectory(prefix="dlc-bench-") as folder:
        saved = str(Path(folder, "model.dlc"))
        subprocess.run([sys.executable, "-c", _COMPILE, str(path), saved, precision, target], check=True)
        return dlc.open(saved, num_threads=threads).run


PEER = Peer("dlc", ("dlc-core",), ("dlc_core",), load, together=True, precisions=PRECISIONS, serve=load_saved)


def for_targets(targets: Sequence[str]) -> list[Peer]:
    """dlc for the first target, and for each of the others as a peer with the target's name."""
    return [
        replace(
            PEER,
            name=target if index else PEER.name,
            load=partial(load, target=target),
            serve=partial(load_saved, target=target),
        )
        for index, target in enumerate(targets)
    ]
