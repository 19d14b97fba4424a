"""CUDA graphs: the functions of the driver that pycuda lacks.

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
"""The capture mode `CU_STREAM_CAPTURE_MODE_THREAD_LOCAL`: other threads may call the driver
during a capture.
"""


def library() -> Any:
    """The driver library of this machine; None if there is none."""
    for name in _NAMES:
        with suppress(OSError):
            return ctypes.CDLL(name)
    return None


class Graphs:
    """The graph functions of a driver."""

    def __init__(self, library: Any) -> None:
        self._library = library
        self.destroy = library.cuGraphExecDestroy

    @staticmethod
    def found() -> Graphs | None:
        """The graph functions of this machine's driver; None if it is too old to have them."""
        found = library()
        return Graphs(found) if all(hasattr(found, each) for each in _FUNCTIONS) else None

    def captured(self, stream: int, submit: Callable[[], None]) -> Graph:
        """Capture the work that `submit` submits to the stream as a graph. Raises RuntimeFailure if the
        driver refuses.
        """
        made, ready = ctypes.c_void_p(), ctypes.c_void_p()
        self.call("cuStreamBeginCapture_v2", ctypes.c_void_p(stream), _OWN_THREAD)
        try:
            submit()
        finally:
            # End the capture after an error too, so that the stream can be used again.
            self.call("cuStreamEndCapture", ctypes.c_void_p(stream), ctypes.byref(made))
        try:
            self.call("cuGraphInstantiateWithFlags", ctypes.byref(ready), made, ctypes.c_ulonglong(0))
        finally:
            self.call("cuGraphDestroy", made)
        return Graph(self, ready)

    def call(self, name: str, *args: Any) -> None:
        """Call a function of the driver. Raises RuntimeFailure if it fails."""
        status = getattr(self._library, name)(*args)
        if status:
            raise RuntimeFailure(f"the CUDA driver failed: {name} returned the error {status}")


class Graph:
    """Launches that are submitted together."""

    def __init__(self, graphs: Graphs, ready: ctypes.c_void_p) -> None:
        self._graphs = graphs
        self._ready = ready
        finalize(self, graphs.destroy, ready).atexit = False

    def launch(self, stream: int) -> None:
        """Enqueue the graph in a stream."""
        self._graphs.call("cuGraphLaunch", self._ready, ctypes.c_void_p(stream))


__all__ = ["Graph", "Graphs", "library"]
