"""Devices of this machine that are opened on first use, and marks in their queues."""

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
"""Seconds between looks at an event that is waited for so long and no longer."""


class PolledEvent:
    """A place in a queue that is asked whether it has been reached; a subclass gives `done` and `finish`."""

    @property
    @abstractmethod
    def done(self) -> bool:
        """Whether everything that was submitted before has finished."""

    @abstractmethod
    def finish(self) -> None:
        """Wait until it has; RuntimeFailure for what failed."""

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it has; False where `timeout` seconds did not do.  RuntimeFailure for what failed."""
        end = None if timeout is None else time.monotonic() + timeout
        while end is not None and not self.done:
            if time.monotonic() > end:
                return False
            time.sleep(_LOOKS)
        self.finish()
        return True


class OpenedDevice(Generic[S]):
    """A device that is opened on first use. The target's options select among several of its kind.

    A subclass defines `opened`, and makes other devices of its kind by `another`.
    """

    name: str
    queued = True

    def __init__(self, which: Hashable) -> None:
        self.which = which
        self._others: dict[Hashable, Any] = {which: self}
        self._lock = threading.Lock()
        self._opened: tuple[S, int] | None = None

    @abstractmethod
    def opened(self) -> S:
        """The session of the device. Raises UnsupportedError if its driver or packages are missing, and
        TargetError if there is no such device.
        """

    @abstractmethod
    def another(self, which: Hashable) -> Any:
        """A device of this kind that options name, unopened."""

    def like(self, which: Hashable) -> Any:
        """The device that options name, always the same one."""
        with self._lock:
            if which not in self._others:
                self._others[which] = self.another(which)
            return self._others[which]

    @property
    def is_open(self) -> bool:
        """Whether it has been used."""
        return self._opened is not None

    @property
    def session(self) -> S:
        """The session in use.  Raises as `opened` does, and RuntimeFailure in a child of the process that
        opened it.
        """
        with self._lock:
            if self._opened is None:
                self._opened = self.opened(), os.getpid()
            session, process = self._opened
            if process != os.getpid():
                raise RuntimeFailure(
                    f"device {self.name!r} was opened before this process was forked",
                    why="its driver does not outlive a fork",
                    hint='start processes by "spawn", or use the device in children only',
                )
            return session


__all__ = ["OpenedDevice", "PolledEvent"]
