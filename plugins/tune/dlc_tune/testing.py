"""Faults for tests of measurers: kernels whose builds or runs fail in worker processes.

    LocalMeasurer(setup=faults)      jobs of a kernel named "run_segfault" then crash when they run

The name of a kernel is `build_FAULT` or `run_FAULT`, with FAULT a key of FAULTS or "wrong". With
`setup=full_disk` the processes cannot write files.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

import numpy as np

from dlc_core.op.declare import NDArray
from dlc_core.tir.stmt import PrimFunc
from dlc_tune.measuring import build, worker
from dlc_tune.measuring.execute import Run
from dlc_tune.measuring.job import Job
from dlc_tune.measuring.kernel import is_of_model

WRONG = "wrong"
"""The fault of runs whose results are wrong."""


def _allocate() -> None:
    held: list[NDArray] = []
    while len(held) < 1 << 12:
        held.append(np.empty(1 << 28, np.uint8))


def _bad_alloc() -> None:
    """End as native code does that gets no memory."""
    os.write(2, b"terminate called after throwing an instance of 'std::bad_alloc'\n")
    os.abort()


def full_disk() -> None:
    """Let this process write no file of more than 100 bytes."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))


FAULTS: Mapping[str, Callable[[], object]] = MappingProxyType(
    {
        "segfault": lambda: ctypes.string_at(0),
        "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
        "exit": lambda: os._exit(0),
        "abort": os.abort,
        "bad_alloc": _bad_alloc,
        "hang": lambda: time.sleep(1000),
        "allocate": _allocate,
        "raise": lambda: [][0],
    }
)


class FaultyRun(Run):
    """A run with the fault that the name of its kernel names."""

    def __init__(self, path: Path, job: Job, flush: bool = False, beside: Run | None = None) -> None:
        _fail(job.func.name, "run_")
        super().__init__(path, job, flush, beside)
        self._is_wrong = job.func.name == f"run_{WRONG}"

    def results(self) -> tuple[NDArray, ...]:
        return tuple(each + 1 if self._is_wrong else each for each in super().results())


def faults() -> None:
    """Let the kernels with names of faults fail in this process."""

    def faulty(func: PrimFunc) -> bool:
        _fail(func.name, "build_")
        return is_of_model(func)

    vars(build)["is_of_model"] = faulty
    vars(worker)["Run"] = FaultyRun


def _fail(name: str, stage: str) -> None:
    fault = FAULTS.get(name.removeprefix(stage)) if name.startswith(stage) else None
    if fault is not None:
        fault()


__all__ = ["FAULTS", "WRONG", "FaultyRun", "faults", "full_disk"]
