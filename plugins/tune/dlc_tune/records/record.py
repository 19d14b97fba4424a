"""A record: the schedule of a kernel on a target, and what it measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from types import MappingProxyType
from typing import Any

from dlc_core.diag import bytes_text
from dlc_core.support.record import record
from dlc_core.target.description import Description

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
    """The threads of its runs, `target.describe().cores`."""
    machine: str = ""
    """The machine that measured it (`machine_of(target.describe())`); empty if unknown."""
    name: str = ""
    """The name of the kernel in the model that it was tuned for."""
    compiler: str = ""
    """The version of dlc that measured it."""
    time: float = 0.0
    """Seconds since 1970."""
    notes: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def gain(self) -> float:
        """The measured time over that of the default schedule; 1 if they were not compared."""
        return self.seconds / self.default_seconds if self.seconds and self.default_seconds else 1.0


def machine_of(description: Description) -> str:
    """The parts of a machine's description that times depend on, in words.

    It tells machines apart whose code is the same (`Target.identity`), such as two models with other caches.
    """
    sizes = ", ".join(bytes_text(size) for size in description.caches)
    words = [f"{description.vector_bits}-bit vectors, {description.cores} cores, caches {sizes}"]
    if description.thread_axes:
        words.append(
            f"{description.group_threads} threads and {bytes_text(description.shared_bytes)} a group"
        )
    return ", ".join(words)


__all__ = ["CHOSEN", "TRIED", "Record", "machine_of"]
