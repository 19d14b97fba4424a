"""The record of calls: the time of each segment, host op and copy between memories.

A recorded call makes the steps of an ordinary one (`recording`). If it is *serial*, it waits for the device
before and after each segment and copy, so that each has its own time, and reads the device's cycle counter.
Else it runs as ordinary calls do, and marks in the queues of devices give the times at which work began and
ended.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any, TypeVar

import numpy as np

from dlc_core.runtime.artefact.compiled import LoadableModel
from dlc_core.runtime.call.checked import Caller, Host, device_errors
from dlc_core.runtime.call.copying import Copying
from dlc_core.runtime.measure.kernels import device_name
from dlc_core.runtime.measure.profile import CLOCK, CODE, COUNTER, DEVICE
from dlc_core.runtime.measure.timeline import HOST, HOST_OP, SEGMENT, TRANSFER, Span

Made = TypeVar("Made")


@dataclass
class Tally:
    """The sums of recorded calls for a segment, a host op, or copies of one size between two devices."""

    calls: int = 0
    seconds: float = 0.0
    cycles: int = 0
    """By the device's counter; 0 if it has none."""
    dims: Mapping[str, int] = field(default_factory=dict)
    """The sizes of the dims of the last call."""


@dataclass
class Unit:
    """A segment, as recorded calls run it."""

    name: str
    """Its name as in `kernels.Entry`."""
    owner: LoadableModel
    caller: Caller
    sites: int
    """The number of its kernel calls that are known."""
    profiled: Any
    """Its instrumented entry point; None if there is none."""
    tally: Tally = field(default_factory=Tally)
    figures: Host = field(init=False)
    """The nanoseconds and the calls of each kernel; see `runtime.device`."""

    def __post_init__(self) -> None:
        self.figures = np.zeros((max(1, self.sites), 2), np.int64)

    @property
    def device(self) -> Any:
        return self.owner.device

    @property
    def measures_kernels(self) -> bool:
        """Whether the device measures each kernel."""
        return bool(self.sites) and isinstance(self.caller, Copying) and hasattr(self.device, "measure")

    @property
    def method(self) -> str:
        """The way in which its time was measured."""
        if self.profiled is not None:
            return CODE
        if self.measures_kernels:
            return DEVICE
        return COUNTER if self.tally.cycles else CLOCK


class Recorder:
    """Collects what recorded calls report, and the spans of the last one."""

    def __init__(self) -> None:
        self.serial = True
        self.host: dict[tuple[int, int], Tally] = {}
        """For each executable with a host program (by `id`), and index of `host_nodes`."""
        self.copies: dict[tuple[str, str, int], Tally] = {}
        """For each source, destination and number of bytes."""
        self.spans: list[Callable[[], Span]] = []
        self._waiters: dict[int, ThreadPoolExecutor] = {}
        self.origin = 0.0

    def begin(self, serial: bool) -> None:
        """Begin a call."""
        self.serial = serial
        self.spans = []
        self.origin = time.perf_counter()

    def timeline(self) -> tuple[Span, ...]:
        """The spans of the last call, by start. All of its work must have finished."""
        found = sorted((span() for span in self.spans), key=lambda span: (span.start, span.end))
        for waiter in self._waiters.values():
            waiter.shutdown()
        self._waiters.clear()
        return tuple(found)

    def mark(self, device: Any, queued: bool) -> Callable[[], float]:
        """The time at which all earlier work of a device has finished, as a function. Without `queued` it is
        the present time.
        """
        record = getattr(device, "record", None) if queued else None
        if record is None:
            now = time.perf_counter()
            return lambda: now
        event = record()
        if hasattr(event, "time"):

            def noted() -> float:
                event.wait()
                return float(event.time)

            return noted

        def seen() -> float:
            event.wait()
            return time.perf_counter()

        waiter = self._waiters.get(id(device))
        if waiter is None:
            waiter = self._waiters[id(device)] = ThreadPoolExecutor(1, "dlc-marks")
        return waiter.submit(seen).result

    def add_span(
        self, begun: float, before: Callable[[], float], after: Callable[[], float], **facts: Any
    ) -> None:
        """Record a span from `begun`, or from the later time `before`, to `after`."""

        def made() -> Span:
            start = max(begun, before())
            first, last = (1e3 * (each - self.origin) for each in (start, max(start, after())))
            return Span(start=first, end=last, **facts)

        self.spans.append(made)

    def copy(
        self, source: str, destination: str, size: int, devices: Sequence[Any], run: Callable[[], Made]
    ) -> Made:
        """Run a copy of `size` bytes, by the first of `devices`, and record it unless it returns None."""
        if self.serial:
            _wait(devices)
        begun = time.perf_counter()
        marks = [self.mark(device, not self.serial) for device in devices]
        made = run()
        if made is None:
            return made
        if self.serial:
            _wait(devices)
        now = time.perf_counter()
        if self.serial:
            tally = self.copies.setdefault((source, destination, size), Tally())
            tally.calls += 1
            tally.seconds += now - begun
        # A read has finished when it returns; other copies may still be in the queue.
        in_queue = not self.serial and destination != HOST
        self.add_span(
            begun,
            lambda: max(mark() for mark in marks),
            self.mark(devices[0], True) if in_queue else lambda: now,
            name=f"{source} → {destination}",
            kind=TRANSFER,
            device=source if destination == HOST else destination,
            source=source,
            destination=destination,
            bytes=size,
        )
        return made

    def segment(self, unit: Unit, waits: bool, run: Callable[[], list[Any]]) -> list[Any]:
        """Run a segment and record it. `waits` says whether the device may go on after `run` returns."""
        device = unit.device
        if self.serial and waits:
            _wait([device])
        first = counter(device)
        begun = time.perf_counter()
        before = self.mark(device, waits and not self.serial)
        made = run()
        if self.serial and waits:
            _wait([device])
        after = self.mark(device, waits and not self.serial)
        if self.serial:
            unit.tally.calls += 1
            unit.tally.seconds += after() - begun
            unit.tally.cycles += max(0, counter(device) - first)  # the counter may have been reset
        tally = unit.tally
        self.add_span(
            begun,
            before,
            after,
            name=unit.name or unit.owner.entry,
            kind=SEGMENT,
            device=device_name(unit.owner),
            target=str(unit.owner.target),
            cycles=tally.cycles / tally.calls if tally.cycles else None,
        )
        return made

    def host_op(
        self, key: tuple[int, int], name: str, begun: float, ended: float, dims: Mapping[str, int]
    ) -> None:
        """Record an op that the host has computed, with the dims that were known."""
        if self.serial:
            tally = self.host.setdefault(key, Tally())
            tally.calls += 1
            tally.seconds += ended - begun
            tally.dims = dims
        self.add_span(begun, lambda: begun, lambda: ended, name=name, kind=HOST_OP, device=HOST)


def _wait(devices: Sequence[Any]) -> None:
    for device in devices:
        with device_errors(device):
            device.sync()


def counter(device: Any) -> int:
    """The cycle counter of a device; 0 if it has none."""
    with device_errors(device):
        found = getattr(device, "cycles", 0)
    return int(found) if isinstance(found, Integral) else 0


__all__ = ["Recorder", "Tally", "Unit", "counter"]
