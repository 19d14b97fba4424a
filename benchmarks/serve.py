"""A process that serves a model, to measure its memory: `python -m benchmarks.serve PEER MODEL THREADS NPZ`.

Ours opens the saved artefact, as a server does; the compile is in another process.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from benchmarks.peers import OURS, PEERS

CALLS = 3
_COMPILE = "import sys, dlc_core as dlc; dlc.compile(sys.argv[1]).save(sys.argv[2])"


def resident() -> int:
    """Bytes of this process in memory, pages shared with files included."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) << 10
    return 0


def main(name: str, model: str, threads: int, arrays: str) -> None:
    with np.load(arrays) as file:
        feeds = {key: file[key] for key in file.files}
    with TemporaryDirectory(prefix="dlc-bench-") as folder:
        if name == OURS.name:
            import dlc_core as dlc

            saved = str(Path(folder, "model.dlc"))
            subprocess.run([sys.executable, "-c", _COMPILE, model, saved], check=True)
            session = dlc.open(saved, num_threads=threads).run
        else:
            session = next(peer for peer in PEERS if peer.name == name).load(Path(model), threads)
        for _ in range(CALLS):
            session(feeds)
        print(json.dumps({"resident": resident()}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4])
