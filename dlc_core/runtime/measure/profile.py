"""Profiling: the time of each kernel in a call, measured by an instrumented copy of the entry.

report = exe.profile([x])
print(report)                       a table
report.rows[0].milliseconds         the slowest kernel, for one call of the model
report.to_json()
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from dlc_core.diag import first_names

if TYPE_CHECKING:
    from rich.table import Table

    from dlc_core.target.cost import Estimate

PROFILE_SUFFIX = "__profile"
"""The suffix of the instrumented copy of an entry point."""

SHOWN_NODES = 3


@dataclass(frozen=True)
class Row:
    """A call site of a kernel. Figures are for one call of the model."""

    kernel: str
    nodes: tuple[str, ...]
    """The model nodes that it computes."""
    calls: float
    milliseconds: float
    share: float
    """The fraction of the time of all kernels, 0 to 1."""
    flops: int | None
    """Arithmetic operations; None if unknown."""
    bytes: int | None
    """Bytes of its inputs and outputs."""
    roofline: float | None = None
    """The shortest possible time of its work in milliseconds, by the target's description: the maximum of the
    times of its arithmetic and of its bytes. None if the work is not known.
    """
    bound: str = ""
    """The limit that determines `roofline`: `compute`, a cache level, or `memory`."""
    segment: str = ""
    """The segment of the host program that contains it; empty if the model is one native entry point."""

    @property
    def attained(self) -> float | None:
        """The roofline over the measured time; 1 is the best possible."""
        if self.roofline is None or not self.milliseconds:
            return None
        return self.roofline * self.calls / self.milliseconds

    @property
    def gflops(self) -> float | None:
        """The arithmetic rate in 10^9 operations per second."""
        if self.flops is None or not self.milliseconds:
            return None
        return self.flops * self.calls / self.milliseconds / 1e6

    @property
    def gbytes(self) -> float | None:
        """The memory rate in 10^9 bytes per second."""
        if self.bytes is None or not self.milliseconds:
            return None
        return self.bytes * self.calls / self.milliseconds / 1e6


@dataclass(frozen=True)
class Report:
    """The rows of all call sites, slowest first. `print` shows a table. `len`, iteration and indexing are by
    row.
    """

    rows: tuple[Row, ...]
    milliseconds: float
    """The time of a whole call, including the clock readings."""
    runs: int
    """The number of measured calls. Figures are their means."""
    threads: int
    executor: str = "thread"
    """The unit of `threads`: threads of the host, or units that kernels are launched on."""

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __getitem__(self, index: int) -> Row:
        return self.rows[index]

    def to_json(self) -> str:
        """All figures as JSON text."""
        return json.dumps(asdict(self), indent=1)

    def __rich__(self) -> Table:
        from rich.table import Table

        threads = f"{self.threads} {self.executor}{'s' * (self.threads != 1)}"
        table = Table(title=f"{self.milliseconds:.3f} ms a call, {threads}, mean of {self.runs}")
        table.add_column("kernel", overflow="fold")
        table.add_column("model nodes", overflow="fold")
        for name in ("calls", "ms", "share", "MFLOP", "MB", "GFLOP/s", "GB/s", "roofline ms", "of it"):
            table.add_column(name, justify="right")
        for row in self.rows:
            table.add_row(
                row.kernel,
                first_names(row.nodes, SHOWN_NODES),
                f"{row.calls:g}",
                f"{row.milliseconds:.4f}",
                f"{row.share:.1%}",
                "" if row.flops is None else f"{row.flops / 1e6:.3g}",
                "" if row.bytes is None else f"{row.bytes / 1e6:.3g}",
                _number(row.gflops),
                _number(row.gbytes),
                "" if row.roofline is None else f"{row.roofline:.2g} {row.bound}",
                "" if row.attained is None else f"{row.attained:.1%}",
            )
        return table

    def __str__(self) -> str:
        from rich.console import Console

        console = Console(width=140, color_system=None, highlight=False)
        with console.capture() as captured:
            console.print(self)
        return captured.get()


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"


def repeat(run: Callable[[], None], figures: Any, runs: int, warmup: int) -> float:
    """Call an instrumented entry `runs` times after `warmup` calls, which `figures` does not count. Returns
    the seconds of all runs together.
    """
    for _ in range(warmup):
        run()
    figures[:] = 0
    start = time.perf_counter()
    for _ in range(runs):
        run()
    return time.perf_counter() - start


def make_report(
    sites: Sequence[Mapping[str, Any]],
    times: Sequence[tuple[int, int]],
    limits: Sequence[Estimate | None],
    total: float,
    runs: int,
    threads: int,
    executor: str,
) -> Report:
    """Make a report from the nanoseconds and calls of each call site, the estimates of the cost model, and
    the seconds, each for all runs together.
    """
    total_time = sum(time for time, _ in times) or 1
    rows = [
        Row(
            kernel=site["kernel"],
            nodes=tuple(site.get("nodes", ())),
            calls=calls / runs,
            milliseconds=time / runs / 1e6,
            share=time / total_time,
            flops=site.get("flops"),
            bytes=site.get("bytes"),
            roofline=None if limit is None else limit.limit * 1e3,
            bound="" if limit is None else limit.bound,
        )
        for site, (time, calls), limit in zip(sites, times, limits, strict=True)
    ]
    rows.sort(key=lambda row: -row.milliseconds)
    return Report(tuple(rows), total / runs * 1e3, runs, threads, executor)


__all__ = ["PROFILE_SUFFIX", "Report", "Row", "make_report"]
