"""A check from outside of a device that events do not complete too early.

Copies wait for launches, so the content of memory does not show an early event. Time does: once an event is
complete, waiting for earlier launches takes no time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from dlc_core.runtime.executable import Executable
from dlc_core.testing.levels.layers import OnDevice, inputs, on_device

LONG = 0.02
"""Seconds for which a launch shall keep the device busy."""

ROWS = range(8, 19, 2)
"""Powers of two: rows of the models that are tried, at most 40 MB of inputs."""

SEEN = 1e-3
"""Seconds of work that exceed the time of a query."""

ATTEMPTS = 5
"""The machine may do something else at any moment: one attempt without work left proves an event right."""

MEASUREMENTS = 3
"""How often the time of a launch is taken.  The shortest counts: other work makes launches seem longer."""

PATIENCE = 60.0
"""Seconds until an event counts as one that is never reached."""

Reached = Callable[[Any], None]


def _waited(event: Any) -> None:
    event.wait()


def _polled(event: Any) -> None:
    until = time.monotonic() + PATIENCE
    while not event.done:
        assert time.monotonic() < until, f"an event is not reached within {PATIENCE:.0f} seconds"
        time.sleep(1e-4)


WAYS: dict[str, Reached] = {"event.wait() returns": _waited, "event.done is True": _polled}


def seconds_left(run: OnDevice, launches: int = 1, reached: Reached | None = None) -> float:
    """The seconds that `sync` takes after launches and, with `reached`, a later event."""
    device = run.exe.device
    for _ in range(launches):
        run.launch()
    if reached is not None:
        reached(device.record())
    start = time.perf_counter()
    device.sync()
    return time.perf_counter() - start


def long_launch(exe: Executable) -> tuple[OnDevice, float]:
    """An entry point with enough rows that a launch keeps the device busy, and the seconds that it does.

    The seconds count from the return of the launch.  They are fewer than `LONG` where launches return late,
    and where the device is fast and `ROWS` ends.
    """
    for power in ROWS:
        _, run = on_device(exe, inputs(1 << power))
        seconds_left(run)
        left = min(seconds_left(run) for _ in range(MEASUREMENTS))
        if left >= LONG:
            break
    return run, left


def check_events(run: OnDevice, left: float) -> None:
    """Check that no event completes before the earlier launches have finished, which takes `left` seconds."""
    if left < SEEN:
        return
    for event, reached in WAYS.items():
        found = []
        for _ in range(ATTEMPTS):
            found.append(seconds_left(run, 2, reached))
            if found[-1] < left / 2:
                break
        else:
            raise AssertionError(
                f"{event} before the launches have finished: after it sync() takes {min(found):.3f} "
                f"seconds, a launch takes {left:.3f}"
            )


__all__ = ["check_events", "long_launch"]
