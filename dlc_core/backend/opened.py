"""Devices of this machine that are opened on first use, and events in their queues."""

from __future__ import annotations

import os
import threading
import time
from abc import abstractmethod
from collections.abc import Hashable
from typing import Any, Generic, TypeVar

from dlc_core.diag import RuntimeFailure

S = TypeVar("S")
_LOOKS = 2e-4
"""The seconds between polls of an event in a wait with a timeout."""


class PolledEvent:
    """An event that is polled. A subclass defines `done` and `finish`."""

    @property
    @abstractmethod
    def done(self) -> bool:
        """Whether all earlier work has finished."""

    @abstractmethod
    def finish(self) -> None:
        """Wait until all earlier work has finished. Raises RuntimeFailure if some of it failed."""

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until all earlier work has finished. Returns False after `timeout` seconds. Raises
        RuntimeFailure if some of it failed.
        """
        end = None if timeout is None else time.monotonic() + timeout
        while end is not None and not self.done:
            if time.monotonic() > end:
                return False
            time.sleep(_LOOKS)
        self.finish()
        return True


class OpenedDevice(Generic[S]):
    """A device that is opened on first use. Options of the target select one of several devices.

    A subclass defines `opened`, which opens the device, and `another`, which returns another device.
    """

    name: str
    queued = True

    def __init__(self, which: Hashable) -> None:
        self.which = which
        self._others: dict[Hashable, Any] = {which: self}
        # The garbage collector may free an array, which needs the session, in a thread that has the lock.
        self._lock = threading.RLock()
        self._opened: tuple[S, int] | None = None

    @abstractmethod
    def opened(self) -> S:
        """The session of the device. Raises UnsupportedError if its driver or packages are missing, and
        TargetError if there is no such device.
        """

    @abstractmethod
    def another(self, which: Hashable) -> Any:
        """Another device, which is not opened yet. `which` identifies it."""

    def like(self, which: Hashable) -> Any:
        """The device that `which` identifies. The same object is returned for equal `which`."""
        with self._lock:
            if which not in self._others:
                self._others[which] = self.another(which)
            return self._others[which]

    @property
    def is_open(self) -> bool:
        """Whether the device has been opened."""
        return self._opened is not None

    @property
    def session(self) -> S:
        """The session, which is opened if necessary. Raises the errors of `opened`, and RuntimeFailure in a
        fork of the process that opened it.
        """
        with self._lock:
            if self._opened is None:
                self._opened = self.opened(), os.getpid()
            session, process = self._opened
            if process != os.getpid():
                raise RuntimeFailure(
                    f"device {self.name!r} was opened before this process was forked",
                    why="its driver does not work after a fork",
                    hint='start processes by "spawn", or use the device only in child processes',
                )
            return session


__all__ = ["OpenedDevice", "PolledEvent"]
