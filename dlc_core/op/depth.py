"""The depth of calls of graph functions by name, which may be recursive."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from dlc_core.config import config
from dlc_core.diag import RuntimeFailure

FRAMES = 24
"""Python frames of one call, at most: those of the steps, of control flow, and of NumPy's callbacks."""

_depth = threading.local()


@contextmanager
def nested_call(name: str) -> Iterator[None]:
    """The time of a call. Raises RuntimeFailure if `config.max_call_depth` calls are active."""
    depth = getattr(_depth, "calls", 0)
    most = config.max_call_depth
    if depth >= most:
        raise RuntimeFailure(
            f"{name} calls itself more than {most} times without returning",
            hint="check the condition that ends the recursion, raise DLC_MAX_CALL_DEPTH, or use while_",
        )
    needed = FRAMES * most
    if sys.getrecursionlimit() < needed:
        sys.setrecursionlimit(needed)
    _depth.calls = depth + 1
    try:
        yield
    finally:
        _depth.calls = depth


__all__ = ["nested_call"]
