"""A check that the events of a device do not complete too early.

Copies wait for launches, so the content of memory does not show an early event. The check measures time: once
an event is complete, waiting for earlier launches takes no time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from dlc_core.diag import RuntimeFailure
from dlc_core.runtime.executable import Executable
from dlc_core.testing.levels.device_models import random_array
from dlc_core.testing.levels.layers import OnDevice, on_device

LAUNCH_SECONDS = 0.02
"""The time for which a launch should keep the device busy."""

ROW_POWERS = range(8, 19, 2)
"""The models have 2^p rows. The largest has 40 MB of inputs."""

MEASURABLE_SECONDS = 1e-3
"""A duration that exceeds the time of a query."""

ATTEMPTS = 5
"""The maximum number of attempts. Other programs may delay one, so one attempt after which no work is left
shows that an event is right.
"""

MEASUREMENTS = 3
"""The number of measurements of a launch. The shortest counts, because other programs delay launches."""

TIMEOUT = 60.0
"""The time limit of an event, in seconds."""

Wait = Callable[[Any], None]


def _wait(event: Any) -> None:
    event.wait()


def _poll(event: Any) -> None:
    deadline = time.monotonic() + TIMEOUT
    while not event.done:
        assert time.monotonic() < deadline, f"an event is not complete within {TIMEOUT:.0f} seconds"
        time.sleep(1e-4)


WAITS: dict[str, Wait] = {"event.wait() returns": _wait, "event.done is True": _poll}


def seconds_left(run: OnDevice, launches: int = 1, wait: Wait | None = None) -> float:
    """The seconds that `sync` takes after launches and, with `wait`, after waiting for a later event."""
    device = run.exe.device
    for _ in range(launches):
        run.launch()
    if wait is not None:
        wait(device.record())
    start = time.perf_counter()
    device.sync()
    return time.perf_counter() - start


def long_launch(exe: Executable) -> tuple[OnDevice, float]:
    """An entry point with enough rows to keep the device busy, and the seconds that a launch takes.

    They count from the return of `launch`. They are fewer than `LAUNCH_SECONDS` if launches return late,
    or if the device is fast even with the most rows that it has memory for.
    """
    (value,) = exe.inputs
    for power in ROW_POWERS:
        shape = tuple(size if isinstance(size, int) else 1 << power for size in value.type.shape)
        try:
            _, run = on_device(exe, random_array(shape, value.type.dtype.numpy, 0))
        except RuntimeFailure:
            if power == ROW_POWERS[0]:
                raise
            break
        seconds_left(run)
        seconds = min(seconds_left(run) for _ in range(MEASUREMENTS))
        if seconds >= LAUNCH_SECONDS:
            break
    return run, seconds


def check_events(run: OnDevice, seconds: float) -> None:
    """Check that no event completes before the earlier launches have finished. A launch takes `seconds`."""
    if seconds < MEASURABLE_SECONDS:
        return
    for event, wait in WAITS.items():
        found = []
        for _ in range(ATTEMPTS):
            found.append(seconds_left(run, 2, wait))
            if found[-1] < seconds / 2:
                break
        else:
            raise AssertionError(
                f"{event} before the launches have finished: after it sync() takes {min(found):.3f} "
                f"seconds, a launch takes {seconds:.3f}"
            )


__all__ = ["check_events", "long_launch"]
