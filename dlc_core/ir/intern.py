"""Tables that make structural equality identity: one living object for each key."""

from __future__ import annotations

import weakref
from collections.abc import Hashable
from threading import RLock
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class _Entry(weakref.ref[Any]):
    """A weak reference that knows its key."""

    __slots__ = ("key",)
    key: Hashable


class InternTable(Generic[T]):
    """Objects by key, for as long as something else refers to them.

    `entries` is for look-ups that cannot afford a call of `find`:
    `(entry := table.entries.get(key)) is not None and (found := entry()) is not None`.
    """

    __slots__ = ("_drop", "_lock", "entries")

    def __init__(self) -> None:
        self.entries: dict[Hashable, weakref.ref[T]] = {}
        # Reentrant: a collection inside `add` may drop entries in the same thread.
        self._lock = RLock()

        # Bound early: entries are dropped until the very end of the process.
        def drop(entry: Any, entries: dict[Any, Any] = self.entries, lock: Any = self._lock) -> None:
            with lock:
                key = entry.key
                if entries.get(key) is entry:
                    del entries[key]

        self._drop = drop

    def find(self, key: Hashable) -> T | None:
        """The object of that key, or None."""
        entry = self.entries.get(key)
        return None if entry is None else entry()

    def add(self, key: Hashable, fresh: T) -> T:
        """The object of that key: `fresh`, unless another thread was faster."""
        entry = _Entry(fresh, self._drop)
        entry.key = key
        with self._lock:
            old = self.entries.get(key)
            found = None if old is None else old()
            if found is not None:
                return found
            self.entries[key] = entry
        return fresh


__all__ = ["InternTable"]
