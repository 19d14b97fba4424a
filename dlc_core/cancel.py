"""Cancellation of compiles and calls.

    token = CancelToken()                     or CancelToken(timeout=2.0), in seconds from its creation
    dlc.compile(model, cancel=token)          exe(x, cancel=token)
    with token: ...                           all compiles and calls of this thread or task in the block
    token.cancel()                            from any thread

The work ends with `CancelledError` at its next *checkpoint*: between passes, in loops over nodes and kernels,
and between the steps of a host program. Native code reads the token's *stop word*, an int32 in memory,
between kernels and in long loops. Its bit STOP asks it to stop; its bit LOOK asks the thread that has called
it to run the handlers of signals.
"""

from __future__ import annotations

import ctypes
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar, Token, copy_context
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

from dlc_core.diag import CancelledError, DlcError, UsageError

if TYPE_CHECKING:
    from concurrent.futures import Future

STOP, LOOK = 1, 2
"""Bits of a stop word."""

SECONDS_BETWEEN_CHECKPOINTS = 0.05
"""In threads that wait."""

Result = TypeVar("Result")

_current: ContextVar[CancelToken | None] = ContextVar("dlc_cancel_token", default=None)

current: Callable[[], CancelToken | None] = _current.get
"""The innermost token that is entered in this thread or task, or None."""


class CancelToken:
    """A request to stop, which any thread may make. It stays cancelled; use a new token for new work.

    `timeout` is the time in seconds, from now, after which it is cancelled. Raises UsageError if that is not
    positive.
    """

    def __init__(self, timeout: float | None = None) -> None:
        if timeout is not None and not timeout > 0:
            raise UsageError(f"a timeout of {timeout} seconds", hint="give a positive number, or None")
        self.timeout = timeout
        self._end = None if timeout is None else time.monotonic() + timeout
        self._word = ctypes.c_int32(0)
        self._lock = threading.Lock()
        self._inner: weakref.WeakSet[CancelToken] = weakref.WeakSet()
        self._resets: list[Token[CancelToken | None]] = []

    def cancel(self) -> None:
        """Ask the work under this token to stop. It returns at once; a second call has no effect."""
        with self._lock:
            self._word.value |= STOP
            inner = list(self._inner)
        for token in inner:
            token.cancel()

    @property
    def cancelled(self) -> bool:
        """Whether the token is cancelled, or its time is over."""
        if self.expired:
            self.cancel()
        return bool(self._word.value & STOP)

    def check(self) -> None:
        """Raise CancelledError if the token is cancelled."""
        if (self._word.value & STOP or self._end is not None) and self.cancelled:
            raise self.error()

    @property
    def expired(self) -> bool:
        """Whether its time is over."""
        return self._end is not None and time.monotonic() >= self._end

    def error(self) -> DlcError:
        """The error of work that this token has stopped."""
        if self.expired:
            return CancelledError("the time is over", why=f"the token's timeout is {self.timeout} seconds")
        return CancelledError("the work was cancelled", why="its token was cancelled")

    @property
    def address(self) -> int:
        """The address of the stop word. It is valid as long as the token."""
        return ctypes.addressof(self._word)

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Cancel the token when its time is over, also while this thread is in native code."""
        if self._end is None:
            yield
            return
        timer = threading.Timer(max(0.0, self._end - time.monotonic()), self.cancel)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def __enter__(self) -> CancelToken:
        outer = _current.get()
        if outer is not None and outer is not self:
            with outer._lock:
                outer._inner.add(self)
            if outer.cancelled:
                self.cancel()
        self._resets.append(_current.set(self))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _current.reset(self._resets.pop())


def checkpoint() -> None:
    """Raise CancelledError if the current token is cancelled."""
    token = _current.get()
    if token is not None:
        token.check()


@contextmanager
def shielded() -> Iterator[None]:
    """No token is current in this context. For work whose result outlasts the request for it, such as an
    import: its failure would outlast it, too.
    """
    reset = _current.set(None)
    try:
        yield
    finally:
        _current.reset(reset)


def stoppable(work: Callable[[], Result]) -> Result:
    """The result of `work`, which runs in another thread, with the context variables of this one.

    For long native calls that release the interpreter lock: this thread has a checkpoint every 50 ms, and
    Ctrl-C reaches it at once. Work that is left so runs to its end, and its result is dropped. The process
    does not end before it. `work` must not need a lock that this thread holds.
    """
    results: list[Result] = []
    errors: list[BaseException] = []
    context = copy_context()

    def run() -> None:
        try:
            results.append(context.run(work))
        except BaseException as error:  # noqa: BLE001  (the waiting thread raises it)
            errors.append(error)

    thread = threading.Thread(target=run, name="dlc-stoppable")
    thread.start()
    while thread.is_alive():
        checkpoint()
        thread.join(SECONDS_BETWEEN_CHECKPOINTS)
    if errors:
        raise errors[0]
    return results[0]


def awaited(done: Future[Result]) -> Result:
    """The result of a future, with checkpoints while it is not done."""
    ended = threading.Event()
    done.add_done_callback(lambda _: ended.set())
    while not ended.wait(SECONDS_BETWEEN_CHECKPOINTS):
        checkpoint()
    return done.result()


def entered(token: CancelToken | None) -> AbstractContextManager[object]:
    """A context in which a token is current; None changes nothing."""
    return nullcontext() if token is None else token


__all__ = [
    "LOOK",
    "SECONDS_BETWEEN_CHECKPOINTS",
    "STOP",
    "CancelToken",
    "awaited",
    "checkpoint",
    "current",
    "entered",
    "shielded",
    "stoppable",
]
