"""A record: the schedule of a kernel on a target, and what it measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from types import MappingProxyType
from typing import Any

from dlc_core.support.record import record

CHOSEN, TRIED = "chosen", "tried"
"""States of records: a schedule that replaces the default one in compiles; any other outcome, which is kept
for the learned model and so that a search goes on where it stopped."""


@record(frozen=True)
class Record:
    """One measured schedule.

    `kernel` is `task.kernel_key` of the unscheduled kernel; `target` the text of the target, `processor` its
    identity (`Target.identity`). `family` is a hash of the kernel without its sizes, `extents` its sizes:
    kernels of one family differ in sizes only.
    """

    kernel: str
    target: str
    processor: str
    family: str
    extents: tuple[int, ...]
    space: str
    point: Mapping[str, str]
    trace: str
    """JSON of the trace."""
    state: str
    """CHOSEN, or TRIED."""
    outcome: str = "ok"
    """The state of the measurement (`measuring.job.STATES`)."""
    seconds: float | None = None
    default_seconds: float | None = None
    """The time of the analytic default in the interleaved comparison of a chosen schedule."""
    noise: float | None = None
    unit: str = "seconds"
    threads: int = 1
    name: str = ""
    """The name of the kernel in the model that it was tuned for."""
    compiler: str = ""
    """The version of dlc that measured it."""
    time: float = 0.0
    """Seconds since 1970."""
    notes: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))


__all__ = ["CHOSEN", "TRIED", "Record"]
