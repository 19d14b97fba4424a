"""A call of an executable in a separate process. A crash becomes an error with the location of the crash.

    exe = dlc.compile("model.onnx", config={"guard": "end"})
    y = call_guarded(exe, x)

The RuntimeFailure names the kernel, the model nodes and the value next to the access. Executables that were
not compiled in guard mode can also be called. Fewer errors are then detected, and the report has fewer facts.
"""

from __future__ import annotations

import faulthandler
import os
import pickle
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from dlc_core import driver
from dlc_core.diag import DlcError, RuntimeFailure
from dlc_core.runtime.call.arrays import as_host
from dlc_core.runtime.executable import Executable
from dlc_core.runtime.guard.faults import report_to, reported
from dlc_core.testing.isolation import exit_text

NDArray = np.ndarray[Any, Any]

SECONDS = 600.0
"""The time limit of a call."""

_EXECUTABLE, _INPUTS, _RESULT, _FAULT = "model.dlc", "inputs", "result", "fault"


def call_guarded(exe: Executable, *arrays: Any, seconds: float = SECONDS) -> list[NDArray]:
    """The outputs of a call in another process. Raises RuntimeFailure if that process dies.

    Exceptions of the call pass through.
    """
    with tempfile.TemporaryDirectory(prefix="dlc-guarded-") as name:
        folder = Path(name)
        exe.save(folder / _EXECUTABLE)
        given = [as_host(array, "an input") for array in arrays]
        (folder / _INPUTS).write_bytes(pickle.dumps((given, exe.num_threads)))
        try:
            done = subprocess.run(
                [sys.executable, "-m", __name__, name],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                capture_output=True,
                timeout=seconds,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise RuntimeFailure(f"the call has not ended within {seconds:g} seconds") from None
        result = folder / _RESULT
        if done.returncode or not result.exists():
            raise crash_error(folder / _FAULT, done.returncode, done.stderr.decode(errors="replace"))
        found: list[NDArray] | DlcError = pickle.loads(result.read_bytes())  # noqa: S301 (written by our own process)
    if isinstance(found, DlcError):
        raise found
    return found


def crash_error(path: Path, status: int, stderr: str) -> RuntimeFailure:
    """The error for a process that ended with a status. `path` is its report file."""
    found = reported(path)
    return RuntimeFailure(
        f"the process of the call {exit_text(status)}",
        details=found.lines() or stderr.splitlines()[-4:],
        hint="exe.source() shows the kernel's code, dlc explain its schedule",
    )


def _run(folder: Path) -> None:
    faulthandler.enable()
    report_to(folder / _FAULT)
    arrays, threads = pickle.loads((folder / _INPUTS).read_bytes())  # noqa: S301 (written by the caller)
    found: Any
    try:
        found = driver.open(folder / _EXECUTABLE, num_threads=threads)(*arrays)
        found = [np.asarray(each) for each in (found if isinstance(found, tuple) else (found,))]
    except DlcError as error:
        found = error
    (folder / _RESULT).write_bytes(pickle.dumps(found))


if __name__ == "__main__":
    _run(Path(sys.argv[1]))

__all__ = ["call_guarded", "crash_error"]
