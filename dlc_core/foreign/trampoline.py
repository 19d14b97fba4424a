"""Python functions as C functions, and the errors that they leave.

    address = trampoline(function, python)        a C function that calls a Python function
    run = guarded(call, functions)                `call`, after which an error of a callback is raised

An exception cannot pass through native code. The trampoline keeps it for the thread, returns zero, and
`guarded` raises it when the native code has returned. Until then the thread's other callbacks are skipped. If
a callback runs in another thread, any call that returns raises its error, so that none is lost.

A callback may call other compiled models, or the same one: `guarded` raises an error as soon as the inner
call has returned, so the outer one finds only its own.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from functools import wraps
from typing import Any

import numpy as np

from dlc_core.diag import RuntimeFailure
from dlc_core.foreign.declare import ForeignFunction, PythonCallable
from dlc_core.foreign.prototype import READ, Prototype, shape_of
from dlc_core.ir.dtype import DType

_C_TYPES: dict[str, Any] = {
    "int32": ctypes.c_int32, "uint32": ctypes.c_uint32, "int64": ctypes.c_int64, "uint64": ctypes.c_uint64,
    "float32": ctypes.c_float, "float64": ctypes.c_double,
}  # fmt: skip


class _Pending(threading.local):
    """The error that a callback of this thread has left, and the native calls that wait for it."""

    error: BaseException | None = None
    depth = 0


_pending = _Pending()
_lost: list[BaseException] = []
"""Errors of callbacks in threads without a native call that waits for them."""
_locks: dict[str, threading.RLock] = {}
_making = threading.Lock()
_trampolines: dict[tuple[str, str, int], tuple[Any, Any]] = {}
"""By name, signature and function: the C function, and the function itself. Loaded code may call them until
the process ends, so they are kept."""


def c_function(prototype: Prototype) -> Any:
    """The ctypes type of a function; pointers are addresses."""
    result = None if prototype.result is None else _C_TYPES[prototype.result.name]
    args = [ctypes.c_void_p if p.is_pointer else _C_TYPES[p.dtype.name] for p in prototype.params]
    return ctypes.CFUNCTYPE(result, *args)


def trampoline(function: ForeignFunction, python: PythonCallable) -> int:
    """The address of a C function that calls a Python function with NumPy arrays and numbers."""
    key = function.name, function.signature, id(python.function)
    with _making:
        if key not in _trampolines:
            made = c_function(function.prototype)(_callback(function, python.function))
            _trampolines[key] = made, python
        return ctypes.cast(_trampolines[key][0], ctypes.c_void_p).value or 0


def arrays_of(prototype: Prototype, args: Sequence[Any]) -> list[Any]:
    """The arguments of a Python function: arrays at the addresses, and the numbers."""
    values = {p.name: a for p, a in zip(prototype.params, args, strict=True) if not p.is_pointer}
    return [
        _array(a or 0, shape_of(p, values), p.dtype, p.how == READ) if p.is_pointer else a
        for p, a in zip(prototype.params, args, strict=True)
    ]


def call_python(function: ForeignFunction, python: Callable[..., Any], args: Sequence[Any]) -> Any:
    """Call a Python function, and convert its result. Raises RuntimeFailure for an exception."""
    result = function.prototype.result
    try:
        value = python(*args)
        if result is None:
            return None
        return float(value) if result.is_float else int(value)
    except Exception as error:
        what = f"foreign function {function.name!r} failed"
        raise RuntimeFailure(what, why=f"{type(error).__name__}: {error}") from error


def guarded(call: Callable[..., int], functions: Iterable[ForeignFunction]) -> Callable[..., int]:
    """A native call that raises the errors of its callbacks, and does not overlap with other calls of those
    functions that are not thread-safe.
    """
    with _making:
        names = sorted(f.name for f in functions if not f.thread_safe)
        locks = [_locks.setdefault(name, threading.RLock()) for name in names]

    @wraps(call)
    def run(*args: Any) -> int:
        with ExitStack() as held:
            for lock in locks:
                held.enter_context(lock)
            _pending.depth += 1
            try:
                status = call(*args)
            finally:
                _pending.depth -= 1
                error, _pending.error = _pending.error, None
        if _lost:
            error = error or _lost[0]
            _lost.clear()
        if error is not None:
            raise error
        return status

    return run


def _callback(function: ForeignFunction, python: Callable[..., Any]) -> Callable[..., Any]:
    prototype = function.prototype

    def run(*args: Any) -> Any:
        if _pending.error is not None or (_lost and not _pending.depth):
            return 0
        try:
            return call_python(function, python, arrays_of(prototype, args)) or 0
        except BaseException as error:  # noqa: BLE001  (nothing may pass through native code)
            if _pending.depth:
                _pending.error = error
            else:
                _lost.append(error)
            return 0

    return run


def _array(address: int, shape: tuple[int, ...], type_: DType, read_only: bool) -> np.ndarray[Any, Any]:
    """The array at an address. It is a view, valid during the call."""
    size = int(np.prod(shape, dtype=np.int64)) * type_.itemsize
    memory: Any = (ctypes.c_uint8 * size).from_address(address) if size else bytearray()
    array = np.frombuffer(memory, np.uint8).view(type_.numpy).reshape(shape)
    array.flags.writeable = not read_only
    return array


__all__ = ["arrays_of", "c_function", "call_python", "guarded", "trampoline"]
