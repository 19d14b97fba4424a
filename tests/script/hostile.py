"""Runs scripts in a process of their own: a hostile one may at worst fail with a DlcError.

`python hostile.py FILE TARGET` compiles the script in a file and calls it with arrays of ones, twice, with 8
for every symbolic dim.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np

import dlc_core as dlc
from dlc_core.diag import DlcError
from dlc_core.script import parse
from dlc_core.tir.stmt import PrimFunc

SECONDS = 120
"""The time limit of a process."""
REFUSED = 3
"""The exit status of a process whose script was refused, or whose call failed with an error."""


def outcome(text: str, target: str, folder: Path) -> tuple[int, str]:
    """The exit status of a script's process, and its output. A negative status is a signal."""
    path = folder / "script.txt"
    path.write_text(text)
    env = {**os.environ, "DLC_CACHE": "0", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, __file__, str(path), target]
    made = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, env=env, check=False)
    return made.returncode, made.stdout + made.stderr


def _main(path: str, target: str) -> int:
    try:
        given = parse(Path(path).read_text())
        if isinstance(given, PrimFunc):
            exe = dlc.build(given, target)
        else:
            exe = dlc.compile(given, target, cache=False)
        arrays = [
            np.ones([d if isinstance(d, int) else 8 for d in v.shape], v.dtype.numpy) for v in exe.inputs
        ]
        for _ in range(2):
            found = exe(*arrays)
    except DlcError as error:
        print(f"{type(error).__name__}: {error}")
        return REFUSED
    print(found)
    return 0


if __name__ == "__main__":
    sys.exit(_main(*sys.argv[1:]))
