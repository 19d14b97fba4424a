"""Calls of graph functions by name, which may be recursive.

Each call takes several frames of Python and C. So that neither Python's limit of frames nor the stack of a
thread is exceeded, the calls of a deep recursion are divided among threads, each of which waits for the next.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import ContextVar, copy_context
from typing import TypeVar

from dlc_core.config import config
from dlc_core.diag import RuntimeFailure

T = TypeVar("T")

CALLS_OF_A_THREAD = 16
"""The most nested calls of one thread. A call takes up to 30 frames; Python allows a thread 1000."""

_depth: ContextVar[int] = ContextVar("dlc_call_depth", default=0)


def nested_call(name: str, call: Callable[[], T]) -> T:
    """The result of a call of the function `name`.

    Raises RuntimeFailure if `config.max_call_depth` calls are active.
    """
    depth = _depth.get()
    if depth >= config.max_call_depth:
        raise RuntimeFailure(
            f"{name} calls itself more than {config.max_call_depth} times without returning",
            hint="check the condition that ends the recursion, raise DLC_MAX_CALL_DEPTH, or use while_",
        )
    token = _depth.set(depth + 1)
    try:
        return _in_a_thread(call) if (depth + 1) % CALLS_OF_A_THREAD == 0 else call()
    finally:
        _depth.reset(token)


def _in_a_thread(call: Callable[[], T]) -> T:
    """Run a function in a thread of its own, in this context."""
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(call())
        except BaseException as error:  # noqa: BLE001 (it is raised in the calling thread)
            errors.append(error)

    thread = threading.Thread(target=copy_context().run, args=(run,), name="dlc-recursion")
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]


__all__ = ["nested_call"]
