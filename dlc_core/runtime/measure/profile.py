"""Profiles: the time of each kernel in a call, of each target, and of copies between devices.

report = exe.profile([x])
print(report)                       a table
report.rows[0].milliseconds         the slowest kernel, for one call of the model
report.targets                      the part of each target: multiply-adds, bytes, cycles, time
report.timeline                     when each segment and copy ran, and on which device
report.trace("trace.json")          the same for chrome://tracing and Perfetto
report.to_json()
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from dlc_core.diag import UsageError, first_names
from dlc_core.runtime.measure.timeline import Span, chrome_trace, timeline_text

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

PROFILE_SUFFIX = "__profile"
"""The suffix of the instrumented copy of an entry point."""

SHOWN_NODES = 3
WIDTH, WIDE = 140, 180
"""The characters of a line of the text, and of one about several devices."""
CODE, DEVICE, COUNTER, CLOCK = "code", "device", "counter", "clock"
HOW = {
    CODE: "a clock in the code, around each kernel",
    DEVICE: "the device, for each kernel",
    COUNTER: "the device's cycle counter, at the frequency of the target's description",
    CLOCK: "this process's clock, around the launch and the wait for it",
}
"""The ways in which times are measured."""


@dataclass(frozen=True)
class Row:
    """A call site of a kernel. Figures are for one call of the model.

    A segment whose kernels cannot be measured singly, an op that the host computes, and copies between two
    devices are rows too.
    """

    kernel: str
    nodes: tuple[str, ...]
    """The model nodes that it computes."""
    calls: float
    milliseconds: float
    share: float
    """The fraction of the time of all rows and copies, 0 to 1."""
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
    target: str = ""
    """The target that it was compiled for; empty for copies."""
    device: str = ""
    """The device that ran it."""
    measured: str = CODE
    """How the time was measured: a key of `HOW`."""
    multiply_adds: int | None = None
    """Products that are added to a running sum in one run; None if unknown."""
    cycles: float | None = None
    """Cycles by the device's counter; None if it has none, or if it counts several kernels together."""
    expected_cycles: float | None = None
    """The cycles that the cost model predicts for its target, at the frequency of the description."""

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
class TargetTime:
    """The part of one target in a call. A figure is None if a term of its sum is unknown."""

    target: str
    device: str
    milliseconds: float
    """The sum over its rows, one after the other."""
    share: float
    """The fraction of the time of all rows and copies, 0 to 1."""
    multiply_adds: float | None
    bytes: float | None
    cycles: float | None
    """Cycles by the device's counter; None if it has none."""
    expected_cycles: float | None
    multiply_adds_share: float | None
    """The fraction of all multiply-adds, 0 to 1; None if there are none."""
    bytes_share: float | None


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
    transfers: tuple[Row, ...] = ()
    """Copies between two devices, or a device and the host, by size."""
    targets: tuple[TargetTime, ...] = ()
    """The part of each target, by time."""
    timeline: tuple[Span, ...] = ()
    """When segments, host ops and copies ran in one more call. Launches are not measured singly there, so
    that devices work at the same time as in other calls."""
    dims: Mapping[str, int] = field(default_factory=dict)
    """The sizes of the model's dims in the calls."""

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __getitem__(self, index: int) -> Row:
        return self.rows[index]

    def to_json(self) -> str:
        """All figures as JSON text."""
        return json.dumps(asdict(self), indent=1)

    def trace(self, path: str | os.PathLike[str]) -> None:
        """Write the time line in the trace event format of Chrome, which chrome://tracing and Perfetto show.

        Raises UsageError if the file cannot be written.
        """
        try:
            Path(path).write_text(json.dumps(chrome_trace(self.timeline), indent=1), encoding="utf-8")
        except OSError as error:
            raise UsageError(f"the trace {os.fspath(path)} cannot be written", why=str(error)) from None

    @property
    def is_divided(self) -> bool:
        """Whether more than one device took part, or kernels were not measured singly."""
        singly = {row.measured for row in self.rows} <= {CODE, DEVICE}
        return len(self.targets) > 1 or bool(self.transfers) or not singly

    def __rich__(self) -> RenderableType:
        from rich.console import Group
        from rich.text import Text

        parts: list[RenderableType] = [self._table()]
        if self.is_divided:
            methods = dict.fromkeys(row.measured for row in (*self.rows, *self.transfers))
            parts.append(Text("\n".join(f"{key}: measured by {HOW[key]}" for key in methods)))
            parts.append(self._target_table())
            parts.append(Text(timeline_text(self.timeline), no_wrap=True, overflow="ignore"))
        return Group(*parts)

    def _table(self) -> Table:
        from rich.table import Table

        threads = f"{self.threads} {self.executor}{'s' * (self.threads != 1)}"
        table = Table(title=f"{self.milliseconds:.3f} ms a call, {threads}, mean of {self.runs}")
        divided = self.is_divided
        for name in ("kernel", *(("device",) if divided else ()), "model nodes"):
            table.add_column(name, overflow="fold")
        own = ("cycles", "measured") if divided else ()
        for name in ("calls", "ms", "share", "MFLOP", "MB", "GFLOP/s", "GB/s", "roofline ms", "of it", *own):
            table.add_column(name, justify="right")
        for row in (*self.rows, *self.transfers):
            table.add_row(
                row.kernel,
                *([row.device] if divided else []),
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
                *([_cycles(row.cycles, row.expected_cycles), row.measured] if divided else []),
            )
        return table

    def _target_table(self) -> Table:
        from rich.table import Table

        table = Table()
        table.add_column("target", overflow="fold")
        table.add_column("device")
        for name in ("ms", "share", "multiply-adds", "of all", "bytes", "of all", "cycles"):
            table.add_column(name, justify="right")
        for one in self.targets:
            table.add_row(
                one.target,
                one.device,
                f"{one.milliseconds:.4f}",
                f"{one.share:.1%}",
                "" if one.multiply_adds is None else f"{one.multiply_adds:g}",
                "" if one.multiply_adds_share is None else f"{one.multiply_adds_share:.1%}",
                "" if one.bytes is None else f"{one.bytes:g}",
                "" if one.bytes_share is None else f"{one.bytes_share:.1%}",
                _cycles(one.cycles, one.expected_cycles),
            )
        return table

    def __str__(self) -> str:
        from rich.console import Console

        width = WIDE if self.is_divided else WIDTH
        console = Console(width=width, color_system=None, highlight=False)
        with console.capture() as captured:
            console.print(self)
        return captured.get()


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"


def _cycles(counted: float | None, expected: float | None) -> str:
    """Cycles by a counter; those that the model expects begin with "~"."""
    if counted is not None:
        return f"{counted:.0f}"
    return "" if expected is None else f"~{expected:.0f}"


__all__ = ["CLOCK", "CODE", "COUNTER", "DEVICE", "HOW", "PROFILE_SUFFIX", "Report", "Row", "TargetTime"]
