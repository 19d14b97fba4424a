"""Helpers of immutable nodes: tables with one living object per key, and bounded lists."""

from __future__ import annotations

import os
import weakref
from collections.abc import Hashable
from threading import RLock
from typing import Any, Generic, TypeVar

T = TypeVar("T")

MAX_OPERANDS_LISTED = 32
"""The maximum numbers of variables and of loads in its operands that a node lists. A node with more is
searched by a walk instead, because merging takes quadratic time."""


class _Entry(weakref.ref[Any]):
    """A weak reference that knows its key."""

    __slots__ = ("key",)
    key: Hashable


_LOCK = RLock()
"""The lock of all tables. It is reentrant, because a collection inside `add` may drop entries in the same
thread."""
if hasattr(os, "register_at_fork"):
    # A thread that holds the lock waits for nothing else, so waiting for the lock before a fork is safe.
    os.register_at_fork(before=_LOCK.acquire, after_in_parent=_LOCK.release, after_in_child=_LOCK.release)


class InternTable(Generic[T]):
    """Objects by key, for as long as something else refers to them.

    `entries` is for look-ups that cannot afford a call of `find`:
    `(entry := table.entries.get(key)) is not None and (found := entry()) is not None`.
    """

    __slots__ = ("_drop", "entries")

    def __init__(self) -> None:
        self.entries: dict[Hashable, weakref.ref[T]] = {}

        # Bind the arguments early, because entries are dropped until the very end of the process.
        def drop(entry: Any, entries: dict[Any, Any] = self.entries, lock: Any = _LOCK) -> None:
            with lock:
                key = entry.key
                if entries.get(key) is entry:
                    del entries[key]

        self._drop = drop

    def find(self, key: Hashable) -> T | None:
        """The object with that key, or None."""
        entry = self.entries.get(key)
        return None if entry is None else entry()

    def add(self, key: Hashable, fresh: T) -> T:
        """The object with that key: `fresh`, unless another thread has added one first."""
        entry = _Entry(fresh, self._drop)
        entry.key = key
        with _LOCK:
            old = self.entries.get(key)
            found = None if old is None else old()
            if found is not None:
                return found
            self.entries[key] = entry
        return fresh


def merge_bounded(a: tuple[Any, ...] | None, b: tuple[Any, ...] | None) -> tuple[Any, ...] | None:
    """The distinct members of both, in order; None if there are more than MAX_OPERANDS_LISTED."""
    if a is None or b is None:
        return None
    if not b or a is b:
        return a
    if not a:
        return b
    fresh = [x for x in b if x not in a]
    if not fresh:
        return a
    return (*a, *fresh) if len(a) + len(fresh) <= MAX_OPERANDS_LISTED else None


__all__ = ["MAX_OPERANDS_LISTED", "InternTable", "merge_bounded"]
