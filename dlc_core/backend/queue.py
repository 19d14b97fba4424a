"""Command queues. Commands run asynchronously and in order on a thread of the queue."""

from __future__ import annotations

import os
import queue
import threading
import time
import weakref
from collections.abc import Callable

from dlc_core.diag import DlcError, RuntimeFailure

Job = Callable[[], None]


class Event:
    """A position in a queue. `time` is the `time.perf_counter()` at which it was reached; 0 until then."""

    def __init__(self) -> None:
        self.time = 0.0
        self._reached = threading.Event()

    def _reach(self) -> None:
        """Mark the position as reached."""
        self.time = time.perf_counter()
        self._reached.set()

    @property
    def done(self) -> bool:
        """Whether all earlier jobs have finished."""
        return self._reached.is_set()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until all earlier jobs have finished. Returns False after `timeout` seconds."""
        return self._reached.wait(timeout)


class CommandQueue:
    """Runs jobs one after the other.

    `wait` waits for the jobs of the calling thread, and raises the exception of the first of them that failed
    since the last `wait`. In a forked process the queue is empty.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._reset()
        _QUEUES.add(self)

    def _reset(self) -> None:
        # The garbage collector may submit the freeing of an array in a thread that is inside `submit`, so the
        # lock is reentrant, and the queue's `put` is too.
        self._lock = threading.RLock()
        self._jobs: queue.SimpleQueue[tuple[int, Job]] = queue.SimpleQueue()
        self._failed: dict[int, DlcError] = {}
        self._started = False

    def submit(self, job: Job) -> None:
        """Enqueue a job."""
        with self._lock:
            if not self._started:
                self._started = True
                worker = threading.Thread(target=self._work, args=(self._jobs,), name=self.name, daemon=True)
                worker.start()
            self._jobs.put((threading.get_ident(), job))

    def record(self) -> Event:
        """An event that is reached when all jobs submitted so far have finished."""
        event = Event()
        self.submit(event._reach)
        return event

    def wait(self) -> None:
        """Wait for all jobs submitted so far. Raises the first error of the calling thread's jobs."""
        self.record().wait()
        failure = self._failed.pop(threading.get_ident(), None)
        if failure is not None:
            raise failure

    def _work(self, jobs: queue.SimpleQueue[tuple[int, Job]]) -> None:
        while True:
            owner, job = jobs.get()
            try:
                job()
            except DlcError as error:
                self._failed.setdefault(owner, error)
            except Exception as error:  # noqa: BLE001 - it is raised in the thread that waits
                failure = RuntimeFailure(f"a command of {self.name} failed", why=f"{error!r}")
                self._failed.setdefault(owner, failure)


_QUEUES: weakref.WeakSet[CommandQueue] = weakref.WeakSet()


def _in_child() -> None:
    """Reset the queues in a forked process, because their threads only exist in the parent."""
    for each in _QUEUES:
        each._reset()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)

__all__ = ["CommandQueue", "Event", "Job"]
