"""Stopping native calls in this process: by the current cancel token, and by Ctrl-C.

A call under a token has the token's stop word. Other calls of the process's first thread share a word, and
other threads have one that is never set. When a signal arrives during a call of the first thread, that thread
runs the Python handlers of signals at its next stop point. If a handler raises, as the default one of SIGINT
does, the call ends, and the exception is raised here.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Generator
from typing import Any

from dlc_backend_llvm.form import STOPPED
from dlc_backend_llvm.loaded import Loaded
from dlc_backend_llvm.pool_text import STOP_SYMBOLS
from dlc_core.cancel import current
from dlc_core.diag import CancelledError, DlcError
from dlc_core.runtime.guard.failures import status_failure

_LOOK = ctypes.CFUNCTYPE(ctypes.c_int32)
_CALL = ctypes.CFUNCTYPE(
    *(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p)
)
_raised: list[BaseException] = []
"""The exception of a handler of signals, from its call until the native call has ended."""


def _looking() -> Generator[int, None, None]:
    """Run the handlers of pending signals at each step, and yield whether one has raised.

    The interpreter may run a handler as soon as Python code runs. A function that is called would not be in
    its `try` yet; a generator that is resumed is.
    """
    stop = 0
    while True:
        try:
            yield stop
            stop = 0
            ctypes.pythonapi.PyErr_CheckSignals()
        except GeneratorExit:
            return
        except BaseException as error:  # noqa: BLE001  (it is raised again after the call)
            _raised[:] = [error]
            stop = 1


_STEPS = _looking()
next(_STEPS)
_LOOKS = _LOOK(_STEPS.__next__)


class Stopping:
    """The functions of the pool that stop calls. The pool exists as long as the process."""

    def __init__(self, pool: Loaded) -> None:
        _, _, _, register, clear, call = (pool.address(name) for name in STOP_SYMBOLS)
        self._clear = ctypes.CFUNCTYPE(None)(clear)
        self._call = _CALL(call)
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(register)(ctypes.cast(_LOOKS, ctypes.c_void_p))

    def under_token(self, address: int) -> Callable[[Any, Any, int], int]:
        """The call of an entry point under the current token, which there must be."""
        call = self._call

        def run(pointers: Any, scalars: Any, threads: int) -> int:
            token = current()
            assert token is not None
            token.check()
            with token.timed():
                return int(call(address, pointers, scalars, threads, token.address))

        return run

    def clear(self) -> None:
        """Let the first thread's calls run again."""
        self._clear()


def failure(symbol: str, status: int, stopping: Stopping | None) -> BaseException:
    """The exception for the status of an entry point: that of a signal's handler, CancelledError, or a
    RuntimeFailure.
    """
    if status != STOPPED or stopping is None:
        return status_failure(symbol, status)
    stopping.clear()
    if _raised:
        return _raised.pop()
    token = current()
    error: DlcError = (
        CancelledError(f"the call of {symbol} was cancelled") if token is None else token.error()
    )
    error.details += ("its results are undefined; the executable can be called again",)
    return error


__all__ = ["Stopping", "failure"]
