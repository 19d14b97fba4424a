"""The time limits of the conformance kit, in seconds of the clock.

A case that takes longer than `CASE_SECONDS` of its level fails with its name. `LEVEL_SECONDS` is the expected
maximum of a whole level for a target that takes some operations only, on two cores; a level that takes longer
is marked in the summary. `--dlc-limit-factor` multiplies both, for slow simulators.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

CASE_SECONDS = {"device": 60, "ops": 60, "graphs": 60, "models": 300, "hostile": 120, "speed": 120}
"""The time limit of a case, by level."""

LEVEL_SECONDS = {"device": 60, "ops": 480, "graphs": 240, "models": 420, "hostile": 120, "speed": 120}
"""The expected maximum time of all cases of a level. Levels 0 to 3 together have 20 minutes."""

HANG_FACTOR = 4
"""An isolated test without progress for so many limits of a case is ended: native code cannot be
interrupted, and models of an op are compiled together before their cases run."""

_FACTORS = [1.0]


class CaseTooLong(Exception):
    """A case that takes longer than its limit."""


@contextmanager
def scaled(factor: float) -> Iterator[None]:
    """Multiply all limits within this context."""
    _FACTORS.append(factor)
    try:
        yield
    finally:
        _FACTORS.pop()


def case_seconds(level: str) -> float:
    """The time limit of a case of a level; that of `ops` for cases outside of the levels."""
    return CASE_SECONDS.get(level, CASE_SECONDS["ops"]) * _FACTORS[-1]


@contextmanager
def limited(case: str, level: str) -> Iterator[None]:
    """Raise CaseTooLong if the body takes longer than a case of the level may.

    In the main thread of POSIX systems a timer interrupts the body as soon as it runs Python code. Elsewhere,
    and if the timer is in use, the time is checked at the end.
    """
    seconds = case_seconds(level)
    limit = f"{seconds:g} s, the time limit of a case of level {level!r}"
    what = f"{case} takes longer than {limit}; --dlc-limit-factor multiplies it"

    stopped: list[bool] = []

    def stop(number: int, frame: FrameType | None) -> None:
        stopped.append(True)
        raise CaseTooLong(what)

    start = time.monotonic()
    with _timer(seconds, stop):
        yield
    if not stopped and time.monotonic() - start > seconds:
        raise CaseTooLong(what)


@contextmanager
def _timer(seconds: float, stop: Any) -> Iterator[None]:
    alarm = getattr(signal, "SIGALRM", None)
    main = threading.current_thread() is threading.main_thread()
    if alarm is None or not main or signal.getsignal(alarm) not in (signal.SIG_DFL, signal.SIG_IGN):
        yield
        return
    previous = signal.signal(alarm, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(alarm, previous)


__all__ = ["CASE_SECONDS", "HANG_FACTOR", "LEVEL_SECONDS", "CaseTooLong", "case_seconds", "limited", "scaled"]
