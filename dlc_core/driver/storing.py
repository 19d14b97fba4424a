"""Storing of a compiled model in the cache, in the background if it is large.

    store(exe, Store(), key, parts)      says in `exe.report["cache"]` what became of it
    wait()                               until every result is stored

Writing the weights of a large model takes as long as its compile.  So a thread of low priority does it, while
the caller already runs the model.  `exe.report["cache"]` is "storing" until then.  A later compile, and the
end of the process, wait for it; so do time measurements, which it would disturb.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from typing import Any

from dlc_core.diag import DlcError
from dlc_core.driver.cache import Store
from dlc_core.runtime.artefact.saving import Saved
from dlc_core.runtime.executable import Executable

LARGE = 1 << 25
"""Bytes of weights from which a thread stores a result.  Writing less takes less than 0.1 s."""
_NICENESS = 10
"""Added to that of the process, so that the model's own threads come first."""
_running: set[threading.Thread] = set()


def store(exe: Executable, cache: Store, key: str, parts: Mapping[str, Any]) -> None:
    """Store an executable and the parts of its key.

    `exe.report["cache"]` becomes "stored", "storing" while a thread does it, or "not stored: " with a reason:
    a cache that cannot be written never fails a compile.
    """
    if exe.weights.nbytes < LARGE:
        exe.report["cache"] = _put(exe, cache, key, parts)
        return
    # The settings of the cache are those of the caller.
    put = partial(copy_context().run, _put_later, exe, cache, key, parts)
    thread = threading.Thread(target=put, name="dlc-store")
    exe.weights.flags.writeable = False
    exe.report["cache"] = "storing"
    exe.background = thread.join
    _running.add(thread)
    try:
        thread.start()
    except RuntimeError:  # there are too many threads, or the process ends
        _running.discard(thread)
        exe.background = None
        exe.report["cache"] = _put(exe, cache, key, parts)


def wait() -> None:
    """Wait until every result is stored."""
    for thread in list(_running):
        thread.join()


def _put_later(exe: Executable, cache: Store, key: str, parts: Mapping[str, Any]) -> None:
    if sys.platform == "linux":  # elsewhere the priority would be that of the process
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
    state = "not stored: unexpected error"
    try:
        state = _put(exe, cache, key, parts)
    finally:
        exe.report["cache"] = state
        exe.background = None
        _running.discard(threading.current_thread())


def _put(exe: Executable, cache: Store, key: str, parts: Mapping[str, Any]) -> str:
    try:
        cache.put(key, exe, parts)
        _map_weights(exe, cache.get(key))
    except DlcError as error:
        return f"not stored: {error.what}"
    return "stored"


def _map_weights(exe: Executable, cached: Saved | None) -> None:
    """Map the weights from the file that was just written, so that processes share their memory."""
    if cached is not None and cached.weights.nbytes == exe.weights.nbytes:
        exe.replace_weights(cached.weights)
        for name, part in cached.regions.items():
            _map_weights(exe.regions[name], part)
        for name, part in cached.parts.items():
            _map_weights(exe.parts[name], part)


__all__ = ["LARGE", "store", "wait"]
