"""CUDA graphs: the few functions of the driver for them, which pycuda lacks.

In capture mode a stream records the submitted work instead of running it. The resulting graph is launched as
a whole.
[1] CUDA Driver API, sections Stream Management and Graph Management.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from weakref import finalize

from dlc_core.diag import RuntimeFailure

_NAMES = ("nvcuda.dll",) if sys.platform == "win32" else ("libcuda.so.1", "libcuda.so")
_FUNCTIONS = (
    "cuStreamBeginCapture_v2",
    "cuStreamEndCapture",
    "cuGraphInstantiateWithFlags",
    "cuGraphLaunch",
    "cuGraphExecDestroy",
    "cuGraphDestroy",
)
_OWN_THREAD = 1
"""Of the modes of capture: other threads may go on calling the driver."""


def library() -> Any:
    """This machine's driver; None where there is none."""
    for name in _NAMES:
        with suppress(OSError):
            return ctypes.CDLL(name)
    return None


class Graphs:
    """The functions for graphs of one driver."""

    def __init__(self, library: Any) -> None:
        self._library = library
        self.destroy = library.cuGraphExecDestroy

    @staticmethod
    def found() -> Graphs | None:
        """Those of this machine's driver; None where it is too old to have them."""
        found = library()
        return Graphs(found) if all(hasattr(found, each) for each in _FUNCTIONS) else None

    def captured(self, stream: int, submit: Callable[[], None]) -> Graph:
        """Capture the work that `submit` gives the stream as a graph.  RuntimeFailure if the driver refuses
        it.
        """
        made, ready = ctypes.c_void_p(), ctypes.c_void_p()
        self.call("cuStreamBeginCapture_v2", ctypes.c_void_p(stream), _OWN_THREAD)
        try:
            submit()
        finally:
            # Also after an error, so that the stream is of use again.
            self.call("cuStreamEndCapture", ctypes.c_void_p(stream), ctypes.byref(made))
        try:
            self.call("cuGraphInstantiateWithFlags", ctypes.byref(ready), made, ctypes.c_ulonglong(0))
        finally:
            self.call("cuGraphDestroy", made)
        return Graph(self, ready)

    def call(self, name: str, *args: Any) -> None:
        """A function of the driver; RuntimeFailure where it fails."""
        status = getattr(self._library, name)(*args)
        if status:
            raise RuntimeFailure(f"the driver of CUDA failed: {name} gives the error {status}")


class Graph:
    """Launches that are submitted as one."""

    def __init__(self, graphs: Graphs, ready: ctypes.c_void_p) -> None:
        self._graphs = graphs
        self._ready = ready
        finalize(self, graphs.destroy, ready).atexit = False

    def launch(self, stream: int) -> None:
        """Have it run after everything that the stream has."""
        self._graphs.call("cuGraphLaunch", self._ready, ctypes.c_void_p(stream))


__all__ = ["Graph", "Graphs", "library"]
